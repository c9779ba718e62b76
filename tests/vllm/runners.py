"""Runs the released code of both model runners and their drafters over stand-ins, to test three assumptions of
`device.py`: the order in which a step samples, delivers its tokens and drafts; the number of tokens of each pass of a
drafter; and the drafts of a request that was not in a step.

    python runners.py
"""

from contextlib import ExitStack, nullcontext
from types import SimpleNamespace
from unittest.mock import MagicMock, patch

import engine  # before any of vLLM's
import numpy as np
import torch
from device import Device
from vllm.config.compilation import CUDAGraphMode
from vllm.model_executor.models.qwen3_dflash import DFlashQwen3ForCausalLM
from vllm.v1.spec_decode.dflash import DFlashProposer
from vllm.v1.spec_decode.draft_model import DraftModelProposer
from vllm.v1.spec_decode.eagle import EagleProposer
from vllm.v1.worker import gpu_model_runner as v1
from vllm.v1.worker.gpu import model_runner as v2
from vllm.v1.worker.gpu.spec_decode.dflash import speculator as dflash
from vllm.v1.worker.gpu.spec_decode.multi_module_mtp import speculator as modules
from vllm.v1.worker.gpu.spec_decode.standalone_ar import speculator as standalone
from vllm.v1.worker.gpu.spec_decode.target_dependent_ar import speculator as dependent

from workloads import Workload

LENGTHS = (2, 5, 4)  # tokens of the target's pass, by request
T, R, K = sum(LENGTHS), len(LENGTHS), 4


def over(owner, **values):
    """An object of a vLLM class, made without the constructor. Attributes that were not given are stand-ins."""

    class Fake(owner):
        def __init__(self) -> None:
            self.__dict__.update(values)

        def __getattr__(self, name: str):
            if name.startswith("__"):
                raise AttributeError(name)
            return self.__dict__.setdefault(name, MagicMock())

    Fake.__abstractmethods__ = frozenset()
    for name in values:
        if isinstance(getattr(owner, name, None), property):
            setattr(Fake, name, values[name])
    return Fake()


def patched(module, **stand_ins) -> ExitStack:
    """Replaces the given names of a module."""
    stack = ExitStack()
    for name, stand_in in stand_ins.items():
        stack.enter_context(patch.object(module, name, stand_in))
    return stack


def zeros(*shape: int, kind=torch.int64):
    return torch.zeros(shape, dtype=kind)


def batch():
    """The target's batch in the form in which runner V2 passes it to a drafter."""
    ends = np.concatenate(([0], np.cumsum(LENGTHS))).astype(np.int32)
    return SimpleNamespace(
        num_reqs=R, num_tokens=T, num_tokens_after_padding=T, num_scheduled_tokens=np.array(LENGTHS), decode_graph_eligible=False, idx_mapping=zeros(R),
        seq_lens=zeros(R), seq_lens_cpu_upper_bound=zeros(R), query_start_loc=torch.from_numpy(ends), query_start_loc_np=ends, input_ids=zeros(T), positions=zeros(T),
    )


def buffers():
    return SimpleNamespace(input_ids=zeros(64), positions=zeros(64), seq_lens=zeros(64), query_start_loc=zeros(64))


def propose(speculator, drafts: int) -> None:
    """Runner V2's call of its drafter, for `drafts` drafts."""
    type(speculator).propose(speculator, batch(), {}, {}, zeros(T, 1), None, zeros(R), zeros(R), zeros(64), zeros(64), zeros(64), zeros(64), num_speculative_tokens=drafts)


def eager(manager, requests: int, tokens: int, *args, **kwargs):
    """A stand-in without CUDA graphs: every pass runs directly."""
    return SimpleNamespace(cg_mode=CUDAGraphMode.NONE, num_tokens=tokens, num_reqs=requests), None


def common(passes: list[int]) -> dict:
    """Attributes that all drafters of runner V2 need."""
    return {
        "num_speculative_steps": K, "dp_size": 1, "dp_rank": 0, "pcp_manager": None, "max_model_len": 100, "max_num_reqs": 8, "max_num_tokens": 64, "arange_np": np.arange(9),
        "arange_gpu": torch.arange(9), "input_buffers": buffers(), "draft_tokens": zeros(8, K), "hidden_states": zeros(64, 1), "last_token_indices": zeros(8), "sample_src_positions": zeros(8),
        "sample_draft": lambda hidden, *args, **kwargs: zeros(R), "_copy_request_inputs": MagicMock(), "_build_attn_metadata": MagicMock(), "_build_uniform_attn_metadata": MagicMock(),
        "_prepare_eplb_forward": MagicMock(), "expanded_input_ids": zeros(64), "expanded_positions": zeros(64), "passes": passes,
    }


