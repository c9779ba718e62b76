"""Computes the clock, the tokens and the ends of recordings again, by the rules of the README alone.

    python reread.py sglang-0.5.23.jsonl …
"""

import json
import sys
from collections import Counter

import chance


class Reader:
    """Follows the events of one workload. `pending` holds the batches that were launched and not taken."""

    def __init__(self, line: dict) -> None:
        self.line, self.requests = line, line["requests"]
        self.now = self.free = 0
        self.coming = list(range(len(self.requests)))
        count = len(self.requests)
        self.made, self.known, self.ended = [0] * count, [0] * count, [False] * count
        self.limit = [self.clipped(request) for request in self.requests]
        self.pending: list[dict] = []
        self.due: list[list] | None = None  # ends that a taken result must be followed by
        self.counts: Counter = Counter()

    def clipped(self, request: dict) -> int:
        """`max_new_tokens` as it fits in KV."""
        derived, length = self.line["derived"], sum(count for _, count in request["prompt"])
        page = derived["page_size"]
        fits = derived["kv_tokens"] - -(-length // page) * page - page - 1
        return max(0, min(request["max_new_tokens"], derived["max_req_len"] - length - 1, fits))

    def refused(self, index: int) -> bool:
        return sum(count for _, count in self.requests[index]["prompt"]) >= self.line["derived"]["max_req_input_len"]

    def read(self) -> Counter:
        for event in self.line["events"]:
            if self.due and event["is"] != "end":
                raise ValueError(f"{self.due} should have ended before {event}")
            getattr(self, "on_" + event["is"])(event)
            self.counts[event["is"]] += 1
        return self.counts

    def same(self, what: str, theirs, ours) -> None:
        if theirs != ours:
            raise ValueError(f"{what}: {theirs} is recorded, {ours} follows")

    def on_in(self, event: dict) -> None:
        self.same("clock of an arrival", event["at"], self.now)
        seen = [index for index in self.coming if self.requests[index]["at"] <= self.now]
        self.same("arrivals", event["requests"], seen)
        self.coming = self.coming[len(seen) :]

    def on_run(self, event: dict) -> None:
        start = max(self.now, self.free)
        self.same("start of a pass", event["at"], start)
        self.free = start + 3000 + 10 * sum(row[1] for row in event["rows"]) + 50 * len(event["rows"])
        for at, (index, new, second, _, _) in enumerate(event["rows"]):
            if at < event["prompts"]:
                self.made[index] = self.known[index]
            drafts = new - 1 if event["mode"] == "decode" else 0
            right = chance.accepted(self.line["seed"], self.line["accept"], index, self.made[index], drafts)
            if event["mode"] == "decode":
                self.same(f"right drafts of {index}", second, right)
            self.made[index] += 1 + right
            event["rows"][at] = [index, 1 + right, at < event["prompts"] and event["chunked"] == index]
        self.pending.append({"rows": event["rows"], "end": self.free, "gone": set()})
        while len(self.pending) > self.line["derived"]["overlap"]:
            self.take()

    def take(self) -> None:
        batch = self.pending.pop(0)
        self.now = max(self.now, batch["end"])
        ends = []
        for index, tokens, unfinished in batch["rows"]:
            if unfinished or self.ended[index] or index in batch["gone"]:
                continue
            self.known[index] += tokens
            last = self.requests[index]["eos_after"]
            if self.refused(index):
                ends.append([index, 1, "abort"])
            elif last is not None and not self.requests[index]["ignore_eos"] and last <= min(self.known[index], self.limit[index]):
                ends.append([index, last, "eos"])
            elif self.known[index] >= self.limit[index]:
                ends.append([index, self.limit[index], "length"])
        for index, _, _ in ends:
            self.ended[index] = True
        self.due = ends

    def on_end(self, event: dict) -> None:
        self.same("clock of an end", event["at"], self.now)
        self.same("ends", event["requests"], self.due)
        self.due = None

    def on_none(self, event: dict) -> None:
        self.same("clock of a pass without a batch", event["at"], self.now)
        if self.pending:
            self.take()

    def on_idle(self, event: dict) -> None:
        self.same("clock of an idle pass", event["at"], self.now)
        if self.coming:
            self.now = max(self.now, self.requests[self.coming[0]]["at"])

    def on_retract(self, event: dict) -> None:
        for batch in self.pending:
            batch["gone"].add(event["request"])

    on_preempt = on_retract

    def on_abort(self, event: dict) -> None:
        self.ended[event["request"]] = True

    def on_stuck(self, event: dict) -> None:
        pass

    on_endless = on_error = on_stuck


def main() -> None:
    counts: Counter = Counter()
    for path in sys.argv[1:]:
        with open(path) as file:
            next(file)
            for text in file:
                line = json.loads(text)
                try:
                    counts += Reader(line).read()
                except ValueError as error:
                    sys.exit(f"{path}: {line['family']} {line['seed']}: {error}")
                counts["workloads"] += 1
    for name, number in sorted(counts.items()):
        print(f"{number:8} {name}")


if __name__ == "__main__":
    main()
