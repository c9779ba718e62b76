"""Gives exports to the parsers and schemas of their readers, and records what these read.

    FORETOKEN_EXPORTS_TO=texts cargo test --release -p foretoken exports_are_those_that_were_checked
    python check.py texts SGLANG_WHEEL_FOLDER VLLM_TREE LLM_D_CHART_FOLDER AICONFIGURATOR_WHEEL_FOLDER

The folders are sglang 0.5.23's and aiconfigurator 0.12.0's wheels, unpacked; vllm 0.33.0's source; and
charts/llm-d-modelservice (v0.4.12) of llm-d-incubation/llm-d-modelservice. Needs jsonschema, msgspec and PyYAML. The
result is checked.json. A unit test compares its texts with what the program exports.

SGLang: its own argument parser reads the flags, its own functions the file. vLLM: its own function reads the table;
keys and method are compared with the fields of its SpeculativeConfig, as the class itself wants torch. llm-d: the
chart's JSON schema. Dynamo: AIConfigurator's typed model of the resource, which keeps what it does not know apart.
TensorRT-LLM: its classes want a GPU build, so no parser has read these; the unit test of the export reads the
schedule by each release's documented rule.
"""

import argparse
import ast
import importlib.util
import json
import shlex
import sys
from pathlib import Path

import jsonschema
import yaml

sys.path.insert(0, str(Path(__file__).parent.parent / "policies"))
import released

released.RELEASED |= {
    "sglang.srt.arg_groups.arg_utils",
    "sglang.srt.arg_groups.choices",
    "sglang.srt.arg_groups.fields.spec",
}


def sglang(flags: str, folder: Path) -> dict:
    spec = released.module("srt.arg_groups.fields.spec").Spec
    parser = argparse.ArgumentParser()
    released.module("srt.arg_groups.arg_utils").add_cli_args_from_dataclass(parser, spec)
    defaults, given = vars(parser.parse_args([])), vars(parser.parse_args(shlex.split(flags)))
    read = {key: value for key, value in given.items() if value != defaults[key]}
    if file := read.get("speculative_adaptive_config"):
        adaptive = released.module("srt.speculative.adaptive_spec_params")
        steps = adaptive.resolve_candidate_steps_from_config(cfg_path=str(folder / file))
        assert read["speculative_num_steps"] in steps, steps
        read["candidate_steps"] = steps
    return read


def vllm(config: dict, tree: Path) -> dict:
    source = ast.parse((tree / "vllm/config/speculative.py").read_text())
    classes = {node.name: node for node in source.body if isinstance(node, ast.ClassDef)}
    fields = {n.target.id for n in classes["SpeculativeConfig"].body if isinstance(n, ast.AnnAssign)}
    assert set(config) <= fields, set(config) - fields
    words = {node.value for node in ast.walk(source) if isinstance(node, ast.Constant) and isinstance(node.value, str)}
    assert config["method"] in words, config["method"]
    at = tree / "vllm/v1/spec_decode/dynamic/utils.py"
    spec = importlib.util.spec_from_file_location("dynamic_utils", at)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    table, most = config["num_speculative_tokens_per_batch_size"], 64
    dense = module.build_dynamic_sd_schedule_lookup(table, most, config["num_speculative_tokens"])
    return {"lengths_of_1_to_64": list(dense[1:])}


def flag(words: list, name: str):
    return json.loads(words[words.index(name) + 1])


def main() -> None:
    texts, wheel, tree, chart, aic = map(Path, sys.argv[1:6])
    released.install(wheel)
    schema = json.loads((chart / "values.schema.json").read_text())
    sys.path.insert(0, str(aic))
    checked = {}
    for file in sorted(texts.iterdir()):
        text, name = file.read_text(), file.name
        if name == "spec.json":
            by, read = "SGLang 0.5.23: with the flags that name it", None
        elif name.startswith("sglang"):
            by, read = "SGLang 0.5.23: its argument parser and resolve_candidate_steps_from_config", sglang(text, texts)
        elif name.startswith("vllm"):
            by = "vLLM 0.33.0: build_dynamic_sd_schedule_lookup, fields of SpeculativeConfig"
            read = vllm(json.loads(text), tree)
        elif name.startswith("llm-d"):
            values = yaml.safe_load(text)
            jsonschema.validate(values, schema)
            args = values["decode"]["containers"][0]["args"]
            by, read = "llm-d-modelservice v0.4.12: values.schema.json", vllm(flag(args, "--speculative-config"), tree)
        elif name.startswith("dynamo"):
            from aiconfigurator.generator.builders import dgd_model

            graph = yaml.safe_load(text)
            parts = list(graph["spec"]["services"].values())
            for part in parts:
                typed = dgd_model.DGDService.from_dict(part)
                assert not typed.extra and not typed.extra_pod_spec.extra, typed
                assert not typed.extra_pod_spec.main_container.extra, typed
            args = parts[1]["extraPodSpec"]["mainContainer"]["args"]
            by, read = "aiconfigurator 0.12.0: DGDService", vllm(flag(args, "--speculative-config"), tree)
        else:
            by, read = "no parser: TensorRT-LLM's classes want a GPU build", yaml.safe_load(text)
        checked[name] = {"by": by, "read": read, "text": text}
    out = Path(__file__).parent / "checked.json"
    out.write_text(json.dumps(checked, indent=1, default=str) + "\n")
    print(f"{len(checked)} exports")


if __name__ == "__main__":
    main()
