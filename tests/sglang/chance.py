"""The pure functions of `tests/vllm/chance.py`: Rust has them too, and both recordings draw from them."""

import importlib.util
from pathlib import Path

_spec = importlib.util.spec_from_file_location("vllm_chance", Path(__file__).resolve().parents[1] / "vllm" / "chance.py")
_module = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(_module)

accepted = _module.accepted
