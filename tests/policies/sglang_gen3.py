"""Records SGLang's `AdaptiveSpeculativeParams` on random histories.

    python sglang_gen3.py WHEEL sglang-gen3.jsonl 400
"""

import json
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace

import released
from chance import draw

BATCHES = 160
DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"


def options(choose, part: int) -> dict:
    """Some of the numbers that a file or an entry of it may set."""
    all_of = {
        "ema_alpha": choose(part, [0.05, 0.2, 0.5, 1.0]),
        "warmup_batches": choose(part + 1, [0, 3, 10]),
        "update_interval": choose(part + 2, [1, 2, 5]),
        "down_hysteresis": choose(part + 3, [-0.5, -0.25, 0.0, 0.25]),
        "up_hysteresis": choose(part + 4, [-0.25, 0.0, 0.5]),
        "ceiling_coeff": choose(part + 5, [0, 0.8, 1.0, 1.5]),
    }
    kept = choose(part + 6, range(64))
    return {name: value for bit, (name, value) in enumerate(all_of.items()) if kept >> bit & 1}


def config(seed: int, choose) -> dict | None:
    """The file of a history, or `None` for SGLang's own default."""
    if seed % 8 == 0:
        return None
    file = options(choose, 100)
    size = choose(200, [1, 1, 1, 3])
    for slot in range(choose(201, [1, 2, 3, 4])):
        steps = sorted({choose(300 + 10 * slot + i, [0, 0, 1, 2, 3, 4, 5, 7]) for i in range(4)})
        file[str(size)] = {"candidate_steps": steps, **options(choose, 400 + 20 * slot)}
        size += choose(210 + slot, [1, 4, 7, 24])
    return file


def lengths_of(file: dict) -> set[int]:
    """All lengths that a file names. With one alone nothing adapts, which the replay's reader refuses."""
    return {s for entry in file.values() if isinstance(entry, dict) for s in entry["candidate_steps"]}


def record(seed: int, params_of, graphs_of) -> dict | None:
    """One history: what was set, the length of every batch, and each slot's average every ten batches."""

    def choose(part, options):
        options = list(options)
        return options[draw(seed, 9, part, 0) % len(options)]

    file, initial, most = config(seed, choose), choose(1, [1, 2, 3, 5, 7]), choose(2, [33, 64, 80])
    if file is not None and len(lengths_of(file)) < 2:
        return None
    with tempfile.NamedTemporaryFile("w", suffix=".json") as written:
        json.dump(file, written)
        written.flush()
        params = params_of(initial, None if file is None else written.name)
    graphs = graphs_of(most) if choose(3, [True, True, False]) else None
    params.set_cuda_graph_bs(graphs)
    lengths, averages = "", []
    for batch in range(BATCHES):
        # Batch size and acceptance change every twenty batches.
        era = batch // 20
        size = 1 + (draw(seed, 2, era, 0) % 70 + draw(seed, 3, batch, 0) % 4) % most
        holds = 50 + draw(seed, 4, era, 0) % 950
        steps = params.get_steps_for_batch(size)
        lengths += DIGITS[steps]
        accepted = []
        for request in range(size):
            held = (draw(seed, 1, 1000 * batch + request, i) % 1000 < holds for i in range(steps))
            accepted.append(next((i for i, hold in enumerate(held) if not hold), steps))
        params.on_verify_complete(accepted, size)
        if batch % 10 == 9:
            averages.append([params._slots[key].ema_accept_len for key in params._bs_list])
    # One history in four, the default ones included, keeps all averages; the others keep the last ones.
    averages = averages if seed % 4 == 0 else averages[-1:]
    return {"seed": seed, "file": file, "initial": initial, "most": most, "graphs": graphs, "lengths": lengths, "averages": averages}


def main() -> None:
    wheel, out, count = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])
    released.install(wheel)
    cuda_graph_hook = released.module("srt.arg_groups.cuda_graph_hook")
    AdaptiveSpeculativeParams = released.module("srt.speculative.adaptive_spec_params").AdaptiveSpeculativeParams
    cuda_graph_hook.resolving_view = lambda args: args
    served = SimpleNamespace(disable_cuda_graph_padding=False, speculative_algorithm="EAGLE3")
    histories, seed, changes = [], 0, 0
    while len(histories) < count:
        made = record(seed, AdaptiveSpeculativeParams, lambda most: cuda_graph_hook.generate_decode_cuda_graph_batch_sizes(served, most))
        if made is not None:
            histories.append(made)
            changes += sum(a != b for a, b in zip(made["lengths"], made["lengths"][1:]))
        seed += 1
    with out.open("w") as file:
        for history in histories:
            file.write(json.dumps(history, separators=(",", ":")) + "\n")
    zeros = sum("0" in h["lengths"] and h["lengths"].strip("0") != "" for h in histories)
    print(f"{len(histories)} histories of {BATCHES} batches, {changes} changes of length; {zeros} that draft and pause")


if __name__ == "__main__":
    main()
