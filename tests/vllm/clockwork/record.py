#!/usr/bin/env python3
"""Observes vLLM 0.32 on a clockwork device of one law, at every draft length and load of the validation.

    record.py LAW.toml --foretoken target/release/foretoken --vllm VENV/bin/vllm --out RECORDED [--repeats 3] [--only 'k3/*']

One server a draft length, one after the other: closed loops of 12, 4 and 1 clients, and open loops at 0.3, 0.7 and 0.9
of the rate that the closed loop of 12 sustained. Complete runs are not repeated: the script can be stopped and started
again. With `--policy` there is one server, on which a policy of Foretoken decides, in folders `r0/NAME`: in vLLM's own
scheduler (`foretoken.vllm`), or with `--seat` in the executor, where it also sees confidences (`seated.py`). Give
`--open-of k3` to all servers that are to be compared in open loops: then their rates follow from the same run.
`--real-time` runs server and client with the priority of real time, which needs root: then other work on the
machine does not delay them. Without a law vLLM runs the shipped pair (`kernels/pair`) on the CPU.
"""

import argparse
import fnmatch
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import time
import urllib.request

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[2]
PAIR = ROOT / "kernels" / "pair"
LENGTHS = [0, 1, 2, 3, 5, 8]
LOADS = ["closed-12", "closed-4", "closed-1", "open-0.3", "open-0.7", "open-0.9"]
# Variants of the server. `method` is vLLM's and Foretoken's name; `more` are further flags, `settings` what the
# experiment says of them.
VARIANTS = {
    "draft-model": {"method": "draft_model"},
    "eagle": {"method": "eagle"},
    "ngram": {"method": "ngram"},
    "prefix-caching": {"method": "draft_model", "more": ["--enable-prefix-caching"], "settings": {"engine.prefix_caching": "true"}},
    "by-batch-size": {"method": "draft_model"},
}
# What the plug-in in asynchronous/ prints before it says how the server schedules.
SCHEDULES = b"clockwork platform schedules: "
# Every load has documents of its own, the same ones at every draft length.
SEEDS = {"closed-1": 101, "closed-4": 104, "closed-12": 112, "open-0.3": 203, "open-0.7": 207, "open-0.9": 209}


