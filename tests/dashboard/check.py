#!/usr/bin/env python3
"""Runs every query of `docs/grafana.json` against a Prometheus that scrapes `foretoken serve`, and a seat's metrics that
this script makes up. Each must give a number.

    apt-get install prometheus
    cargo build --release --features observe
    tests/dashboard/check.py target/release/foretoken

Not a part of `.ci/run`, because it needs a package of 80 MB. CI holds the file against `make.py` (`test_grafana.py`).
"""

import concurrent.futures
import importlib.util
import json
import math
import pathlib
import socket
import subprocess
import sys
import tempfile
import time
import urllib.parse
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parents[2]


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def get(url):
    with urllib.request.urlopen(url, timeout=10) as answer:
        return answer.read()


def ask(url, number):
    body = {"model": "x", "prompt": "word " * 50 + str(number % 4), "max_tokens": 40, "stream": False}
    served = json.loads(get(f"{url}/v1/models"))["data"][0]["id"]
    data = json.dumps({**body, "model": served}).encode()
    request = urllib.request.Request(f"{url}/v1/completions", data, {"Content-Type": "application/json"})
    urllib.request.urlopen(request, timeout=60).read()


def until(what, seconds=30):
    for _ in range(seconds * 10):
        try:
            return what()
        except OSError:
            time.sleep(0.1)
    sys.exit("a server does not start")


def seat():
    """The metrics of a policy in vLLM's scheduler."""
    spec = importlib.util.spec_from_file_location("metrics", ROOT / "python/python/foretoken/seated/metrics.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.Metrics(4)


def steps(metrics):
    """Some steps of a seat, one without the policy."""
    for length in (1, 3, 4):
        metrics.used.observe(length)
        metrics.theirs.observe(4)
        metrics.accepted.add(length / 2)
        metrics.expected.add(length / 2.1)
        metrics.decisions.observe(2e-5)
    metrics.gain.set(1.1)
    metrics.fallbacks.add(1, "slow")


def main(program):
    served, scraper = free_port(), free_port()
    metrics = seat()
    seated = metrics.serve(0, sys.exit)
    url = f"http://127.0.0.1:{served}"
    with tempfile.TemporaryDirectory() as folder:
        config = pathlib.Path(folder) / "prometheus.yml"
        config.write_text(
            "global: { scrape_interval: 1s }\n"
            "scrape_configs: [{ job_name: vllm, static_configs: "
            f"[{{ targets: ['127.0.0.1:{served}', '127.0.0.1:{seated}'] }}] }}]\n"
        )
        serve = subprocess.Popen([program, "serve", str(ROOT / "experiments/serve.toml"), "--port", str(served)])
        prometheus = subprocess.Popen(
            ["prometheus", f"--config.file={config}", f"--storage.tsdb.path={folder}/data",
             f"--web.listen-address=127.0.0.1:{scraper}", "--log.level=error"]
        )
        try:
            until(lambda: get(f"{url}/health"))
            until(lambda: get(f"http://127.0.0.1:{scraper}/-/ready"))
            begin = time.time()
            with concurrent.futures.ThreadPoolExecutor(8) as pool:
                number = 0
                while time.time() - begin < 15:
                    steps(metrics)
                    list(pool.map(lambda i: ask(url, i), range(number, number + 8)))
                    number += 8
                # Ask while the last rates are still fresh.
                return queries(f"http://127.0.0.1:{scraper}")
        finally:
            for process in (serve, prometheus):
                process.terminate()
                process.wait()


def queries(prometheus):
    dashboard = json.loads((ROOT / "docs/grafana.json").read_text())
    wrong = 0
    for panel in dashboard["panels"]:
        for target in panel["targets"]:
            expression = target["expr"].replace("$__rate_interval", "10s").replace("$model", ".*")
            for variable in dashboard["templating"]["list"]:
                if variable["type"] == "textbox":
                    expression = expression.replace(f"${variable['name']}", variable["query"])
            query = urllib.parse.urlencode({"query": expression})
            found = json.loads(get(f"{prometheus}/api/v1/query?{query}"))["data"]["result"]
            values = [float(series["value"][1]) for series in found]
            good = bool(values) and all(math.isfinite(value) for value in values)
            wrong += not good
            print(f"{'ok   ' if good else 'WRONG'} {panel['title']:<36} {[round(v, 4) for v in values]}")
    return wrong


if __name__ == "__main__":
    sys.exit(1 if main(sys.argv[1]) else 0)
