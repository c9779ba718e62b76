"""The JSON schema of experiments: shipped experiments and every policy's defaults satisfy it, and what the program
refuses does not."""

import json
import math
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

HOME = Path(__file__).parents[2] / "experiments"
SCHEMA = json.loads((HOME / "experiment.schema.json").read_text())
SMALL = """name = "small"
seeds = [1, 2]
policies = [{ fixed = { k = { sweep = [1, 3] } } }, { adaspec = {} }, { oracle-goodput = {} }]
hardware.target = { linear = { alpha_s = 0.3e-6, gamma_s = 55e-6, delta_s = 11e-3 } }
hardware.draft = { linear = { alpha_s = 0.0, gamma_s = 5e-6, delta_s = 1e-3 } }
engine.max_num_seqs = { sweep = [8, 64] }
acceptance.source = { constant = { rate = 0.7 } }
output.steps = true
[workload]
arrivals = { poisson = { rate = 4.0 } }
lengths = { fixed = { prompt = 128, output = 64 } }
requests = 200
[slo]
adaspec-scale = 1.0
"""


def finite(value):
    """Replaces infinite numbers by finite ones, because TOML has infinity and JSON does not."""
    if isinstance(value, float) and math.isinf(value):
        return math.copysign(1e308, value)
    if isinstance(value, list):
        return [finite(v) for v in value]
    return {k: finite(v) for k, v in value.items()} if isinstance(value, dict) else value


def faults(value, schema=SCHEMA):
    """Every violation of the schema, with its place and reason."""
    found = Draft202012Validator(schema).iter_errors(finite(value))
    return [f"{'.'.join(map(str, e.absolute_path))}: {e.message}" for e in found]


def program(*args):
    return subprocess.run([sys.executable, "-m", "foretoken", *args], capture_output=True, text=True)


def test_the_schema_is_one():
    assert SCHEMA["$schema"].endswith("2020-12/schema")
    Draft202012Validator.check_schema(SCHEMA)


@pytest.mark.parametrize("folder, line", [
    ("", "#:schema experiment.schema.json"),
    ("papers", "#:schema ../experiment.schema.json"),
    ("arena", "#:schema ../experiment.schema.json"),
])
def test_every_shipped_experiment_satisfies_it_and_names_it(folder, line):
    paths = [p for p in sorted((HOME / folder).glob("*.toml")) if p.name != "Cargo.toml"]
    assert len(paths) > 5
    for path in paths:
        text = path.read_text()
        assert line in text.splitlines(), f"{path} does not name its schema: {line}"
        assert faults(tomllib.loads(text)) == [], path


def test_every_preset_satisfies_it():
    policy = {"$schema": SCHEMA["$schema"], "$ref": "#/$defs/Policy", "$defs": SCHEMA["$defs"]}
    listed = json.loads(program("policies", "list", "--format", "json").stdout)
    assert len(listed) > 20
    for described in listed:
        for given in (described["settings"], {described["name"]: {}}):
            assert faults(given, policy) == [], given


@pytest.mark.parametrize("before, after", [
    ("max_num_seqs", "max_num_seq"),
    ("[slo]", "[sol]"),
    ("k = {", "length = {"),
    ("delta_s = 11e-3", "delta = 11e-3"),
    ("requests = 200", 'requests = "many"'),
    ("requests = 200", "requests = -1"),
    ("seeds = [1, 2]", "seeds = 3"),
    ("seeds = [1, 2]", "seeds = { sweep = [1, 2] }"),
    ("[8, 64]", "[]"),
    ("[8, 64]", '[8, "x"]'),
    ("adaspec = {}", "adaspek = {}"),
    ("constant = { rate = 0.7 }", "constant = { rate = 0.7 }, mixture = {}"),
    ("hardware.draft = {", "hardware.draught = {"),
    ("steps = true", 'steps = "yes"'),
    ('name = "small"\n', ""),
])
def test_the_schema_refuses_what_the_program_refuses(tmp_path, before, after):
    assert before in SMALL and faults(tomllib.loads(SMALL)) == []
    broken = SMALL.replace(before, after, 1)
    assert faults(tomllib.loads(broken)), f"`{after}` in place of `{before}` is let through"
    path = tmp_path / "x.toml"
    path.write_text(broken)
    assert program("run", str(path), "-o", str(tmp_path / "out")).returncode == 2
