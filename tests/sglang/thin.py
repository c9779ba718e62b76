"""Takes from recordings those workloads of each family in which most kinds of things happen, the short ones first.

    python thin.py sglang-0.5.23.jsonl --bytes 250000 new.jsonl …
"""

import argparse
import json
from pathlib import Path


def kinds(line: dict) -> frozenset[str]:
    """The kinds of things that happened in a workload."""
    found, before = set(), None
    for event in line["events"]:
        found.add(event["is"])
        if event["is"] == "end":
            found.update(why for _, _, why in event["requests"])
        if event["is"] == "run":
            found |= {event["mode"]} | of_batch(event) | (changes(before, event) if before else set())
            before = event
    return frozenset(found)


def of_batch(event: dict) -> set[str]:
    prompts = event["rows"][: event["prompts"]]
    told = {
        "chunk": event["chunked"] is not None,
        "prefix": any(row[2] for row in prompts),
        "several prompts": len(prompts) > 1,
        "closed": event["full"],
        "queue": len(event["waiting"]) > 1,
        "sits out": event["mode"] == "mixed" and bool(event["running"]),
    }
    if event["mode"] == "decode":
        drafts = [(row[2], row[1] - 1) for row in event["rows"]]
        told["all right"] = any(0 < right == made for right, made in drafts)
        told["some right"] = any(0 < right < made for right, made in drafts)
    return {name for name, true in told.items() if true}


def changes(before: dict, event: dict) -> set[str]:
    told = {
        "opened": before["full"] and not event["full"],
        "evicted": event["evictable"] < before["evictable"],
        "ratio rose": event["ratio"] > before["ratio"],
        "width": event["mode"] == before["mode"] == "decode" and event["rows"][0][1] != before["rows"][0][1],
        "reordered": [r for r in event["waiting"] if r in before["waiting"]] != [r for r in before["waiting"] if r in event["waiting"]],
    }
    return {name for name, true in told.items() if true}


def chosen(texts: list[str], room: int) -> list[str]:
    """The workloads of one family that fit, in the order of their seeds. A kind that was not yet seen comes first."""
    lines = [(text, json.loads(text)) for text in texts]
    left = [(kinds(line), line["seed"], text) for text, line in lines]
    seen: set[str] = set()
    taken = []
    while left:
        left.sort(key=lambda item: (-len(item[0] - seen), len(item[2]) / len(item[0])))
        found, seed, text = left.pop(0)
        if len(text) <= room:
            room -= len(text)
            seen |= found
            taken.append((seed, text))
    return [text for _, text in sorted(taken)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path, help="is written")
    parser.add_argument("recordings", type=Path, nargs="+")
    parser.add_argument("--bytes", type=int, default=250_000, help="of each family, before compression")
    options = parser.parse_args()
    families: dict[str, list[str]] = {}
    for recording in options.recordings:
        head, *texts = recording.read_text().splitlines()
        for text in texts:
            families.setdefault(json.loads(text)["family"], []).append(text)
    with options.file.open("w") as file:
        file.write(head + "\n")
        for family, texts in families.items():
            few = chosen(texts, options.bytes)
            print(f"{len(few):5} of {len(texts):5} {family}")
            file.writelines(text + "\n" for text in few)


if __name__ == "__main__":
    main()
