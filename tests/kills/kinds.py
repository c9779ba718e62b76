"""The commands that are killed: how each begins, how it goes on, and what its uninterrupted result is."""

import json
import os
import re
import shutil
import socket
import subprocess
from pathlib import Path

HERE = Path(__file__).resolve().parent
REPOSITORY = HERE.parent.parent

SIMULATED = """name = "killed"
seeds = [1, 2, 3]
policies = [{ fixed = { k = { sweep = [1, 3] } } }, { adaspec = {} }, { oracle-goodput = {} }]
[hardware]
target = { linear = { alpha_s = 0.3e-6, gamma_s = 55e-6, delta_s = 11e-3 } }
draft = { linear = { alpha_s = 0.0, gamma_s = 5e-6, delta_s = 1e-3 } }
noise_cv = 0.05
[engine]
max_num_seqs = { sweep = [8, 64] }
[workload]
arrivals = { poisson = { rate = 4.0 } }
lengths = { fixed = { prompt = 128, output = 64 } }
requests = 400
[acceptance.source]
constant = { rate = 0.7 }
[slo]
adaspec-scale = 1.0
[output]
steps = true
"""

CAPACITY = """name = "carried"
seeds = [1, 2]
policies = [{ autoregressive = {} }, { fixed = { k = { sweep = [1, 3] } } }]
[hardware]
target = { linear = { alpha_s = 1e-7, gamma_s = 2e-4, delta_s = 0.02 } }
draft = { linear = { alpha_s = 1e-8, gamma_s = 1e-5, delta_s = 0.002 } }
[engine]
num_gpu_blocks = 4000
max_num_seqs = 16
[workload]
arrivals = { poisson = { rate = 2.0 } }
lengths = { fixed = { prompt = 64, output = 32 } }
[acceptance.source]
constant = { rate = 0.7 }
[slo]
ttft_s = 0.3
tpot_s = 0.05
[capacity]
share = 0.95
requests = 400
warm_up_requests = 20
tolerance = 0.02
"""

# One client: the schedule, and with it all that is drafted and accepted, does not depend on the machine's speed.
LIVE = """name = "served"
seeds = [3]
policies = [{ autoregressive = {} }, { fixed = { k = 3 } }, { fixed = { k = 1 } }]
[hardware]
target = { linear = { alpha_s = 20e-9, gamma_s = 150e-6, delta_s = 300e-6 } }
draft = { linear = { alpha_s = 5e-9, gamma_s = 15e-6, delta_s = 40e-6 } }
[engine]
max_num_seqs = 4
max_num_batched_tokens = 64
num_gpu_blocks = 64
max_model_len = 128
prefix_caching = false
[workload]
arrivals = { closed-loop = 1 }
lengths = { fixed = { prompt = 32, output = 16 } }
requests = 12
[acceptance.source]
constant = { rate = 0.7 }
[live]
target = "tiny-target"
draft = "tiny-draft"
threads = 1
warm_up_requests = 2
"""

VALIDATE = LIVE.replace("closed-loop = 1", "poisson = { rate = 100.0 }").replace("requests = 12", "requests = 400").replace(
    "[{ autoregressive = {} }, { fixed = { k = 3 } }, { fixed = { k = 1 } }]", "[{ fixed = { k = 3 } }]") + """
[validate]
loads = [0.6]
common_load = 0.0
pieces = 1
clients = 2
service_s = 0.05
run_s = 0.05
profile_s = 0.2
[validate.tolerance]
tpot = 1e9
e2e = 1e9
completed = 1e9
steady = 1e9
repeats = 1e9
"""

OBSERVE = """name = "seen"
seeds = [1, 2]
policies = [{ fixed = { k = 3 } }]
[workload]
arrivals = { closed-loop = 2 }
lengths = { fixed = { prompt = 12, output = 8 } }
requests = 10
[observe]
warm_up_requests = 1
"""