class Server:
    """vLLM's server with a draft length, on the device of a law."""

    def __init__(self, args, k: int) -> None:
        variant = VARIANTS[args.variant]
        executor = "seated.Seated" if args.seat else "executor.Clockwork"
        speculative = {"num_speculative_tokens": k, "method": variant["method"]}
        if args.variant == "by-batch-size":
            speculative["num_speculative_tokens_per_batch_size"] = json.loads(args.table)
        if variant["method"] == "ngram":
            speculative.update(prompt_lookup_max=4, prompt_lookup_min=2)
        else:
            speculative["model"] = str(PAIR / "draft")
        command = [args.vllm, "serve", str(PAIR / "target"), "--served-model-name", "tiny", "--port", str(args.port)]
        command += ["--enforce-eager", "--dtype", "bfloat16"]
        command += ["--distributed-executor-backend", executor] if args.law else []
        command += ["--max-model-len", "2048", "--max-num-seqs", "32", "--max-num-batched-tokens", "2048", "--block-size", "32"]
        command += ["--disable-uvicorn-access-log"] + variant.get("more", ["--no-enable-prefix-caching"])
        command += ["--async-scheduling" if args.asynchronous else "--no-async-scheduling"]
        command += ["--enable-logging-iteration-details", "--enable-per-request-metrics"]
        if k > 0:
            command += ["--per-request-spec-decode-metrics", "detailed", "--speculative-config", json.dumps(speculative)]
        if args.policy and not args.seat:
            command += ["--scheduler-cls", "foretoken.vllm.Scheduler"]
        env = dict(
            os.environ,
            PYTHONPATH=os.pathsep.join(
                [str(HERE)] + ([str(HERE / "asynchronous")] if args.asynchronous else []) + [os.environ.get("PYTHONPATH", "")]
            ),
            CLOCKWORK_LAW=str(args.law.resolve()) if args.law else "",
            CLOCKWORK_TRUTH=str(args.out.resolve() / f"truth-{name(args, k)}.csv"),
            CLOCKWORK_SEAT=str(args.seat),
            CLOCKWORK_POLICY=args.policy,
            FORETOKEN_POLICY=args.policy,
            FORETOKEN_MODE="act",
            FORETOKEN_COSTS=str(args.costs.resolve()) if args.costs else "",
            FORETOKEN_LOG=str(args.out.resolve() / f"seat-{name(args, k)}.jsonl"),
            VLLM_CPU_KVCACHE_SPACE="1",
            VLLM_CPU_OMP_THREADS_BIND="0",
            OMP_NUM_THREADS="1",
            HF_HUB_OFFLINE="1",
            VLLM_NO_USAGE_STATS="1",
            VLLM_LOGGING_CONFIG_PATH=str(ROOT / "experiments" / "vllm-logging.json"),
        )
        # With this variable vLLM takes its own CPU platform, which schedules synchronously, and no plug-in.
        env.pop("VLLM_TARGET_DEVICE", None)
        if not args.asynchronous:
            env["VLLM_TARGET_DEVICE"] = "cpu"
        self.log_path = args.out / f"{name(args, k)}.log"
        self.url = f"http://127.0.0.1:{args.port}"
        if self.answers():
            sys.exit(f"port {args.port} is in use: end what listens there, or name another --port")
        self.log = open(self.log_path, "ab")
        before = self.log_path.stat().st_size
        self.process = subprocess.Popen(args.first + command, env=env, stdout=self.log, stderr=subprocess.STDOUT, start_new_session=True)
        end = time.time() + 300
        while not self.answers():
            if self.process.poll() is not None:
                sys.exit(f"the server ended as it started: see {self.log_path}")
            if time.time() > end:
                self.stop()
                sys.exit(f"the server does not answer after 300 s: see {self.log_path}")
            time.sleep(0.5)
        said = [line for line in self.log_path.read_bytes()[before:].splitlines() if SCHEDULES in line]
        wanted = [b"asynchronous"] if args.asynchronous else []
        if sorted({line.split(SCHEDULES)[1].strip() for line in said}) != wanted:
            self.stop()
            sys.exit(f"the server does not schedule as asked: {self.log_path} says {said or 'nothing of the plug-in in asynchronous/'}")

    def answers(self) -> bool:
        try:
            urllib.request.urlopen(self.url + "/health", timeout=2).read()
            return True
        except OSError:
            return False

    def stop(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(60)
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
        self.log.close()


def name(args, k: int) -> str:
    """The name of a server: its draft length, or its policy."""
    return next(iter(json.loads(args.policy))) if args.policy else f"k{k}"


def complete(folder: pathlib.Path) -> bool:
    try:
        return json.loads((folder / "manifest.json").read_text())["complete"]
    except (OSError, ValueError, KeyError):
        return False


def cell(folder: pathlib.Path) -> dict:
    """The numbers of an observed run."""
    return json.loads((folder / "observed.json").read_text())["cells"][0]


def observe(args, server: Server, folder: pathlib.Path, k: int, load: str, repeat: int, rate: float) -> None:
    variant = VARIANTS[args.variant]
    policy = "[{ autoregressive = {} }]" if k == 0 else "[{ fixed = { k = %d } }]" % k
    if args.policy:
        settings = ", ".join(f"{key} = {json.dumps(value)}" for key, value in json.loads(args.policy)[name(args, k)].items())
        policy = "[{ %s = { %s } }]" % (name(args, k), settings)
    if args.variant == "by-batch-size":
        policy = "[{ vllm-dynamic = { num_speculative_tokens_per_batch_size = %s } }]" % args.table
    kind, amount = load.split("-")
    arrivals = "{ closed-loop = %s }" % amount if kind == "closed" else "{ poisson = { rate = %.4f } }" % (rate * float(amount))
    shutil.rmtree(folder, ignore_errors=True)
    folder.parent.mkdir(parents=True, exist_ok=True)
    sets = {
        "policies": policy,
        "workload.arrivals": arrivals,
        "seeds": "[%d]" % (SEEDS[load] + 1000 * repeat),
        "observe.run_s": args.run_s,
        "engine.async_scheduling": str(args.asynchronous).lower(),
        "engine.method": variant["method"].replace("_", "-"),
        **({"engine.seated": "true"} if args.policy and not args.seat else {}),
        **variant.get("settings", {}),
    }
    command = [args.foretoken, "observe", server.url, str(HERE / "workload.toml"), "--step-log", str(server.log_path), "-o", str(folder), "--no-figures"]
    for key, value in sets.items():
        command += ["--set", f"{key}={value}"]
    subprocess.run(args.first + command, check=True, stdout=subprocess.DEVNULL)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("law", type=pathlib.Path, nargs="?", help="of the device; without one the shipped pair runs on the CPU")
    parser.add_argument("--foretoken", required=True)
    parser.add_argument("--vllm", required=True)
    parser.add_argument("--out", required=True, type=pathlib.Path)
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--only", default="*", help="cells as k3/closed-12, with wildcards")
    parser.add_argument("--variant", choices=VARIANTS, default="draft-model", help="what the server does besides the law")
    parser.add_argument("--table", default="[[1, 2, 3], [3, 6, 2], [7, 32, 1]]", help="of by-batch-size: [first, last, K]")
    parser.add_argument("--lengths", default=LENGTHS, type=lambda text: [int(k) for k in text.split(",")], help="such as 0,1,3")
    parser.add_argument("--run-s", type=float, default=20.0)
    parser.add_argument("--asynchronous", action="store_true", help="asynchronous scheduling (see asynchronous/)")
    parser.add_argument("--real-time", action="store_true", help="the priority of real time for server and client; needs root")
    parser.add_argument("--policy", default="", help='a policy of Foretoken that decides, such as {"foresight": {}}')
    parser.add_argument("--seat", type=pathlib.Path, help="the program of a policy in the executor: target/release/examples/seat")
    parser.add_argument("--costs", type=pathlib.Path, help="profile.toml, for a policy in the scheduler; default: it learns costs")
    parser.add_argument("--longest", type=int, default=8, help="the most drafts of that policy")
    parser.add_argument("--open-of", default="", help="the server whose closed loop of 12 sets the rates of open loops, such as k3")
    parser.add_argument("--port", type=int, default=8123)
    args = parser.parse_args()
    if args.seat and not args.policy:
        parser.error("--seat needs a --policy")
    if args.costs and (args.seat or not args.policy):
        parser.error("--costs are for a --policy in the scheduler")
    if args.seat and args.asynchronous:
        parser.error("a policy in the executor needs synchronous scheduling: leave out --asynchronous")
    args.first = ["chrt", "-f", "20"] if args.real_time else []
    args.out.mkdir(parents=True, exist_ok=True)
    for k in [args.longest] if args.policy else args.lengths:
        server_name = name(args, k)
        cells = [(repeat, load, args.out / f"r{repeat}" / server_name / load) for repeat in range(args.repeats) for load in LOADS]
        due = [at for at in cells if not complete(at[2]) and fnmatch.fnmatch(f"{server_name}/{at[1]}", args.only)]
        if not due:
            continue
        server = Server(args, k)
        try:
            for repeat, load, folder in due:
                full = args.out / f"r{repeat}" / (args.open_of or server_name) / "closed-12"
                if load.startswith("open") and not complete(full):
                    sys.exit(f"the rate of {folder} follows from {full}, which is not recorded")
                rate = cell(full)["answered_req_s"] if load.startswith("open") else 0.0
                observe(args, server, folder, k, load, repeat, rate)
                numbers = cell(folder)
                print(time.strftime("%H:%M:%S"), folder, "%.3f req/s, %.1f tok/s" % (numbers["answered_req_s"], numbers["answered_tok_s"]), flush=True)
        finally:
            server.stop()


if __name__ == "__main__":
    main()
