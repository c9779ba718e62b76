"""Makes vLLM's scheduler for a workload, from vLLM's own configuration classes.

Model folders hold a `config.json` alone and are written to a temporary folder; nothing is loaded or downloaded.
If vLLM refuses the settings, `Refused` is raised with a kind; any other error is a fault of the recorder and is raised
as it is.
"""

import json
import logging
import os
import tempfile
from pathlib import Path
from types import SimpleNamespace

os.environ |= {"VLLM_TARGET_DEVICE": "cpu", "HF_HUB_OFFLINE": "1", "VLLM_CONFIGURE_LOGGING": "0"}
logging.disable(logging.CRITICAL)

import torch  # noqa: E402
import transformers  # noqa: E402
import vllm  # noqa: E402
from vllm.config import CacheConfig, ModelConfig, ParallelConfig, SchedulerConfig, SpeculativeConfig, VllmConfig  # noqa: E402
from vllm.exceptions import VLLMValidationError  # noqa: E402
from vllm.sampling_params import SamplingParams  # noqa: E402
from vllm.utils.hashing import get_hash_fn_by_name  # noqa: E402
from vllm.v1.core import kv_cache_utils  # noqa: E402
from vllm.v1.core.kv_cache_utils import get_request_block_hasher, init_none_hash  # noqa: E402
from vllm.v1.core.sched.scheduler import Scheduler  # noqa: E402
from vllm.v1.core.single_type_kv_cache_manager import register_all_kvcache_specs  # noqa: E402
from vllm.v1.engine.input_processor import InputProcessor  # noqa: E402
from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheConfig, KVCacheGroupSpec  # noqa: E402
from vllm.v1.request import Request  # noqa: E402

from workloads import Workload  # noqa: E402

transformers.PreTrainedConfig.__repr__ = object.__repr__  # printed for a log that is off; a tenth of the time
VERSION = vllm.__version__
vllm.config.vllm.HAS_TRITON = True  # else 0.32 refuses runner V2 on a machine without a GPU

try:  # moved in 0.33
    from vllm.v1.core.kv_cache_planning import check_enough_kv_cache_memory
except ImportError:
    check_enough_kv_cache_memory = kv_cache_utils.check_enough_kv_cache_memory

# Parts of vLLM's messages, and the kind under which they are recorded.
KINDS = {
    "be greater than or equal to max_num_seqs": "budget-below-seqs",
    "smaller than max_model_len": "budget-below-length",
    "cannot be greater than max_num_seqs": "active-above-seqs",
    "greater than the max_model_len": "threshold-above-length",
    "does not have enough slots": "budget-below-drafts",
    "with the model's max seq len": "pool-below-length",
    "must be divisible by": "drafts-not-divisible",
    "Multi-module MTP with prefix caching": "block-below-drafts",
    "atch-size range": "table",
    "num_speculative_tokens_per_batch_size": "table",
    "Model Runner V": "runner",
    "sync scheduling is": "async",
    "Input should be": "value",
}


class Refused(Exception):
    """Raised when vLLM refuses the settings or cannot continue. The argument is the kind of refusal."""


def refusal(error: Exception) -> Refused:
    """The kind of a vLLM error; an unknown error is raised again."""
    for part, kind in KINDS.items():
        if part in str(error):
            return Refused(kind)
    raise error


SMALL = {"hidden_size": 64, "intermediate_size": 64, "num_hidden_layers": 1, "num_attention_heads": 1, "num_key_value_heads": 1, "vocab_size": 1000}
SMALL["max_position_embeddings"] = 1 << 20
LLAMA = {"architectures": ["LlamaForCausalLM"], "model_type": "llama"} | SMALL
MODELS = {
    "target": LLAMA,
    "draft-model": LLAMA,
    "eagle": LLAMA,
    "eagle3": LLAMA,
    "dflash": {"architectures": ["DFlashDraftModel"], "model_type": "qwen3", "block_size": 16, "dflash_config": {"target_layer_ids": [0], "mask_token_id": 0}} | SMALL,
    "dspark": {"architectures": ["Qwen3DSparkModel"], "model_type": "qwen3", "block_size": 16} | SMALL,
    "dspark-fill-in": {"architectures": ["Qwen3DSparkModel"], "model_type": "qwen3", "block_size": 16, "sample_from_anchor": False} | SMALL,
}
for modules in (1, 2, 3):
    MODELS[f"mtp-{modules}"] = {"architectures": ["MiMoForCausalLM"], "model_type": "qwen2", "num_nextn_predict_layers": modules} | SMALL
FOLDERS = tempfile.TemporaryDirectory(prefix="vllm-models-")


for name, model in MODELS.items():  # all at once, before any worker is forked
    Path(FOLDERS.name, name).mkdir()
    Path(FOLDERS.name, name, "config.json").write_text(json.dumps(model))


def folder(name: str) -> str:
    """The folder of the model `name` of `MODELS`."""
    return str(Path(FOLDERS.name, name))


def speculation(work: Workload, target: ModelConfig, parallel: ParallelConfig) -> SpeculativeConfig | None:
    """vLLM's settings of the drafter."""
    if work.drafter == "none":
        return None
    settings = {"num_speculative_tokens": work.k, "target_model_config": target, "target_parallel_config": parallel}
    settings["method"] = work.drafter.replace("-", "_")
    if work.table:
        settings["num_speculative_tokens_per_batch_size"] = work.table
    if work.drafter == "ngram":
        settings |= {"model": "ngram", "prompt_lookup_max": 3, "prompt_lookup_min": 1}
    elif work.drafter == "dspark":
        settings["model"] = folder("dspark-fill-in" if work.fill_in else "dspark")
    elif work.drafter != "mtp":
        settings["model"] = folder(work.drafter)
    if work.parallel:
        settings["parallel_drafting"] = True
    return SpeculativeConfig(**settings)


