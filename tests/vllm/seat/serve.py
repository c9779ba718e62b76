#!/usr/bin/env python3
"""Starts a real `vllm serve` with a policy in its seat, drives it, and prints what the seat did.

    serve.py --vllm VENV/bin/vllm --out DIR [--mode act] [--device pair] [--asynchronous] [--policy JSON] [--seconds 20]

The device is the clockwork of ../clockwork (no model, a law's pass times) or `pair`, the shipped models on the CPU. The
package `foretoken` with its entry point must be importable from the server's Python (installed, or on PYTHONPATH).
DIR gets the seat's log `seat.jsonl`, the server's `server.log`, and `metrics.txt`.
"""

import argparse
import collections
import concurrent.futures
import json
import os
import pathlib
import signal
import subprocess
import sys
import time
import urllib.request

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[2]
CLOCKWORK, PAIR = HERE.parent / "clockwork", ROOT / "kernels" / "pair"
FORESIGHT = '{"foresight": {"stop": false, "trim": false, "confidences": false}}'


def command(args) -> tuple[list[str], dict[str, str]]:
    """The server's command line and environment."""
    speculative = {"method": "draft_model", "model": str(PAIR / "draft"), "num_speculative_tokens": args.most}
    if args.table:
        speculative["num_speculative_tokens_per_batch_size"] = json.loads(args.table)
    line = [args.vllm, "serve", str(PAIR / "target"), "--served-model-name", "tiny", "--port", str(args.port)]
    line += ["--enforce-eager", "--dtype", "bfloat16", "--max-model-len", "1024", "--max-num-seqs", "16"]
    line += ["--max-num-batched-tokens", "1024", "--block-size", "32", "--disable-uvicorn-access-log"]
    line += ["--scheduler-cls", args.scheduler]
    line += ["--async-scheduling" if args.asynchronous else "--no-async-scheduling", *args.more]
    if args.most:
        line += ["--speculative-config", json.dumps(speculative)]
    path = [os.environ.get("PYTHONPATH", "")]
    if args.device == "clockwork":
        line += ["--distributed-executor-backend", "executor.Clockwork"]
        path = [str(CLOCKWORK)] + [str(CLOCKWORK / "asynchronous")] * args.asynchronous + path
    settings = {
        "PYTHONPATH": os.pathsep.join(path), "CLOCKWORK_LAW": str(CLOCKWORK / "laws" / args.law),
        "VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_CPU_OMP_THREADS_BIND": "0", "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1",
        "VLLM_NO_USAGE_STATS": "1", "VLLM_LOGGING_CONFIG_PATH": str(ROOT / "experiments" / "vllm-logging.json"),
        "FORETOKEN_MODE": args.mode, "FORETOKEN_LOG": args.log or str(args.out.resolve() / "seat.jsonl"),
        "FORETOKEN_METRICS_PORT": str(args.metrics), "FORETOKEN_POLICY": args.policy,
    }  # fmt: skip
    env = {**os.environ, **settings}
    # With this variable vLLM takes its own CPU platform, which schedules synchronously, and no plug-in.
    env.pop("VLLM_TARGET_DEVICE", None)
    if not args.asynchronous:
        env["VLLM_TARGET_DEVICE"] = "cpu"
    return line, env


def answers(url: str) -> bool:
    try:
        urllib.request.urlopen(url + "/health", timeout=2).read()
        return True
    except OSError:
        return False


def ask(url: str, number: int) -> int:
    """One request. Returns the number of its tokens."""
    body = {"model": "tiny", "prompt": f"Question {number}: what is " + "a word " * (3 + number % 9)}
    body |= {"max_tokens": 16 + number * 7 % 48, "temperature": 0, "ignore_eos": True}
    request = urllib.request.Request(url + "/v1/completions", json.dumps(body).encode(), {"Content-Type": "application/json"})
    return json.loads(urllib.request.urlopen(request, timeout=120).read())["usage"]["completion_tokens"]


