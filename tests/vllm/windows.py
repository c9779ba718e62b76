"""Records how many KV blocks vLLM's own managers hold for models with sliding windows, step by step.

    PYTHONPATH=$PWD/tree/pip-download-*/vllm-0.33.0 python windows.py ../../sim/src/engine/kv_cache/windows-0.33.0.json

Each model is given by the sizes of its layers. vLLM's planning makes the groups, its `FullAttentionManager` and
`SlidingWindowManager` hold the blocks. A request runs alone: its prompt in chunks, then decode steps with draft tokens,
with and without a step in flight. As in `KVCacheManager.allocate_slots`, a step first removes the blocks before the
window and then allocates. `states.py` has the names that stand in for torch and the packages around it.
"""

import json
import random
import sys
from pathlib import Path

from states import FullAttentionSpec, SlidingWindowManager, SlidingWindowSpec, managers_of, torch

# (layers that keep all, KV heads, head size), (layers with a window, KV heads, head size, tokens of the window).
MODELS = {
    "gpt-oss-20b": ((12, 8, 64), (12, 8, 64, 128)),
    "gpt-oss-120b": ((18, 8, 64), (18, 8, 64, 128)),
    "gemma-3-27b": ((10, 16, 128), (52, 16, 128, 1024)),
    "gemma-3-12b": ((8, 8, 256), (40, 8, 256, 1024)),
    "gpt-oss-120b with a head": ((19, 8, 64), (18, 8, 64, 128)),
}
BLOCK, BLOCKS, MODEL_LEN = 16, 100000, 1 << 17


def specs_of(full, window):
    (layers, heads, size), (sliding, window_heads, window_size, tokens) = full, window
    one = FullAttentionSpec(block_size=BLOCK, num_kv_heads=heads, head_size=size, dtype=torch.bfloat16)
    other = SlidingWindowSpec(block_size=BLOCK, num_kv_heads=window_heads, head_size=window_size, dtype=torch.bfloat16,
                              sliding_window=tokens)
    return {f"full.{i}": one for i in range(layers)} | {f"window.{i}": other for i in range(sliding)}, other


def steps(chance, prompt, budget, outputs, k, asynchronous):
    """The steps of a request: tokens computed before it, of them in flight, and tokens that need a slot."""
    computed, flying = 0, 0
    while computed < prompt:
        new = min(budget, prompt - computed)
        yield computed, flying, computed + new
        flying, computed = (new if asynchronous else 0), computed + new
    for _ in range(outputs):
        yield computed, flying, computed + 1 + k
        new = 1 + (k if asynchronous else chance.randint(0, k))
        flying, computed = (new if asynchronous else 0), computed + new


def recorded(full, window, chance) -> dict:
    specs, spec = specs_of(full, window)
    managers, pool, of_group = managers_of(specs, BLOCK, BLOCKS)
    runs = []
    for number in range(12):
        prompt, budget = chance.randint(1, 5000), chance.choice((512, 2048, 8192))
        k, asynchronous = chance.choice((0, 0, 3, 7)), chance.random() < 0.5
        name, rows = str(number), []
        for computed, flying, tokens in steps(chance, prompt, budget, 60, k, asynchronous):
            for manager in managers:
                # The fast path of `get_num_blocks_to_allocate` is for requests that vLLM's cache has seen.
                manager.num_cached_block.setdefault(name, 0)
                manager.req_to_blocks[name]
                manager.remove_skipped_blocks(name, max(0, computed - flying))
                manager.allocate_new_blocks(name, tokens, tokens)
            rows.append([computed, flying, tokens, BLOCKS - 1 - pool.get_num_free_blocks()])
        for manager in managers:
            manager.free(name)
        most = spec.max_admission_blocks_per_request((2 if asynchronous else 1) * budget, MODEL_LEN)
        runs.append({"budget": budget, "asynchronous": asynchronous, "most": most, "steps": rows})
    return {"layers_of_a_group": of_group, "groups": sum(isinstance(m, SlidingWindowManager) for m in managers),
            "window": spec.sliding_window, "runs": runs}


def main() -> None:
    chance = random.Random(58)
    models = {name: recorded(*sizes, chance) for name, sizes in MODELS.items()}
    about = {"vllm": "0.33.0", "block_size": BLOCK, "max_model_len": MODEL_LEN}
    lines = [f'  "about": {json.dumps(about)}'] + [f"  {json.dumps(n)}: {json.dumps(m)}" for n, m in models.items()]
    Path(sys.argv[1]).write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    main()