def configuration(work: Workload) -> VllmConfig:
    """vLLM's whole configuration, built and checked by vLLM."""
    os.environ["VLLM_USE_V2_MODEL_RUNNER"] = str(work.runner - 1)
    target = folder(f"mtp-{work.modules}" if work.drafter == "mtp" else "target")
    model = ModelConfig(model=target, dtype="float16", seed=0, skip_tokenizer_init=True, max_model_len=work.max_model_len)
    scheduler = SchedulerConfig(
        max_num_seqs=work.max_num_seqs,
        max_num_active_seqs=work.max_num_active_seqs or None,
        max_num_batched_tokens=work.max_num_batched_tokens,
        max_model_len=work.max_model_len,
        is_encoder_decoder=False,
        enable_chunked_prefill=work.chunked,
        policy=work.policy,
        long_prefill_token_threshold=work.long_prefill_token_threshold,
        long_prefill_token_threshold_adaptive=work.adaptive,
        scheduler_reserve_full_isl=work.reserve,
        watermark=work.watermark / 1000,
        prefill_schedule_interval=work.interval,
        async_scheduling=work.asynchronous,
    )
    cache_config = CacheConfig(block_size=work.block_size, enable_prefix_caching=work.caching)
    cache_config.kv_cache_layout = "LBNHC"  # a server takes the layout that its attention kernels prefer
    parallel = ParallelConfig()
    config = VllmConfig(
        model_config=model,
        scheduler_config=scheduler,
        cache_config=cache_config,
        parallel_config=parallel,
        speculative_config=speculation(work, model, parallel),
    )
    cache_config.num_gpu_blocks = work.blocks
    scheduler.async_scheduling = work.asynchronous  # the CPU platform turns it off, after the checks
    return config


def make(work: Workload) -> Scheduler:
    """vLLM's scheduler for the workload. Raises `Refused` if vLLM does not start."""
    try:
        config = configuration(work)
        spec = FullAttentionSpec(block_size=work.block_size, num_kv_heads=1, head_size=1, dtype=torch.float32)
        if work.checked:
            check_enough_kv_cache_memory(config, {"layer": spec}, work.blocks * spec.page_size_bytes)
        register_all_kvcache_specs(config)
        blocks = KVCacheConfig(num_blocks=work.blocks, kv_cache_tensors=[], kv_cache_groups=[KVCacheGroupSpec(["layer"], spec)])
        # Replaces the grammars of structured output: it accepts every token.
        grammar = SimpleNamespace(accept_tokens=lambda request, tokens: True, validate_tokens=lambda request, tokens: tokens)
        scheduler = config.scheduler_config.get_scheduler_cls()
        return scheduler(vllm_config=config, kv_cache_config=blocks, structured_output_manager=grammar, block_size=work.block_size)
    except ValueError as error:
        raise refusal(error) from error


def derived(scheduler: Scheduler) -> dict[str, int]:
    """The values that vLLM derives from the settings."""
    config = scheduler.vllm_config
    spec = config.speculative_config
    return {
        "lookahead": scheduler.num_lookahead_tokens,
        "slots": spec.max_num_new_slots_for_drafting if spec else 0,
        "prefill_lookahead": scheduler.num_prefill_lookahead,
        "hash_lookahead": getattr(scheduler, "num_hash_lookahead_tokens", 0),
        "drop": int(scheduler.use_eagle_block_drop),
        "active": scheduler.max_num_active_reqs,
        "length": scheduler.max_model_len,
        "watermark_blocks": scheduler.kv_cache_manager.watermark_blocks,
        "can_skip": int(getattr(scheduler, "can_skip_drafts", False)),
        "table": int(scheduler.dynamic_sd_lookup is not None),
    }


def hasher(scheduler: Scheduler):
    """The engine's function that hashes blocks of tokens; None without prefix caching."""
    cache_config = scheduler.cache_config
    if not cache_config.enable_prefix_caching:
        return None
    function = get_hash_fn_by_name(cache_config.prefix_caching_hash_algo)
    init_none_hash(function)
    lookahead = getattr(scheduler, "num_hash_lookahead_tokens", 0)
    return get_request_block_hasher(cache_config.block_size, function, *([lookahead] if lookahead else []))


def prompt_refused(scheduler: Scheduler, length: int) -> bool:
    """Does vLLM's front end refuse a prompt of this length?"""
    front = SimpleNamespace(skip_prompt_length_check=False, model_config=scheduler.vllm_config.model_config, supports_mm_inputs=False)
    try:
        InputProcessor._validate_prompt_len(front, length, "decoder")
    except VLLMValidationError:
        return True
    return False


def request(work: Workload, index: int, block_hasher) -> Request:
    """Makes one request. Its first `prefix` tokens are shared by its group; the others are its own."""
    arrival = work.requests[index]
    shared = min(arrival.prefix, arrival.prompt)
    tokens = [(arrival.group << 24) + position for position in range(shared)]
    tokens += [(index + 256 << 24) + position for position in range(shared, arrival.prompt)]
    parameters = SamplingParams(ignore_eos=True, max_tokens=arrival.outputs)
    return Request(
        request_id=f"{index:04}",  # requests of equal priority and arrival are ordered by the text of the id
        prompt_token_ids=tokens,
        sampling_params=parameters,
        pooling_params=None,
        arrival_time=arrival.time / 1e6,
        priority=arrival.priority,
        block_hasher=block_hasher,
    )


def output_tokens(index: int, start: int, count: int) -> list[int]:
    """Output tokens of a request from position `start` on. Every position of every request has a different token."""
    return [(index + 256 << 24) + (1 << 22) + position for position in range(start, start + count)]
