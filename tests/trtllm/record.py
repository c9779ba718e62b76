#!/usr/bin/env python3
"""Records when TensorRT-LLM's own code holds prompts back: record.py py_executor.py balance.txt

py_executor.py is tensorrt_llm/_torch/pyexecutor/py_executor.py of TensorRT-LLM. `PyExecutor._balance_adp_requests` is
taken out of it and runs on an executor without a model, whose ranks have the requests that are drawn here.
"""

import ast
import pathlib
import random
import sys
import types

NAME = "_balance_adp_requests"


def method(path):
    tree = ast.parse(path.read_text())
    found = next(node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and node.name == NAME)
    found.args.args = [ast.arg(arg.arg) for arg in found.args.args]
    module = ast.fix_missing_locations(ast.Module([found], []))
    names = {}
    exec(compile(module, str(path), "exec"), names)
    return names[NAME]


def line(balance, dice):
    """Settings (timeout, batching wait, slots, ranks), then a step's requests by rank and whether its prompts ran."""
    ranks, slots = dice.randint(2, 4), dice.randint(2, 5)
    timeout, batching = dice.choice((1, 3, 6)), dice.choice((0, 1, 3))
    many = dice.choice((0.3, 0.7, 0.95))
    parts = [f"{timeout},{batching},{slots},{ranks}"]
    executor = types.SimpleNamespace(
        attention_dp_enable_balance=True, attention_dp_time_out_iters=timeout, max_batch_size=slots,
        attention_dp_batching_wait_iters=batching, adp_ctx_waiting_iters_count=0, adp_ctx_batching_wait_iters_count=0,
    )
    prompt = types.SimpleNamespace(get_tokens=lambda beam: [0] * 8)
    for _ in range(30):
        prompts = [int(dice.random() < many) for _ in range(ranks)]
        decodes = [dice.choice((0, 1, 1, 1, 1, 2, slots)) if dice.random() < 0.5 else 1 for _ in range(ranks)]
        answers = [[p, d, 8 * p + d] for p, d in zip(prompts, decodes)]
        executor.dist = types.SimpleNamespace(tp_allgather=lambda own: answers)
        ran = len(balance(executor, [prompt], []))
        parts.append(",".join(str(n) for pair in zip(prompts, decodes) for n in pair) + f",{ran}")
    return " ".join(parts)


def main():
    balance, dice = method(pathlib.Path(sys.argv[1])), random.Random(60)
    head = "# When prompts run: TensorRT-LLM's PyExecutor._balance_adp_requests, recorded by record.py"
    pathlib.Path(sys.argv[2]).write_text("\n".join([head, *(line(balance, dice) for _ in range(100))]) + "\n")


if __name__ == "__main__":
    main()