def standalone_passes(drafts: int) -> list[int]:
    passes: list[int] = []
    run = lambda ids, *args: passes.append(len(ids)) or zeros(len(ids), 1)  # noqa: E731
    speculator = over(standalone.StandaloneARSpeculator, _run_model=run, **common(passes))
    with patched(standalone, _prepare_prefill_inputs_kernel=MagicMock(), build_slot_mappings_by_layer=MagicMock()):
        propose(speculator, drafts)
    return passes


def dependent_passes(drafts: int) -> list[int]:
    passes: list[int] = []
    run = lambda tokens, *args, **kwargs: passes.append(tokens) or (zeros(tokens, 1), zeros(tokens, 1))  # noqa: E731
    given = common(passes) | {"_run_model": run, "supports_decode_metadata_update": False, "advance_draft_positions": True, "decode_cudagraph_manager": None}
    names = ("prepare_prefill_inputs", "prepare_decode_inputs", "update_draft_inputs", "build_slot_mappings_by_layer")
    with patched(dependent, dispatch_cg_and_sync_dp=eager, **{name: MagicMock() for name in names}):
        propose(over(dependent.TargetDependentARSpeculator, **given), drafts)
    return passes


def module_passes(drafts: int) -> list[int]:
    passes: list[int] = []
    run = lambda tokens, *args, **kwargs: passes.append(tokens) or (zeros(tokens, 1), zeros(tokens, 1))  # noqa: E731
    given = common(passes) | {"_run_model": run, "_prepare_inputs": MagicMock(), "inputs_embeds": None, "draft_input_id_overrides": zeros(8, K)}
    names = ("cache_inputs", "update_draft_inputs", "pad_trailing_draft_slots", "build_slot_mappings_by_layer")
    with patched(modules, dispatch_cg_and_sync_dp=eager, **{name: MagicMock() for name in names}):
        propose(over(modules.MultiModuleMTPSpeculator, **given), drafts)
    return passes


def dflash_passes(drafts: int) -> list[int]:
    passes: list[int] = []
    given = common(passes) | {
        "num_query_per_req": 1 + K, "draft_kv_cache_group_id": 0, "draft_kv_cache_group_ids": [0], "supports_decode_metadata_update": False,
        "_precompute_context_kv": lambda first, tokens, *args: passes.append(tokens), "_generate_draft": lambda requests, tokens, *args, **kwargs: passes.append(tokens),
        "precompute_and_store_context_kv": None, "_store_hidden_states": MagicMock(), "prepare_context_anchor": MagicMock(),
    }
    with patched(dflash, dispatch_cg_and_sync_dp=eager, prepare_dflash_inputs=MagicMock(), build_slot_mappings_by_layer=MagicMock()):
        propose(over(dflash.DFlashSpeculator, **given), drafts)
    return passes


