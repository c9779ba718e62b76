"""Makes SGLang's own `Scheduler` in this process, over a model that has no weights and computes nothing.

Of the model runner only what loads weights or runs kernels is replaced. The KV pools, the allocator, the radix tree, the
queue, the building of batches, the processing of results and both event loops are SGLang's.
"""

import json
import os
import tempfile
from importlib.metadata import version
from pathlib import Path

from workloads import Settings

VERSION = version("sglang")
VOCABULARY, EOS = 1 << 21, 2
CONTEXT = 1 << 17
# The smallest Llama that the configuration classes accept. A KV slot takes 4 bytes.
MODEL = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_act": "silu",
    "hidden_size": 8,
    "head_dim": 1,
    "intermediate_size": 8,
    "num_attention_heads": 1,
    "num_key_value_heads": 1,
    "num_hidden_layers": 1,
    "vocab_size": VOCABULARY,
    "max_position_embeddings": CONTEXT,
    "rms_norm_eps": 1e-05,
    "torch_dtype": "bfloat16",
    "eos_token_id": EOS,
}


def model_folder() -> str:
    """A folder with the model's configuration; the models are only a `config.json`."""
    folder = Path(tempfile.gettempdir()) / f"foretoken-sglang-{os.getuid()}"
    folder.mkdir(exist_ok=True)
    written = folder / f"config.{os.getpid()}"
    written.write_text(json.dumps(MODEL))
    written.rename(folder / "config.json")
    return str(folder)


def arguments(settings: Settings, model: str) -> dict:
    """The arguments of SGLang's server, as they would stand on its command line."""
    given = dict(
        model_path=model,
        device="cpu",
        load_format="dummy",
        attention_backend="torch_native",
        sampling_backend="pytorch",
        grammar_backend="none",
        disable_cuda_graph=True,
        skip_tokenizer_init=True,
        mem_fraction_static=0.5,  # else a check of the free memory; `max_total_tokens` says how many tokens there are
        disable_overlap_schedule=not settings.overlap,
        **settings.server(),
    )
    if settings.drafts:
        given |= dict(
            speculative_algorithm="EAGLE",
            speculative_draft_model_path=model,
            speculative_num_steps=settings.drafts,
            speculative_eagle_topk=1,
            speculative_num_draft_tokens=settings.drafts + 1,
        )
    if settings.adaptive:
        table = Path(model) / f"steps.{os.getpid()}.json"
        table.write_text(json.dumps(settings.adaptive))
        given |= dict(speculative_adaptive=True, speculative_adaptive_config=str(table))
    return given


def known(given: dict, server) -> dict:
    """The arguments that this release has. One that it lacks must stand at its default."""
    lacking = set(given).difference(server.__struct_fields__)
    for name in lacking:
        if given[name] != getattr(Settings, name):
            raise ValueError(f"SGLang {VERSION} has no argument {name}")
    return {name: value for name, value in given.items() if name not in lacking}


def make(settings: Settings):
    """A scheduler that is ready for its event loop."""
    from sglang.srt import runtime_context
    from sglang.srt.managers.scheduler import Scheduler
    from sglang.srt.server_args import PortArgs, ServerArgs

    without_weights()
    if settings.drafts:
        from drafter import without_drafter

        without_drafter(settings.overlap)
    server = ServerArgs(**known(arguments(settings, model_folder()), ServerArgs))
    runtime_context.publish(server, role="scheduler", ranks=runtime_context.SpawnRanks(world_rank=0, dp_rank=None, gpu_id=0))
    scheduler = Scheduler(server, PortArgs.init_new(server))
    # `run_event_loop` sets both, then calls the loop.
    scheduler._war_barrier_enabled = False
    scheduler.schedule_stream.synchronize = lambda: None
    return scheduler


def close(scheduler) -> None:
    """Ends what a scheduler, or None, leaves in the process and in shared memory, so that another one can be made."""
    from sglang.srt.distributed import parallel_state

    if writer := getattr(scheduler, "load_snapshot_writer", None):
        writer.close()
        Path(writer.path).unlink(missing_ok=True)
    parallel_state.destroy_model_parallel()
    parallel_state.destroy_distributed_environment()


def derived(scheduler) -> dict:
    """What SGLang makes of the settings."""
    return {
        "kv_tokens": int(scheduler.max_total_num_tokens),
        "free": int(scheduler.token_to_kv_pool_allocator.available_size()),
        "page_size": int(scheduler.page_size),
        "chunked_prefill_size": scheduler.chunked_prefill_size,
        "max_prefill_tokens": int(scheduler.max_prefill_tokens),
        "max_running_requests": int(scheduler.max_running_requests),
        "max_req_len": int(scheduler.max_req_len),
        "max_req_input_len": int(scheduler.max_req_input_len),
        "schedule_policy": scheduler.policy.policy.value,
        "mixed": bool(scheduler.is_mixed_chunk),
        "overlap": bool(scheduler.enable_overlap),
        "preemption": bool(scheduler.enable_priority_preemption),
    }


def without_weights() -> None:
    import torch
    from sglang.srt.model_executor.model_runner import ModelRunner

    class Loaded:
        preloaded_weights_bytes = 0

    def load_model(self):
        self.model, self.dtype = torch.nn.Module(), self.model_config.dtype
        self.sliding_window_size, self.prefill_aware_swa = None, False
        self.weight_load_mem_usage, self.weight_load_time = 0, 0.0
        self.load_config, self.loader = None, Loaded()

    def init_attention_backends(self):
        self.prefill_attention_backend_str = self.decode_attention_backend_str = "torch_native"
        self.attn_backend = self.decode_attn_backend = self.decode_attn_backend_group = None

    def init_cuda_graphs(self, capture_decode_cuda_graph=True):
        self.graph_mem_usage = 0
        self.cuda_graph_runner = self.eager_runner = None
        self.prefill_cuda_graph_runner = self.decode_cuda_graph_runner = None

    ModelRunner.load_model = load_model
    ModelRunner.init_attention_backends = init_attention_backends
    ModelRunner.init_cuda_graphs = init_cuda_graphs
    ModelRunner.prewarm_sampling = lambda self: None
