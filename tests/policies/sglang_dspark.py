"""Records SGLang's DSpark planner on random histories: relay of confidences, budget, and its distribution over
requests.

    python sglang_dspark.py WHEEL sglang-dspark.jsonl 400
"""

import json
import os
import sys
import tempfile
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import released
import torch
from chance import draw

ROUNDS, SLOTS = 20, 7


class Event:
    """A device event that has always happened."""

    def record(self):
        pass

    def query(self):
        return True


class Torch:
    """torch without a device: no pinned memory, no streams."""

    def __getattr__(self, name):
        return getattr(torch, name)

    def empty(self, *args, pin_memory=False, **kwargs):
        return torch.empty(*args, **kwargs)

    def get_device_module(self, device):
        return SimpleNamespace(Event=Event, stream=lambda _: nullcontext())


def table(choose) -> dict:
    """A cost table in the form of its file. One table in five has a single probe."""
    if choose(20, [0, 1]):
        probes = sorted({1 + choose(30 + i, range(40)) for i in range(choose(21, [1, 3, 5, 7, 7]))})
        rates = [10 + choose(50 + i, range(90)) / 3 for i in range(len(probes))]
        # Most tables fall, as real ones do.
        rates = sorted(rates, reverse=True) if choose(22, [1, 1, 1, 0]) else rates
        return {"sample_batch_tokens": probes, "sample_steps_per_sec": rates, "max_batch_tokens": 64}
    bs = sorted({1 + choose(30 + i, range(9)) for i in range(choose(21, [1, 2, 4]))})
    m = sorted({1 + choose(40 + i, range(45)) for i in range(choose(23, [1, 3, 5, 7, 7]))})
    return {
        "bias_seconds": (1 + choose(24, range(50))) / 1e3,
        "bs_probes": bs,
        "alpha_seconds": sorted(choose(50 + i, range(100)) / 7e3 for i in range(len(bs))),
        "m_probes": m,
        "theta_seconds": sorted(choose(60 + i, range(300)) / 3e3 for i in range(len(m))),
    }


