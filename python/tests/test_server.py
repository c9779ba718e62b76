"""The commands about a real server, called from Python."""

import json
import subprocess
import sys
from pathlib import Path

import foretoken
import pytest

ROOT = Path(__file__).parents[2]
LINE = (
    "vllm serve meta-llama/Llama-3.1-8B-Instruct --max-num-seqs 64 "
    "--speculative-config '{\"method\":\"eagle3\",\"model\":\"x\",\"num_speculative_tokens\":3}'"
)


def test_an_observed_server_is_calibrated_and_advised():
    recordings = [ROOT / f"servers/fixtures/vllm-0.32-k{k}.obs" for k in (0, 3)]
    calibrated = foretoken.calibrate(*recordings, output="calibrated")
    assert calibrated["draft_lengths"] == [0, 3]
    assert "calibrated/calibration.html" in calibrated.notes
    advice = foretoken.recommend("calibrated", output="advice", objective="throughput")
    assert advice["engine"] == "vllm" and advice["now"]["name"] == "K = 3"
    assert advice["objective"]["of"] == "throughput"
    # The same answer as at the command line.
    words = ["recommend", "calibrated", "--output", "again", "--objective", "throughput", "--format", "json"]
    said = subprocess.run([sys.executable, "-m", "foretoken", *words], capture_output=True, text=True, check=False)
    assert advice == json.loads(said.stdout) and advice.trusted == (said.returncode == 0)


def test_a_line_is_answered():
    answer = foretoken.ask(LINE, gpu="h100", clients=4, input=500, output=50, accept="marginal=0.7,0.5,0.3")
    assert isinstance(answer, dict) and answer.trusted
    assert answer == foretoken.ask(LINE, gpu="h100", clients=4, input=500, output=50, accept="marginal=0.7,0.5,0.3")


def test_bad_input_says_what_the_command_line_says():
    with pytest.raises(foretoken.BadInput, match="gpu"):
        foretoken.ask(LINE, gpu="h1000", clients=4, input=500, output=50)
    with pytest.raises(foretoken.BadInput, match="nowhere"):
        foretoken.calibrate("nowhere", output="calibrated")
    with pytest.raises(foretoken.BadInput):
        foretoken.observe("ftp://127.0.0.1", "x.toml", "out")
