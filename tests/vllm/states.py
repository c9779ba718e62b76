"""Records how many requests of a hybrid model vLLM's own KV managers hold, by the number of draft tokens.

    PYTHONPATH=$PWD/tree/pip-download-*/vllm-0.33.0 python states.py ../../profiler/src/hardware/roofline/states-0.33.0.json

Each model is given by the sizes of its layers. vLLM's `MambaSpec` and attention specs, its planning of groups and its
managers do the rest; the pool has 2,000 blocks. No tensor is made, so neither torch nor the packages around it need to
be installed: names stand in for them.
"""

import importlib.abc
import importlib.machinery
import json
import sys
import types
from math import prod
from pathlib import Path
from unittest.mock import MagicMock

MISSING = {"torch", "cbor2", "msgspec", "zmq", "triton", "cloudpickle", "prometheus_client", "pydantic", "openai", "psutil",
           "cachetools", "blake3", "xxhash", "aiohttp", "fastapi", "uvloop", "PIL", "gguf", "sentencepiece", "urllib3",
           "requests", "numpy", "regex", "diskcache", "partial_json_parser", "einops", "compressed_tensors", "jinja2"}

# Parts of vLLM for devices and settings, which import much and which no manager needs.
DEVICES = {"vllm.distributed", "vllm.model_executor", "vllm.config", "vllm.transformers_utils", "vllm.platforms",
           "vllm.multimodal", "vllm.lora", "vllm.pooling_params", "vllm.sampling_params", "vllm.tokenizers",
           "vllm.outputs", "vllm.compilation", "vllm.forward_context", "vllm.inputs",
           "vllm.v1.request", "vllm.v1.engine", "vllm.v1.metrics", "vllm.v1.utils"}


class Names(types.ModuleType):
    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        setattr(self, name, MagicMock(name=name))
        return getattr(self, name)


class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(self, name, path, target=None):
        if name.split(".")[0] in MISSING or any(f"{name}.".startswith(f"{part}.") for part in DEVICES):
            return importlib.machinery.ModuleSpec(name, self, is_package=True)

    def create_module(self, spec):
        module = Names(spec.name)
        module.__path__ = []
        return module

    def exec_module(self, module):
        pass


class Dtype:
    def __init__(self, name, itemsize):
        self.name, self.itemsize = name, itemsize


sys.meta_path.insert(0, Finder())
import torch  # noqa: E402

torch.dtype, torch.Tensor, torch.__version__ = Dtype, type("Tensor", (), {}), "2.13.0"
for name, size in (("float32", 4), ("bfloat16", 2), ("uint8", 1)):
    setattr(torch, name, Dtype(name, size))

import vllm.v1.kv_cache_interface as interface  # noqa: E402

interface.get_dtype_size = lambda dtype: dtype.itemsize
from vllm.v1.core import kv_cache_planning as planning  # noqa: E402
from vllm.v1.core.block_pool import BlockPool  # noqa: E402
from vllm.v1.core.single_type_kv_cache_manager import (  # noqa: E402
    FullAttentionManager, MambaManager, SlidingWindowManager)
from vllm.v1.kv_cache_interface import (  # noqa: E402
    FullAttentionSpec, MambaSpec, MLAAttentionSpec, SlidingWindowSpec)

# (attention layers, KV heads, head size; 0 heads: latent vectors), (recurrent layers, bytes of a state).
MODELS = {
    "qwen3-next-80b-a3b": ((12, 2, 256), (36, 2146304)),
    "qwen3.5-27b": ((16, 4, 256), (48, 3207168)),
    "qwen3.5-9b": ((8, 4, 256), (24, 2146304)),
    "qwen3.6-35b-a3b": ((10, 2, 256), (30, 2146304)),
    "nemotron-3-nano-30b-a3b": ((6, 2, 128), (23, 2134016)),
    "kimi-linear-48b-a3b": ((7, 0, 576), (20, 2170880)),
}
BLOCKS, TOKENS, MODEL_LEN = 2000, 420, 1 << 18


def managers_of(specs, block: int, blocks: int):
    """The managers of the groups that vLLM makes of these layers, their pool, and the number of layers of a group."""
    groups = planning._get_kv_cache_groups_uniform_page_size(planning.unify_kv_cache_spec_page_size(specs))
    pool = BlockPool(num_gpu_blocks=blocks, enable_caching=False, hash_block_size=block)
    kinds = {MambaSpec: MambaManager, SlidingWindowSpec: SlidingWindowManager}
    managers = []
    for index, group in enumerate(groups):
        manager = kinds.get(type(group.kv_cache_spec), FullAttentionManager)
        managers.append(manager(group.kv_cache_spec, block_pool=pool, enable_caching=False, kv_cache_group_id=index,
                                scheduler_block_size=block))
    return managers, pool, len(groups[0].layer_names)


def recorded(attention, states, k: int) -> dict:
    (layers, heads, size), (recurrent, state) = attention, states
    kind = MLAAttentionSpec if heads == 0 else FullAttentionSpec
    one = dict(num_kv_heads=heads or 1, head_size=size, dtype=torch.bfloat16)
    # `Platform._align_hybrid_block_size`: the least block, in steps of 16 (128 for latent vectors), that holds a state.
    step = 128 if heads == 0 else 16
    token = kind(block_size=1, **one).page_size_bytes
    block = step * -(-state // (step * token))
    page = kind(block_size=block, **one).page_size_bytes
    specs = {f"full.{i}": kind(block_size=block, **one) for i in range(layers)}
    mamba = MambaSpec(block_size=MODEL_LEN, shapes=((state // 4,),), dtypes=(torch.float32,), page_size_padded=page,
                      num_speculative_blocks=k)
    specs |= {f"state.{i}": mamba for i in range(recurrent)}
    managers, pool, _ = managers_of(specs, block, BLOCKS)
    held = 0
    while True:
        name = str(held)
        asked = dict(num_tokens=TOKENS, new_computed_blocks=[], total_computed_tokens=0, num_local_computed_tokens=0,
                     num_tokens_main_model=TOKENS)
        if sum(m.get_num_blocks_to_allocate(name, **asked) for m in managers) > pool.get_num_free_blocks():
            break
        for manager in managers:
            manager.allocate_new_blocks(name, TOKENS, TOKENS)
        held += 1
    return {"k": k, "block_size": block, "state_groups": sum(isinstance(m, MambaManager) for m in managers), "held": held}


def main() -> None:
    rows = {name: [recorded(*sizes, k) for k in (0, 1, 4, 7, 15)] for name, sizes in MODELS.items()}
    lines = [f'  {json.dumps(name)}: {json.dumps(row)}' for name, row in rows.items()]
    head = {"vllm": "0.33.0", "blocks": BLOCKS, "tokens": TOKENS}
    Path(sys.argv[1]).write_text("{\n" + f'  "about": {json.dumps(head)},\n' + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    main()