def record(seed: int, planner, overlap_utils) -> dict:
    """One history of decode rounds, with prefills between them."""

    def choose(part, options):
        options = list(options)
        return options[draw(seed, 9, part, 0) % len(options)]

    cost = table(choose)
    gamma, lag, overlap = choose(1, [1, 2, 3, 4, 5]), choose(2, [1, 2, 2, 2, 3, 4]), choose(3, [True, True, True, False])
    grid = choose(4, [None, None, [2, 4, 8, 12, 20, 28, 36, 48], [16, 32, 64]])
    spread, levels = choose(5, [0.2, 0.6, 1.0]), choose(6, [4, 20, 1000, 1000])
    held = {"decode_cuda_graph_runner": grid and SimpleNamespace(ragged_verify_mode=True, capture_num_tokens=grid, max_bs=64)}
    pool = SimpleNamespace(req_generation=torch.zeros(SLOTS + 1, dtype=torch.int64), req_to_token=torch.zeros(SLOTS + 1, 1))
    os.environ["SGLANG_DSPARK_CONFIDENCE_RELAY_LAG_STEPS"] = str(lag)
    with tempfile.NamedTemporaryFile("w", suffix=".json") as written:
        json.dump(cost, written)
        written.flush()
        spec = SimpleNamespace(
            speculative_dspark_align_verify_tokens_to_graph_tier=grid is not None,
            speculative_dspark_confidence_sts_path=None,
            speculative_dspark_sps_table_path=written.name,
        )
        planner.get_spec = lambda: spec
        planner.get_schedule = lambda: SimpleNamespace(disable_overlap_schedule=not overlap, max_running_requests=SLOTS)
        plan = planner.DSparkVerifyPlanner(
            draft_model=SimpleNamespace(confidence_head=SimpleNamespace()),
            gamma=gamma,
            model_runner=SimpleNamespace(req_to_token_pool=pool, **held),
            device=torch.device("cpu"),
            tp_rank=1,
            verify_num_draft_tokens=gamma + 1,
            tp_sync=SimpleNamespace(sync=lambda *_: None),
        )
    future = object.__new__(overlap_utils.FutureMap)
    future.device, future.needs_confidence_relay = torch.device("cpu"), True
    future.confidence_relay = overlap_utils.ConfidenceRelay(device=future.device, req_pool_size=SLOTS + 1, pool=pool)
    future.fwd_prepare_d2h_stream, future.publish_ready = SimpleNamespace(wait_event=lambda _: None), None
    future.new_seq_lens_buf, future.spec_algo = torch.zeros(SLOTS + 1, dtype=torch.int64), SimpleNamespace(is_some=lambda: True)
    budgets, thetas, lens = [], [], ""
    for at in range(ROUNDS):
        present = []
        for slot in range(1, SLOTS + 1):
            # A request decodes in the first round after it got its slot. (Otherwise it would count as fresh, with the
            # confidences of the request that had the slot before.)
            new = at == 0 or draw(seed, 5, slot, at) % 8 == 0
            pool.req_generation[slot] += new
            if new or draw(seed, 6, slot, at) % 5 != 0:
                present.append(slot)
        present = present or [1]
        rows = torch.tensor(present)
        if draw(seed, 7, 0, at) % 6 == 0:
            prefill = SimpleNamespace(spec_info=SimpleNamespace(), is_extend_in_batch=True, forward_mode=SimpleNamespace(is_extend=lambda: True))
            plan.prepare_verify_budget(prefill, future)
        confidence = np.array(
            [[1 - draw(seed, 8, 64 * (100 * slot + int(pool.req_generation[slot])) + j, at) % levels / levels * spread for j in range(gamma)] for slot in present],
            dtype=np.float32,
        )
        confidence = torch.from_numpy(confidence)
        batch = SimpleNamespace(
            spec_info=SimpleNamespace(future_indices=rows, verify_token_budget=None),
            forward_mode=SimpleNamespace(is_extend=lambda: False),
            is_extend_in_batch=False,
            batch_size=lambda: len(present),
            req_pool_indices=rows,
            req_pool_indices_cpu=rows,
        )
        if overlap:
            plan.prepare_verify_budget(batch, future)
        seen = {"confidence": confidence, "prefix_lens": rows, "req_pool_indices": rows}
        budget = plan.resolve_verify_token_budget(draft_input=batch.spec_info, **seen)
        decision = plan.take_budget_decision()
        # None means a static verification of whole blocks.
        layout = plan.schedule_layout(device=confidence.device, budget=budget, **seen) if budget is not None else None
        verified = [gamma] * len(present) if layout is None else [int(n) - 1 for n in layout.verify_lens]
        budgets.append(budget)
        thetas.append(None if decision is None else decision.predicted_theta)
        lens += "".join(map(str, verified)) + " "
        future.publish(rows, rows, confidence)
    return {
        "seed": seed, "gamma": gamma, "lag": lag, "overlap": overlap, "table": cost, "grid": grid, "spread": spread, "levels": levels,
        "budgets": budgets, "thetas": thetas, "lens": lens.strip(),
    }


def main() -> None:
    wheel, out, count = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])
    os.environ["SGLANG_RAGGED_VERIFY_MODE"] = "compact"
    released.install(wheel)
    overlap_utils = released.module("srt.managers.overlap_utils")
    overlap_utils.torch, overlap_utils._is_cuda = Torch(), True
    planner = released.module("srt.speculative.dspark_components.dspark_planner")
    planner.resolve_level, planner.InvariantCheckLevel = lambda: 0, SimpleNamespace(WARN=1)
    planner.is_dp_attention_enabled = lambda: False
    histories = [record(seed, planner, overlap_utils) for seed in range(count)]
    with out.open("w") as file:
        for history in histories:
            file.write(json.dumps(history, separators=(",", ":")) + "\n")
    trimmed = sum(
        any(int(n) < h["gamma"] for n in step) for h in histories for step in h["lens"].split()
    )
    print(f"{count} histories of {ROUNDS} rounds, {trimmed} rounds trimmed")


if __name__ == "__main__":
    main()
