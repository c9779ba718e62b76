#!/usr/bin/env python3
"""Keeps a `foretoken serve` under load and prints its memory minute by minute.

    tests/long/serve.py --minutes 10 --clients 32

The load: streamed completions, chats, answers that clients break off, and wrong requests. The memory at the end must
not be above that after the first minute by more than a tenth.
"""

import argparse
import http.client
import json
import random
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent.parent

SERVED = """name = "loaded"
policies = [{ smartspec = {} }]
[hardware]
target = { linear = { alpha_s = 1e-8, gamma_s = 2e-6, delta_s = 0.002 } }
draft = { linear = { alpha_s = 1e-9, gamma_s = 1e-7, delta_s = 0.0002 } }
[engine]
num_gpu_blocks = 4000
max_num_seqs = 64
[workload]
arrivals = { closed-loop = 2 }
requests = 10
lengths = { log-normal = { prompt = { mean = 200.0, sigma = 1.0, max = 1000 }, output = { mean = 60.0, sigma = 1.0, max = 400 } } }
[acceptance.source]
constant = { rate = 0.7 }
"""


def memory_mib(pid):
    fields = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    return int(fields["VmRSS"].split()[0]) / 1024


def client(port, until, rng, counts):
    while time.monotonic() < until:
        what = rng.random()
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        prompt = "".join(rng.choices("abcdefgh ", k=rng.randint(10, 4000)))
        body = {"model": "m", "max_tokens": rng.randint(1, 200), "stream": what < 0.8}
        path = "/v1/completions"
        if what < 0.5:
            body["prompt"] = prompt
        elif what < 0.9:
            path, body["messages"] = "/v1/chat/completions", [{"role": "user", "content": prompt}]
        else:
            body["max_tokens"] = -1
        try:
            connection.request("POST", path, json.dumps(body), {"content-type": "application/json"})
            answer = connection.getresponse()
            if 0.4 < what < 0.5:
                answer.read(20)  # The client breaks it off.
                counts["broken off"] += 1
            else:
                answer.read()
                counts[str(answer.status)] = counts.get(str(answer.status), 0) + 1
        except OSError as e:
            counts[type(e).__name__] = counts.get(type(e).__name__, 0) + 1
        finally:
            connection.close()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", type=Path, default=REPOSITORY / "target/release/foretoken")
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--clients", type=int, default=32)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="foretoken-serve-") as place:
        (Path(place) / "x.toml").write_text(SERVED)
        command = [args.program.resolve(), "serve", "x.toml", "--port", "0", "--served-model-name", "m"]
        server = subprocess.Popen(command, cwd=place, stderr=subprocess.PIPE, text=True)
        line = ""
        while "http://" not in line:
            line = server.stderr.readline()
        port = int(line.split("http://127.0.0.1:")[1].split("/")[0])
        threading.Thread(target=server.stderr.read, daemon=True).start()
        counts, until = {"broken off": 0}, time.monotonic() + 60 * args.minutes
        clients = [threading.Thread(target=client, args=(port, until, random.Random(args.seed * 1000 + i), counts))
                   for i in range(args.clients)]
        for thread in clients:
            thread.start()
        seen = []
        while time.monotonic() < until:
            time.sleep(min(60, max(0.1, until - time.monotonic())))
            seen.append(memory_mib(server.pid))
            print(f"minute {len(seen)}: {seen[-1]:.1f} MiB, {counts}", flush=True)
        for thread in clients:
            thread.join()
        server.kill()
        server.wait()
        grown = seen[-1] / seen[0] - 1
        print(f"{sum(counts.values())} requests; memory changed by {100 * grown:+.1f} % after the first minute")
        sys.exit(1 if grown > 0.1 else 0)


if __name__ == "__main__":
    main()
