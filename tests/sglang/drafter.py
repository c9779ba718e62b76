"""EAGLE's worker without its models: it holds the length of drafts, as SGLang's own `EAGLEWorkerV2` does.

With adaptive lengths it makes SGLang's own controller and parameters and calls them where that worker does.
"""


def without_drafter(overlap: bool) -> None:
    from sglang.srt.speculative.spec_info import SpeculativeAlgorithm

    SpeculativeAlgorithm.create_worker = lambda self, server_args: worker_class()
    if overlap:
        allow_overlap()


def allow_overlap() -> None:
    """On a CPU SGLang leaves the overlap loop when it speculates, for want of one kernel that gathers a drafter's inputs.

    This drafter reads none of them.
    """
    from sglang.srt.arg_groups import speculative_hook
    from sglang.srt.managers.overlap_utils import FutureMap

    speculative_hook._disable_overlap_schedule_for_cpu = lambda server_args: None
    FutureMap._resolve_spec_extras = lambda self, batch: None


def worker_class():
    from sglang.srt.runtime_context import get_context, get_spec
    from sglang.srt.speculative.adaptive_runtime_state import AdaptiveController, SpecRuntimeState
    from sglang.srt.speculative.adaptive_spec_params import AdaptiveSpeculativeParams
    from sglang.srt.speculative.base_spec_worker import BaseSpecWorker

    class Drafter(BaseSpecWorker):
        weight_load_time, preloaded_weights_bytes = 0.0, 0
        graph_memory_usage = graph_time_usage = property(lambda self: {})
        target_worker = property(lambda self: self.target)
        draft_worker = property(lambda self: None)
        spec_v2_attn_backends = property(lambda self: ())

        def __init__(self, server_args, gpu_id, nccl_port, target_worker):
            super().__init__()
            spec = get_spec()
            self.target, self.controller = target_worker, None
            self.speculative_num_steps = spec.speculative_num_steps
            if spec.speculative_adaptive:
                law = AdaptiveSpeculativeParams(self.speculative_num_steps, spec.speculative_adaptive_config)
                self.controller = AdaptiveController(self, law)

        def alloc_memory_pool(self, **kwargs):
            pass

        def init_hicache_draft_plan(self):
            pass

        def init_attention_backends(self):
            pass

        def prewarm_sampling(self):
            pass

        def init_cuda_graphs(self):
            if self.controller:
                self.controller.init_states(cuda_graph_bs=None)

        def build_adaptive_runtime_state(self, speculative_num_steps, speculative_num_draft_tokens, cuda_graph_bs=None):
            return SpecRuntimeState(speculative_num_steps, speculative_num_draft_tokens, None, None, None, None, None, None)

        def apply_runtime_state(self, state):
            self.speculative_num_steps = state.speculative_num_steps
            get_context().override(
                "adaptive_spec.restore",
                speculative_num_steps=state.speculative_num_steps,
                speculative_num_draft_tokens=state.speculative_num_draft_tokens,
            )

        def activate_step_by_batch(self, batch_size):
            if self.controller:
                self.controller.activate_step_by_batch(batch_size)

        def on_verify_complete_cpu(self, num_correct_drafts_per_req, batch_size=0):
            if self.controller:
                self.controller.on_verify_complete(num_correct_drafts_per_req, batch_size=batch_size)

        def forward_batch_generation(self, *args, **kwargs):
            raise NotImplementedError("device.py stands in its place")

    Drafter.__abstractmethods__ = frozenset()
    return Drafter
