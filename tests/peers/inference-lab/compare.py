"""Runs Foretoken and inference-lab in turn on the same fleet and the same requests, and prints what they need.

    cargo install inference-lab --version 1.0.0 --root inference-lab
    python compare.py FORETOKEN inference-lab/bin/inference-lab [ROUNDS]
"""

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
FORETOKEN, PEER = (str(Path(name).resolve()) for name in sys.argv[1:3])
ROUNDS = int(sys.argv[3]) if len(sys.argv) > 3 else 1


def run(name: str, command: list[str]) -> tuple[float, float]:
    """Runs a command. Prints and returns its wall time and its CPU time, seconds."""
    with tempfile.TemporaryDirectory() as folder, open(Path(folder) / "log", "w+") as log:
        begun = time.monotonic()
        process = subprocess.Popen(command, cwd=folder, stdout=log, stderr=log)
        _, status, used = os.wait4(process.pid, 0)
        wall = time.monotonic() - begun
        if status != 0:
            log.seek(0)
            sys.exit(f"{' '.join(command)}: {log.read()}")
    cpu = used.ru_utime + used.ru_stime
    print(f"{name:32} wall {wall:7.2f} s   CPU {cpu:7.2f} s   memory {used.ru_maxrss / 1024:6.0f} MiB", flush=True)
    return wall, cpu


for _ in range(ROUNDS):
    run("foretoken, 3 policies", [FORETOKEN, "run", str(HERE / "foretoken.toml"), "-o", "out", "--no-figures"])
    model = (HERE / "model.toml").read_text()
    wall = cpu = 0.0
    with tempfile.TemporaryDirectory() as folder:
        for drafts in [0, 3, 5]:
            config = Path(folder) / f"{drafts}.toml"
            speculative = f'[speculative]\ngamma = {drafts}\nacceptance = {{ kind = "constant", alpha = 0.7 }}\n'
            config.write_text(model + (speculative if drafts else ""))
            command = [PEER, "-c", str(config), "-w", str(HERE / "workload.toml"), "--hardware", "h100", "-q"]
            taken = run(f"inference-lab, {drafts} drafts", command)
            wall, cpu = wall + taken[0], cpu + taken[1]
    print(f"{'inference-lab, in all':32} wall {wall:7.2f} s   CPU {cpu:7.2f} s", flush=True)
