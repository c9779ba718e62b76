#!/usr/bin/env python3
"""Observes vLLM 0.32 for CPUs with the shipped pair at every draft length and load of this validation, repeat by repeat.

    record.py --foretoken target/release/foretoken --vllm VENV/bin/vllm --out RECORDED [--repeats 3] [--only 'k3/*']

A repeat starts one server a draft length and asks it in closed loops of 1, 4 and 8 clients and in open loops at 0.3 and 0.7 of the rate
that the first repeat's loop of 8 sustained. Draft lengths change from repeat to repeat in another order, so that slow changes of the
machine meet all of them. What is complete is not asked again: the script can be stopped at any time and started again. Nothing else
should run.
"""
import argparse, fnmatch, json, os, pathlib, shutil, signal, subprocess, sys, time, urllib.request

HERE = pathlib.Path(__file__).resolve().parent
PAIR = HERE.parents[2] / "kernels" / "pair"
LENGTHS = [0, 1, 2, 3, 5]
CLOSED = [1, 4, 8]
OPEN = [0.3, 0.7]
# Every load has documents of its own, the same ones at every draft length.
SEEDS = {"closed-1": 101, "closed-4": 104, "closed-8": 108, "open-0.3": 203, "open-0.7": 207}


def order(repeat):
    """The draft lengths of a repeat: forwards, backwards, from the middle."""
    return {0: LENGTHS, 1: LENGTHS[::-1], 2: LENGTHS[2:] + LENGTHS[:2]}[repeat % 3]


class Server:
    def __init__(self, vllm, k, log, port):
        speculative = {"model": str(PAIR / "draft"), "num_speculative_tokens": k, "method": "draft_model"}
        command = [vllm, "serve", str(PAIR / "target"), "--served-model-name", "tiny", "--port", str(port),
                   "--max-model-len", "512", "--max-num-seqs", "8", "--max-num-batched-tokens", "256", "--block-size", "32",
                   "--enforce-eager", "--dtype", "bfloat16", "--no-enable-prefix-caching", "--no-async-scheduling",
                   "--enable-logging-iteration-details", "--enable-per-request-metrics", "--disable-uvicorn-access-log"]
        if k > 0:
            command += ["--per-request-spec-decode-metrics", "detailed", "--speculative-config", json.dumps(speculative)]
        env = dict(os.environ, VLLM_CPU_KVCACHE_SPACE="1", VLLM_CPU_OMP_THREADS_BIND="0", OMP_NUM_THREADS="1", HF_HUB_OFFLINE="1",
                   VLLM_NO_USAGE_STATS="1", VLLM_LOGGING_CONFIG_PATH=str(HERE.parents[1] / "vllm-logging.json"))
        self.log = open(log, "ab")
        self.process = subprocess.Popen(command, env=env, stdout=self.log, stderr=subprocess.STDOUT, start_new_session=True)
        self.url = f"http://127.0.0.1:{port}"
        end = time.time() + 300
        while time.time() < end:
            if self.process.poll() is not None:
                sys.exit(f"the server ended as it started: {log}")
            try:
                urllib.request.urlopen(self.url + "/health", timeout=2).read()
                return
            except OSError:
                time.sleep(1)
        self.stop()
        sys.exit(f"the server does not start: {log}")

    def stop(self):
        self.process.send_signal(signal.SIGINT)
        try:
            self.process.wait(60)
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
        self.log.close()


def complete(folder):
    try:
        return json.loads((folder / "manifest.json").read_text())["complete"]
    except (OSError, ValueError, KeyError):
        return False


def observe(foretoken, server, log, folder, k, load, rate, run_s):
    policy = "[{ autoregressive = {} }]" if k == 0 else "[{ fixed = { k = %d } }]" % k
    kind, amount = load.split("-")
    arrivals = "{ closed-loop = %s }" % amount if kind == "closed" else "{ poisson = { rate = %.4f } }" % (rate * float(amount))
    shutil.rmtree(folder, ignore_errors=True)
    subprocess.run([foretoken, "observe", server.url, str(HERE / "workload.toml"), "--step-log", str(log), "-o", str(folder), "--no-figures",
                    "--set", f"policies={policy}", "--set", f"workload.arrivals={arrivals}", "--set", f"seeds=[{SEEDS[load]}]",
                    "--set", f"observe.run_s={run_s}"],
                   check=True, stdout=subprocess.DEVNULL)


def rate_of(folder):
    """Requests a second that a closed loop sustained."""
    return json.loads((folder / "observed.json").read_text())["cells"][0]["answered_req_s"]


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--foretoken", required=True)
    p.add_argument("--vllm", required=True)
    p.add_argument("--out", required=True, type=pathlib.Path)
    p.add_argument("--repeats", type=int, default=3)
    p.add_argument("--only", default="*", help="cells as k3/closed-8, with wildcards")
    p.add_argument("--run-s", type=float, default=30.0)
    p.add_argument("--port", type=int, default=8123)
    a = p.parse_args()
    a.out.mkdir(parents=True, exist_ok=True)
    rates_path = a.out / "rates.json"
    rates = json.loads(rates_path.read_text()) if rates_path.exists() else {}
    loads = [f"closed-{n}" for n in CLOSED] + [f"open-{x}" for x in OPEN]
    for repeat in range(a.repeats):
        for k in order(repeat):
            # The loop of 8 comes first: it gives the rate of the open loops.
            ordered = sorted(loads, key=lambda l: l != "closed-8") if str(k) not in rates else loads
            cells = [(l, a.out / f"r{repeat}" / f"k{k}" / l) for l in ordered if fnmatch.fnmatch(f"k{k}/{l}", a.only)]
            cells = [(l, f) for l, f in cells if not complete(f)]
            if not cells:
                continue
            log = a.out / f"r{repeat}" / f"k{k}.log"
            log.parent.mkdir(parents=True, exist_ok=True)
            server = Server(a.vllm, k, log, a.port)
            try:
                for load, folder in cells:
                    observe(a.foretoken, server, log, folder, k, load, rates.get(str(k), 0.0), a.run_s)
                    if load == "closed-8" and str(k) not in rates:
                        rates[str(k)] = rate_of(folder)
                        rates_path.write_text(json.dumps(rates, indent=1) + "\n")
                    print(time.strftime("%H:%M:%S"), folder, flush=True)
            finally:
                server.stop()


main()
