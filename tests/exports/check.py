"""Gives exports to the parsers and schemas of their readers, and records what these read.

    FORETOKEN_EXPORTS_TO=texts cargo test --release -p foretoken exports_are_those_that_were_checked
    PYTHONPATH=VLLM_TREE python check.py texts SGLANG_WHEEL_FOLDER LLM_D_CHART_FOLDER AICONFIGURATOR_WHEEL_FOLDER

VLLM_TREE is vllm 0.33.0's source, and python that of `tests/vllm/README.md`, in which it runs. The folders are
sglang 0.5.23's and aiconfigurator 0.12.0's wheels, unpacked; and charts/llm-d-modelservice (v0.4.12) of
llm-d-incubation/llm-d-modelservice. The result is checked.json. A unit test compares its texts with what the program
exports.

vLLM: the parser of `vllm serve` reads the line, EngineArgs makes the whole configuration with its SpeculativeConfig,
and its own function reads the table. Models are folders that hold a small `config.json`; nothing is loaded. SGLang: its
own argument parser reads the flags, its own functions the file. llm-d: the chart's JSON schema, and its line as
vLLM's. Dynamo: AIConfigurator's typed model of the resource, which keeps what it does not know apart, and its line as
vLLM's. TensorRT-LLM: its classes want a GPU build, so no parser has read these; the unit test of the export reads the
schedule by each release's documented rule.
"""

import argparse
import itertools
import json
import logging
import os
import shlex
import sys
import tempfile
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


def vllm(line: list) -> dict:
    """What vLLM makes of the arguments `line` of `vllm serve`."""
    from vllm.engine.arg_utils import EngineArgs
    from vllm.entrypoints.common.cli_args import make_arg_parser
    from vllm.utils.argparse_utils import FlexibleArgumentParser
    from vllm.v1.spec_decode.dynamic.utils import build_dynamic_sd_schedule_lookup

    line = [*line, "--skip-tokenizer-init", "--max-num-seqs", "64"]
    given = make_arg_parser(FlexibleArgumentParser()).parse_args(line)
    made = EngineArgs.from_cli_args(given).create_engine_config().speculative_config
    table, most = made.num_speculative_tokens_per_batch_size, made.num_speculative_tokens
    dense = build_dynamic_sd_schedule_lookup(table, 64, most)[1:]
    return {
        "method": made.method,
        "num_speculative_tokens": most,
        "draft": [made.draft_model_config.model, *made.draft_model_config.architectures],
        "batches_of_a_length": [[len(list(same)), length] for length, same in itertools.groupby(dense)],
    }


SMALL = {"hidden_size": 64, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2}
SMALL |= {"num_key_value_heads": 2, "vocab_size": 1000, "max_position_embeddings": 4096, "torch_dtype": "bfloat16"}
MODELS = {
    "openai/gpt-oss-120b": {"architectures": ["GptOssForCausalLM"], "model_type": "gpt_oss", "head_dim": 32},
    "lmsys/EAGLE3-gpt-oss-120b-bf16": {"architectures": ["LlamaForCausalLMEagle3"], "model_type": "llama"},
    "deepseek-ai/DeepSeek-V3.1": {
        "architectures": ["DeepseekV3ForCausalLM"],
        "model_type": "deepseek_v3",
        "num_nextn_predict_layers": 1,
    },
}


def start_vllm() -> None:
    """Writes the models' folders, so that vLLM finds them by their names."""
    os.environ |= {"VLLM_TARGET_DEVICE": "cpu", "HF_HUB_OFFLINE": "1", "VLLM_CONFIGURE_LOGGING": "0"}
    logging.disable(logging.CRITICAL)
    import vllm.config.vllm

    vllm.config.vllm.HAS_TRITON = True  # as on a machine with a GPU, on which runner V2 is the default
    folder = Path(tempfile.mkdtemp(prefix="vllm-models-"))
    for name, model in MODELS.items():
        (folder / name).mkdir(parents=True)
        (folder / name / "config.json").write_text(json.dumps(SMALL | model))
    os.chdir(folder)


def main() -> None:
    texts, wheel, chart, aic = (Path(given).resolve() for given in sys.argv[1:5])
    here = Path(__file__).resolve().parent
    released.install(wheel)
    start_vllm()
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
            target = "deepseek-ai/DeepSeek-V3.1" if "mtp" in name else "openai/gpt-oss-120b"
            by = "vLLM 0.33.0: the parser of `vllm serve`, EngineArgs and its SpeculativeConfig"
            read = vllm(["--model", target, "--speculative-config", text.strip()])
        elif name.startswith("llm-d"):
            values = yaml.safe_load(text)
            jsonschema.validate(values, schema)
            args = values["decode"]["containers"][0]["args"]
            target = ["--model", values["modelArtifacts"]["name"]]
            by, read = "llm-d-modelservice v0.4.12: values.schema.json; vLLM 0.33.0", vllm(target + args)
        elif name.startswith("dynamo"):
            from aiconfigurator.generator.builders import dgd_model

            graph = yaml.safe_load(text)
            parts = list(graph["spec"]["services"].values())
            for part in parts:
                typed = dgd_model.DGDService.from_dict(part)
                assert not typed.extra and not typed.extra_pod_spec.extra, typed
                assert not typed.extra_pod_spec.main_container.extra, typed
            args = parts[1]["extraPodSpec"]["mainContainer"]["args"]
            by, read = "aiconfigurator 0.12.0: DGDService; vLLM 0.33.0", vllm(args)
        else:
            by, read = "no parser: TensorRT-LLM's classes want a GPU build", yaml.safe_load(text)
        checked[name] = {"by": by, "read": read, "text": text}
    (here / "checked.json").write_text(json.dumps(checked, indent=1, default=str) + "\n")
    print(f"{len(checked)} exports")


if __name__ == "__main__":
    main()
