#!/usr/bin/env python3
"""Observes vLLM 0.32 for CPUs with the shipped pair at every draft length and load of this validation, repeat by repeat.

    record.py --foretoken target/release/foretoken --vllm VENV/bin/vllm --out RECORDED [--repeats 3] [--only 'k3/*']

One server a draft length, all up at once and one asked at a time: closed loops of 1, 4 and 8 clients, and open loops at 0.3 and 0.7 of the
rate that the first loop of 8 sustained. Within a repeat the draft lengths of a load follow each other, in another order each time, so that
slow changes of the machine meet all of them. The engine that is asked has core 0, everything else core 1. What is complete is not asked
again: the script can be stopped at any time and started again. Nothing else should run.

Where the machine is virtual, its host may take its cores away (steal in /proc/stat). A run during which it took more than 2 % of a core is set
aside whatever it shows (`RECORDED/stolen`), and asked again, three times at most; what the host took is in `RECORDED/steal.csv`.

`--repeats 6 --undecided` asks again, up to six times, where repeats do not lie within 5 % of each other (see README.md).
"""
import argparse, fnmatch, json, os, pathlib, shutil, signal, subprocess, sys, time, urllib.request

import decided

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


def on_core(pid, core):
    """Moves all threads of a process to a core."""
    for thread in os.listdir(f"/proc/{pid}/task"):
        try:
            os.sched_setaffinity(int(thread), {core})
        except ProcessLookupError:
            pass


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
        self.path, self.url, self.process = log, f"http://127.0.0.1:{port}", None
        if self.answers():
            return
        self.log = open(log, "ab")
        self.process = subprocess.Popen(command, env=env, stdout=self.log, stderr=subprocess.STDOUT, start_new_session=True)

    def answers(self):
        try:
            urllib.request.urlopen(self.url + "/health", timeout=2).read()
            return True
        except OSError:
            return False

    def ready(self):
        """Waits until it answers; then its front end gets out of the engine's way. One that was up before is left as it is."""
        if self.process is None:
            return None
        end = time.time() + 600
        while time.time() < end:
            if self.process.poll() is not None:
                sys.exit(f"the server ended as it started: {self.path}")
            if self.answers():
                return on_core(self.process.pid, 1)
            time.sleep(1)
        self.stop()
        sys.exit(f"the server does not start: {self.path}")

    def stop(self):
        if self.process is None:
            return
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(60)
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
        self.log.close()


STOLEN = 0.02
ATTEMPTS = 3


def taken():
    """Ticks that the host took of each core since it started, and all."""
    with open("/proc/stat") as file:
        cores = [list(map(int, line.split()[1:9])) for line in file if line[:3] == "cpu" and line[3].isdigit()]
    return [(core[7], sum(core)) for core in cores]


def share(before, after):
    """The largest share of a core that the host took."""
    return max((b[0] - a[0]) / max(1, b[1] - a[1]) for a, b in zip(before, after))


def wait_for_quiet(seconds=60):
    """Until the host takes nothing for two seconds, or so long."""
    end = time.time() + seconds
    while time.time() < end:
        before = taken()
        time.sleep(2)
        if share(before, taken()) <= STOLEN:
            return


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
    p.add_argument("--undecided", action="store_true", help="after three repeats, only where these are not within 5 %% of each other")
    p.add_argument("--port", type=int, default=8123)
    a = p.parse_args()
    a.out.mkdir(parents=True, exist_ok=True)
    rates_path = a.out / "rates.json"
    rates = json.loads(rates_path.read_text()) if rates_path.exists() else {}
    # The loop of 8 comes first: it gives the rate of the open loops.
    loads = [f"closed-{n}" for n in reversed(CLOSED)] + [f"open-{x}" for x in OPEN]
    at = lambda repeat, k, load: a.out / f"r{repeat}" / f"k{k}" / load

    def due(repeat, k, load):
        folder = at(repeat, k, load)
        if complete(folder) or not fnmatch.fnmatch(f"k{k}/{load}", a.only):
            return False
        before = [at(r, k, load) for r in range(repeat)]
        return not (a.undecided and repeat >= 3 and decided.decided([decided.numbers(f) for f in before if complete(f)]))

    # What is decided after three repeats is known only then: the later ones are looked through one by one.
    if not any(due(r, k, load) for r in range(a.repeats) for k in LENGTHS for load in loads):
        return
    os.sched_setaffinity(0, {1})
    log = lambda k: a.out / f"k{k}.log"
    servers = {k: Server(a.vllm, k, log(k), a.port + k) for k in LENGTHS if fnmatch.fnmatch(f"k{k}/x", a.only.split("/")[0] + "/*")}
    try:
        for server in servers.values():
            server.ready()
        for repeat in range(a.repeats):
            for load in loads:
                for k in order(repeat):
                    if not due(repeat, k, load):
                        continue
                    folder = at(repeat, k, load)
                    folder.parent.mkdir(parents=True, exist_ok=True)
                    for attempt in range(ATTEMPTS):
                        wait_for_quiet()
                        before = taken()
                        observe(a.foretoken, servers[k], log(k), folder, k, load, rates.get(str(k), 0.0), a.run_s)
                        stolen = share(before, taken())
                        with open(a.out / "steal.csv", "a") as file:
                            file.write(f"r{repeat},k{k}/{load},{attempt},{stolen:.4f}\n")
                        if load == "closed-8" and (stolen <= STOLEN or attempt + 1 == ATTEMPTS) and str(k) not in rates:
                            rates[str(k)] = rate_of(folder)
                            rates_path.write_text(json.dumps(rates, indent=1) + "\n")
                        if stolen <= STOLEN:
                            break
                        aside = a.out / "stolen" / f"r{repeat}-k{k}-{load}-{time.strftime('%H%M%S')}"
                        aside.parent.mkdir(exist_ok=True)
                        folder.rename(aside)
                    if folder.exists():
                        print(time.strftime("%H:%M:%S"), folder, "%.3f req/s" % rate_of(folder), flush=True)
    finally:
        for server in servers.values():
            server.stop()


main()