def v1_passes(owner, method: str, parallel: bool, drafts: int) -> list[int]:
    """Records the passes of a drafter of runner V1."""
    passes: list[int] = []
    model = MagicMock(spec=DFlashQwen3ForCausalLM) if method == "dflash" else MagicMock()
    model.side_effect = lambda input_ids, **kwargs: passes.append(len(input_ids)) or zeros(len(input_ids), 1)
    model.precompute_and_store_context_kv = lambda states, positions, *args: passes.append(len(positions))
    model.combine_hidden_states = lambda states: states
    shifts = method != "draft_model"
    slots = (K if parallel else 1) - (1 if shifts else 0)
    proposer = over(
        owner, method=method, model=model, parallel_drafting=parallel or method == "dflash", extra_slots_per_request=K if parallel else 1, net_num_new_slots_per_request=slots,
        needs_extra_input_slots=slots > 0, pass_hidden_states_to_model=shifts, supports_mm_inputs=False, uses_mrope=False, use_heterogeneous_vocab=False, eplb_state=None, hidden_size=1,
        constant_draft_positions=False, allowed_attn_types=None, _share_mtp_indices=False, block_size=16, max_model_len=100, arange=torch.arange(64), token_arange_np=np.arange(64),
        draft_attn_groups=[], input_ids=zeros(64), positions=zeros(64), hidden_states=zeros(64, 1), _context_positions_buffer=zeros(64), _context_slot_mapping_buffer=zeros(64),
        _slot_mapping_buffer=zeros(64), parallel_drafting_hidden_state_tensor=zeros(1), is_masked_token_mask=zeros(64, kind=torch.bool), is_rejected_token_mask=zeros(64, kind=torch.bool),
        model_returns_tuple=lambda: False, device="cpu", _determine_batch_execution_and_padding=lambda tokens, **kwargs: (CUDAGraphMode.NONE, tokens, None), _get_positions=lambda n: zeros(n),
        _set_positions=MagicMock(), _sample_draft_tokens=lambda hidden, metadata: (zeros(len(hidden)), None), _update_positions_dependent_metadata=lambda positions, *args: positions,
        _last_draft_probs=None, _get_slot_mapping=MagicMock(),
    )
    metadata = MagicMock(query_start_loc=torch.tensor([0, *np.cumsum(LENGTHS)]), max_query_len=max(LENGTHS), seq_lens=zeros(R), seq_lens_cpu_upper_bound=zeros(R), max_seq_len=9)
    metadata.batch_size = lambda: R
    import vllm.v1.spec_decode.dflash as dflash_v1
    import vllm.v1.spec_decode.llm_base_proposer as base

    def fill(**given) -> None:  # replaces a kernel that computes indices: all of them 0
        for name in ("out_new_token_indices_ptr", "out_hidden_state_mapping_ptr", "out_token_indices_ptr"):
            given.get(name, zeros(1)).zero_()

    kernels = {"_copy_and_expand_eagle_inputs": fill, "compute_new_slot_mapping": MagicMock(), "extend_all_queries_by_N": MagicMock(), "set_forward_context": MagicMock()}
    with patched(base, **kernels), patched(dflash_v1, _copy_and_expand_dflash_inputs=fill, CommonAttentionMetadata=MagicMock()):
        owner.propose(proposer, drafts, zeros(T), zeros(T), zeros(T, 1), zeros(R), None, metadata, None, num_rejected_tokens_gpu=zeros(R))
    return passes


def check_passes() -> None:
    """Compares `Device.passes` with the passes of vLLM's drafters."""
    cases = [("draft-model", 2, {}, standalone_passes), ("eagle", 2, {}, dependent_passes), ("mtp", 2, {"modules": 2}, module_passes), ("dflash", 2, {}, dflash_passes)]
    cases += [
        ("eagle", 1, {}, lambda k: v1_passes(EagleProposer, "eagle", False, k)),
        ("draft-model", 1, {}, lambda k: v1_passes(DraftModelProposer, "draft_model", False, k)),
        ("dflash", 1, {}, lambda k: v1_passes(DFlashProposer, "dflash", False, k)),
        ("draft-model", 1, {"parallel": True}, lambda k: v1_passes(DraftModelProposer, "draft_model", True, k)),
        ("eagle", 1, {"parallel": True}, lambda k: v1_passes(EagleProposer, "eagle", True, k)),
    ]
    for drafter, runner, more, passes in cases:
        work = Workload(0, drafter, K, "fixed", "roomy", "fcfs", False, 16, runner=runner, **more)
        device = SimpleNamespace(work=work, modules=work.modules > 1)
        lengths = (0, K) if work.parallel else range(K + 1)
        for drafts in lengths:
            found, said = passes(drafts), Device.passes(device, T, R, drafts)
            assert found == said, (drafter, runner, more, drafts, found, said)
        print(f"V{runner} {drafter} {more or ''}: {found}, for no draft {passes(0)}")


def order(runner, wanted: dict[str, str]) -> list[str]:
    """The recorded calls that matter, in their order."""
    names = [call[0] for call in runner.mock_calls]
    return [wanted[name] for name in names if name in wanted]


def order_v2() -> list[str]:
    runner = MagicMock(is_last_pp_rank=True, pcp_manager=None, pp_handler=None, batch_sharder=None, adaptive_verification=None, aux_output_connector=None, num_speculative_steps=K)
    runner.sample.return_value = (MagicMock(), zeros(R), zeros(R))
    runner.execute_model_state.num_spec_tokens_to_schedule = K
    runner.execute_model_state.input_batch = batch()
    runner.execute_model_state.input_batch.req_ids = ["a", "b", "c"]
    with patched(v2, AsyncOutput=lambda **kwargs: runner.AsyncOutput(), use_workspace_lane=lambda lane: nullcontext(), get_drafter_hidden_states=MagicMock()):
        v2.GPUModelRunner.sample_tokens(runner, None)
    return order(runner, {"sample": "sample", "AsyncOutput": "copy tokens", "speculator.propose": "draft"})


