"""A small experiment, and helpers of the tests."""

import hashlib
import sys
from pathlib import Path

import pytest

# The tests' policies can now be imported, like a user's module.
sys.path.insert(0, str(Path(__file__).parent))

EXPERIMENT = {
    "name": "small",
    "seeds": [1, 2],
    "policies": [{"autoregressive": {}}, {"fixed": {"k": 3}}],
    "hardware": {
        "target": {"linear": {"alpha_s": 3e-7, "gamma_s": 55e-6, "delta_s": 11e-3}},
        "draft": {"linear": {"alpha_s": 0.0, "gamma_s": 5e-6, "delta_s": 1e-3}},
    },
    "engine": {"max_num_seqs": 16},
    "workload": {
        "arrivals": {"poisson": {"rate": 4.0}},
        "lengths": {"fixed": {"prompt": 128, "output": 64}},
        "requests": 60,
    },
    "acceptance": {"source": {"constant": {"rate": 0.7}}},
    "output": {"steps": True},
}


@pytest.fixture
def experiment():
    return {**EXPERIMENT}


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    """Runs each test in a temporary folder."""
    monkeypatch.chdir(tmp_path)


def digests(folder):
    """Digests of all files of a results folder but `manifest.json` and `timing.js`, which hold timings."""
    files = [f for f in Path(folder).rglob("*") if f.is_file() and f.name not in ("manifest.json", "timing.js")]
    return {str(f.relative_to(folder)): hashlib.sha256(f.read_bytes()).hexdigest() for f in files}
