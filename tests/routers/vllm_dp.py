"""Records the engines that vLLM's data-parallel balancer chooses: `DPLBAsyncMPClient.get_core_engine_for_request`.

    python vllm_dp.py VLLM-0.33.0-TREE/vllm/v1/engine/core_client.py vllm-dp.txt
"""

import ast
import sys
import textwrap
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

MASK = (1 << 64) - 1
GOLDEN = 0x9E3779B97F4A7C15
STATES, REPLICAS, SEED, ARRIVALS = 10_000, 6, 36, 8


def mix(z: int) -> int:
    """`foretoken_sim::luck::mix`."""
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
    return z ^ (z >> 31)


def state(index: int):
    """The requests in flight and the new reports of a state, as `fleet/src/routers/tests/states.rs` draws them."""
    a = mix((SEED + GOLDEN + (ARRIVALS << 56)) & MASK)
    base = mix(a ^ mix((index + GOLDEN) & MASK))

    def draw(which: int, below: int) -> int:
        return mix((base + which * GOLDEN) & MASK) % below

    quiet = draw(6, 2) == 0
    in_flight, reports = [], []
    for r in range(REPLICAS):
        of = lambda which, below: draw(100 + 10 * r + which, below)
        in_flight.append(of(6, 3 if quiet else 60))
        report = None
        if index >= 300 * r and of(7, 4) == 0:
            running, waiting = of(1, 2 if quiet else 20), of(2, 2 if quiet else 6)
            report = [waiting, running, (500 if quiet else of(4, 1001)) / 1000]
        reports.append(report)
    return in_flight, reports


def method(path: str):
    """The balancer's method, alone."""
    tree = ast.parse(Path(path).read_text())
    (client,) = (node for node in tree.body if getattr(node, "name", "") == "DPLBAsyncMPClient")
    (chooses,) = (node for node in client.body if getattr(node, "name", "") == "get_core_engine_for_request")
    chooses.returns = None
    for argument in chooses.args.args:
        argument.annotation = None
    # Requests without pooling name no engine.
    names = {"sys": sys, "get_late_interaction_engine_index": lambda params, engines: None}
    exec(textwrap.dedent(ast.unparse(chooses)), names)
    return names[chooses.name]


choose = method(sys.argv[1])
client = SimpleNamespace(
    client_count=1,
    eng_start_index=0,
    core_engines=list(range(REPLICAS)),
    lb_engines=[[0, 0, 0.0] for _ in range(REPLICAS)],
    reqs_in_flight={},
    streaming_reqs=set(),
    engine_inflight=Counter(),
)
chosen = []
for index in range(STATES):
    in_flight, reports = state(index)
    for engine, report in enumerate(reports):
        if report is not None:
            client.lb_engines[engine] = report
    client.engine_inflight = Counter(dict(enumerate(in_flight)))
    request = SimpleNamespace(request_id=str(index), resumable=False, data_parallel_rank=None, pooling_params=None)
    chosen.append(str(choose(client, request)))
lines = ["".join(chosen[at : at + 100]) for at in range(0, STATES, 100)]
Path(sys.argv[2]).write_text("\n".join(["vllm 0.33.0 DPLBAsyncMPClient", *lines]) + "\n")