SERVED = """name = "server"
policies = [{ fixed = { k = 3 } }]
[hardware]
target = { linear = { alpha_s = 1e-7, gamma_s = 2e-5, delta_s = 0.004 } }
draft = { linear = { alpha_s = 1e-8, gamma_s = 1e-6, delta_s = 0.0004 } }
[engine]
num_gpu_blocks = 4000
[workload]
arrivals = { closed-loop = 2 }
requests = 10
lengths = { fixed = { prompt = 12, output = 8 } }
[acceptance.source]
constant = { rate = 0.7 }
"""


class Failure(Exception):
    """A kill was survived badly."""


class Kind:
    """A command. `commands(folder)` are the processes that run at once, `resume(folder)` those that go on, in order."""

    name = ""
    experiment = SIMULATED
    # Exit codes that a whole run may have: 3 is a verdict.
    fine = (0,)
    # Do two runs differ in nothing but the manifest's timing?
    exact = True

    def __init__(self, program, place):
        self.program, self.place = str(program), Path(place)
        self.place.mkdir(parents=True)
        (self.place / "x.toml").write_text(self.experiment)
        self.prepare()

    def prepare(self):
        """Makes what the command reads."""

    def close(self):
        """Ends what `prepare` began."""

    def begin(self, out):
        """Makes the folder in which a trial begins."""

    def commands(self, out):
        return [["run", "x.toml", "-o", out]]

    def resume(self, out):
        return [["run", "x.toml", "-o", out, "--resume"]]

    def spawn(self, args, **more):
        env = dict(os.environ, **more.pop("env", {}))
        env.pop("FORETOKEN_TRACES", None)
        return subprocess.Popen([self.program, *args], cwd=self.place, env=env, stdout=subprocess.DEVNULL,
                                stderr=subprocess.PIPE, text=True, **more)

    def whole(self, args, **more):
        """Runs a command to its end. Returns its exit code and its messages."""
        process = self.spawn(args, **more)
        _, said = process.communicate(timeout=120)
        return process.returncode, said

    def must(self, args):
        code, said = self.whole(args)
        if code not in self.fine or "panicked" in said:
            raise Failure(f"`foretoken {' '.join(args)}` exits with {code}: {said}")

    def uninterrupted(self, out):
        self.begin(out)
        for args in self.commands(out):
            self.must(args)
        for args in self.finish(out):
            self.must(args)

    def finish(self, out):
        """Commands after `commands` that complete the result."""
        return []

    def go_on(self, out):
        """After a kill: completes the result."""
        for args in self.resume(out):
            self.must(args)

    def result(self, out):
        """What must be equal: every file with its bytes, but for what differs by nature."""
        return files(self.place / out)


def files(folder):
    """The bytes of every file below a folder. The manifest's timing, the seal over it, and the script that repeats it
    for the page are times, and left out."""
    found = {}
    for path in sorted(folder.rglob("*")):
        if path.is_dir():
            continue
        name, data = str(path.relative_to(folder)), path.read_bytes()
        if name == "report/timing.js":
            continue
        if name == "manifest.json":
            manifest = json.loads(data)
            for part in ("timing", "seal"):
                manifest.pop(part)
            data = json.dumps(manifest, sort_keys=True).encode()
        found[name] = data
    return found


class Sweep(Kind):
    name = "sweep"


class Shards(Kind):
    """Two shards at once, both killed at the same moment."""

    name = "sharded sweep"

    def commands(self, out):
        return [["run", "x.toml", "-o", out, "--threads", "1", "--shard", f"{i}/2"] for i in (1, 2)]

    def resume(self, out):
        return [args + ["--resume"] for args in self.commands(out)] + self.finish(out)

    def finish(self, out):
        return [["merge", out]]


class Merge(Shards):
    name = "merge"

    def prepare(self):
        for args in Shards.commands(self, "shards"):
            self.must(args)

    def begin(self, out):
        shutil.copytree(self.place / "shards", self.place / out)

    def commands(self, out):
        return [["merge", out]]

    def resume(self, out):
        return self.commands(out)

    def finish(self, out):
        return []