def order_v1(drafter, asynchronous: bool, fits: bool = True) -> list[str]:
    runner = MagicMock(use_async_scheduling=asynchronous, drafter=drafter, device="cpu", num_spec_tokens=K, valid_sampled_token_count_event=None)
    runner.execute_model_state = tuple(MagicMock() for _ in range(10))
    runner._bookkeeping_sync.return_value = tuple(MagicMock() for _ in range(8))
    runner._input_fits_in_drafter.return_value = fits
    runner.input_batch.req_ids = ["a", "b", "c"]
    config = runner.speculative_config
    config.disable_padded_drafter_batch = False
    config.use_eagle.return_value = drafter is not None
    config.uses_draft_model.return_value = config.uses_extract_hidden_states.return_value = config.use_ngram_gpu.return_value = False
    runner.parallel_config.data_parallel_size = 1
    with patched(v1, AsyncGPUModelRunnerOutput=lambda **kwargs: runner.AsyncOutput(), apply_grammar_bitmask=MagicMock(), get_pp_group=lambda: SimpleNamespace(world_size=1, is_last_rank=True)):
        v1.GPUModelRunner.sample_tokens(runner, None)
    if not fits:
        assert runner._draft_token_ids.shape == (R, K) and not runner._draft_token_ids.any()
    return order(runner, {"_sample": "sample", "propose_draft_token_ids": "draft", "_bookkeeping_sync": "take tokens", "AsyncOutput": "copy tokens"})


def check_order() -> None:
    """The calls of a step after the target's pass."""
    eagle = MagicMock(spec=EagleProposer)
    found = {
        "V2": order_v2(),
        "V1": order_v1(eagle, False),
        "V1 asynchronous": order_v1(eagle, True),
        "V1 n-gram": order_v1(None, False),
        "V1 too near the end": order_v1(eagle, False, fits=False),
    }
    for name, calls in found.items():
        print(f"{name}: {', '.join(calls)}")
    assert found["V2"] == ["sample", "copy tokens", "draft"]
    assert found["V1"] == ["sample", "draft", "take tokens"]
    # With asynchronous scheduling "take tokens" takes none: they stay on the device.
    assert found["V1 asynchronous"] == ["sample", "draft", "take tokens", "copy tokens"]
    assert found["V1 n-gram"] == ["sample", "take tokens", "draft"]
    assert found["V1 too near the end"] == ["sample", "take tokens"]


def check_sat_out() -> None:
    """Asynchronous on runner V1: the input of two requests with K drafts each, of which the second was not in the step before."""
    cpu = torch.tensor([0, -1, -1, -1, -1, 8, -1, -1, -1, -1])  # the host's view: the second request's last token
    runner = MagicMock(enable_prompt_embeds=False, device="cpu", _pp_recv_work=None, prev_num_spec_tokens=K)
    runner.input_ids.gpu = zeros(2 * (K + 1), kind=torch.int32)
    runner.input_ids.copy_to_gpu = lambda count: runner.input_ids.gpu.copy_(cpu)
    runner.input_batch.req_ids = ["in", "out"]
    runner.input_batch.prev_sampled_token_ids = torch.tensor([[7]], dtype=torch.int32)
    runner.prev_positions.np = np.array([0, -1])
    runner._draft_token_ids = torch.tensor([[1, 2, 3, 4]])
    output = SimpleNamespace(scheduled_spec_decode_tokens={"in": [-1] * K, "out": [-1] * K})
    v1.GPUModelRunner._prepare_input_ids(runner, output, 2, 2 * (K + 1), np.array([K + 1, 2 * (K + 1)]))
    found = runner.input_ids.gpu.tolist()
    assert found == [7, 1, 2, 3, 4, 8, -1, -1, -1, -1], found
    print(f"V1 asynchronous, input of a request that was in the step before and of one that was not: {found}")


if __name__ == "__main__":
    print(engine.VERSION)
    check_order()
    check_passes()
    check_sat_out()