def drive(url: str, clients: int, seconds: float) -> tuple[int, int, float]:
    """Closed loops of clients. Returns requests, tokens and seconds."""
    begin = time.monotonic()

    def client(first: int) -> tuple[int, int]:
        done = tokens = 0
        while time.monotonic() - begin < seconds:
            tokens += ask(url, first + 97 * done)
            done += 1
        return done, tokens

    with concurrent.futures.ThreadPoolExecutor(clients) as pool:
        done = list(pool.map(client, range(clients)))
    return sum(d for d, _ in done), sum(t for _, t in done), time.monotonic() - begin


def summary(path: pathlib.Path) -> dict:
    """What a seat's log says."""
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    steps = [line for line in lines if line.get("is") == "step"]
    timed = sorted(step["decision_us"] for step in steps if step["would"] is not None)
    return {
        "header": lines[0]["mode"], "version": lines[0]["version"], "async": lines[0]["settings"]["async_scheduling"],
        "lines": dict(collections.Counter(line.get("is", "header") for line in lines)),
        "used": dict(sorted(collections.Counter(step["used"] for step in steps if step["ids"]).items())),
        "would": dict(sorted(collections.Counter(step["would"] for step in steps if step["would"] is not None).items())),
        "verified": dict(sorted(collections.Counter(v for step in steps for v in step["verified"]).items())),
        "median_decision_us": timed[len(timed) // 2] if timed else None,
        "most_decision_us": timed[-1] if timed else None,
        "fallbacks": dict(collections.Counter(line["why"] for line in lines if line.get("is") == "fallback")),
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--vllm", required=True)
    parser.add_argument("--out", required=True, type=pathlib.Path)
    parser.add_argument("--mode", default="shadow", choices=("shadow", "act"))
    parser.add_argument("--device", default="clockwork", choices=("clockwork", "pair"))
    parser.add_argument("--law", default="memory-bound.toml", help="of the clockwork device")
    parser.add_argument("--policy", default=FORESIGHT)
    parser.add_argument("--scheduler", default="foretoken.vllm.Scheduler")
    parser.add_argument("--most", type=int, default=4, help="num_speculative_tokens; 0 for a server that does not speculate")
    parser.add_argument("--table", default="", help="the user's own table of lengths, as JSON")
    parser.add_argument("--asynchronous", action="store_true")
    parser.add_argument("--seconds", type=float, default=20.0, help="for each number of clients")
    parser.add_argument("--clients", default="2,8", help="numbers of clients, one after the other")
    parser.add_argument("--port", type=int, default=8411)
    parser.add_argument("--metrics", default=8412, help="FORETOKEN_METRICS_PORT")
    parser.add_argument("--log", default="", help="FORETOKEN_LOG, if not in DIR")
    parser.add_argument("more", nargs="*", help="further flags of vllm serve, behind --")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    line, env = command(args)
    url = f"http://127.0.0.1:{args.port}"
    if answers(url):
        sys.exit(f"port {args.port} is in use")
    log = open(args.out / "server.log", "ab")
    process = subprocess.Popen(line, env=env, stdout=log, stderr=subprocess.STDOUT, start_new_session=True)
    try:
        end = time.time() + 400
        while not answers(url):
            if process.poll() is not None or time.time() > end:
                sys.exit(f"the server does not start: see {args.out}/server.log")
            time.sleep(0.5)
        for clients in map(int, args.clients.split(",")):
            done, tokens, took = drive(url, clients, args.seconds)
            print(f"{clients} clients: {done} requests, {tokens} tokens, {tokens / took:.1f} tokens/s", flush=True)
        try:
            text = urllib.request.urlopen(f"http://127.0.0.1:{args.metrics}/metrics", timeout=5).read()
            (args.out / "metrics.txt").write_bytes(text)
        except (OSError, ValueError) as error:
            print("no metrics:", error)
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        log.close()
    said = [line for line in (args.out / "server.log").read_text().splitlines() if "Foretoken" in line]
    print("\n".join(said))
    if (args.out / "seat.jsonl").exists():
        print(json.dumps(summary(args.out / "seat.jsonl"), indent=1))


if __name__ == "__main__":
    main()