class Capacity(Kind):
    name = "capacity search"
    experiment = CAPACITY

    def commands(self, out):
        return [["capacity", "x.toml", "-o", out]]

    def resume(self, out):
        return [["capacity", "x.toml", "-o", out, "--resume"]]


class Calibration(Kind):
    """A calibration cannot go on: it is made again, in the place of what the killed one left."""

    name = "calibration"

    def commands(self, out):
        runs = [str(REPOSITORY / f"servers/fixtures/vllm-0.32-k{k}.obs") for k in (0, 3)]
        return [["calibrate", *runs, "-o", out]]

    def resume(self, out):
        return [args + ["--overwrite"] for args in self.commands(out)]


def facts(folder, report):
    """What does not depend on times in the results of a live or observed run: which files there are, what the manifest
    and the experiment say, and the counts of requests, tokens and drafts."""
    found = {}
    folder_files = files(folder)
    # What was observed before a kill stays beside the rest. Which figures there are depends on what was measured.
    varies = re.compile(r"\.part\d+\.obs$|^figures/")
    found["files"] = sorted(name for name in folder_files if not varies.search(name))
    found["experiment.toml"] = folder_files["experiment.toml"].decode()
    manifest = json.loads(folder_files["manifest.json"])
    found["manifest"] = {key: value for key, value in manifest.items() if key != "files"}
    found["listed"] = sorted(name for name in manifest["files"] if not varies.search(name))
    found["report"] = counts(json.loads(folder_files[report]))
    return found


# Counts of a report that a client alone at its server or device decides.
COUNTED = ("policy", "seed", "requests", "finished", "rejected", "preemptions", "sent", "answered", "ended", "recording",
           "model", "server", "order")


def counts(value):
    if isinstance(value, dict):
        kept = {k: v if k in COUNTED and not isinstance(v, (dict, list)) else counts(v) for k, v in value.items()}
        return {k: v for k, v in kept.items() if v not in ({}, [], None)}
    if isinstance(value, list):
        return [kept for kept in map(counts, value) if kept not in ({}, [], None)]
    return None


class Live(Kind):
    """A live run cannot go on: what was recorded is compared as far as it went, and the run is made again."""

    name = "live run"
    experiment = LIVE
    exact = False
    report = "live.json"

    def commands(self, out):
        return [["live", "x.toml", "-o", out]]

    def go_on(self, out):
        code, said = self.whole(["validate", out, "-o", out + "-compared"])
        if code not in (0, 2, 3) or "panicked" in said or "damaged" in said:
            raise Failure(f"what a killed run recorded cannot be compared ({code}): {said}")
        shutil.rmtree(self.place / (out + "-compared"), ignore_errors=True)
        for args in self.commands(out):
            self.must(args + ["--overwrite"])

    def result(self, out):
        return facts(self.place / out, self.report)


class Validation(Live):
    name = "validation"
    experiment = VALIDATE
    fine = (0, 3)

    def commands(self, out):
        return [["validate", "x.toml", "-o", out]]

    def result(self, out):
        found = facts(self.place / out, "manifest.json")
        # The digest of the plan covers the profile, which is measured.
        for part in ("digest", "inputs"):
            found["manifest"].pop(part)
        return found


class Observation(Kind):
    name = "observation"
    experiment = OBSERVE
    exact = False

    def prepare(self):
        (self.place / "server.toml").write_text(SERVED)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self.url = f"http://127.0.0.1:{port}"
        self.server = self.spawn(["serve", "server.toml", "--port", str(port)])
        while True:
            line = self.server.stderr.readline()
            if self.url in line:
                break
            if not line:
                raise Failure("the server did not start")
        # The pipe must not fill.
        import threading
        threading.Thread(target=self.server.stderr.read, daemon=True).start()

    def close(self):
        self.server.kill()
        self.server.wait()

    def commands(self, out):
        return [["observe", self.url, "x.toml", "-o", out]]

    def resume(self, out):
        return [args + ["--resume"] for args in self.commands(out)]

    def result(self, out):
        return facts(self.place / out, "observed.json")


KINDS = [Sweep, Shards, Merge, Capacity, Live, Validation, Observation, Calibration]
