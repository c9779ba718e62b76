"""Imports single modules of SGLang's wheel; empty modules replace all other imports.

SGLang as a whole needs a GPU and some hundred packages. The modules named here make the decisions. Their other imports
write logs, find devices or give types.
"""

import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import sys
from pathlib import Path
from unittest.mock import MagicMock

RELEASED = {
    "sglang.kernels.ops.speculative.dspark.dispatch",
    "sglang.kernels.ops.speculative.dspark.dspark_schedule",
    "sglang.srt.arg_groups.cuda_graph_hook",
    "sglang.srt.environ",
    "sglang.srt.managers.overlap_utils",
    "sglang.srt.speculative.adaptive_spec_params",
    "sglang.srt.speculative.dspark_components.dspark_planner",
    "sglang.srt.speculative.dspark_components.dspark_sps",
    "sglang.srt.speculative.ragged_verify",
}


class StandIn(MagicMock):
    """A module from which every name can be imported; the objects do nothing."""

    __path__: list[str] = []
    __all__: list[str] = []


class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds released modules in the unpacked wheel, and makes stand-ins for the rest of the package."""

    def __init__(self, root: Path):
        self.root = root

    def find_spec(self, name, path=None, target=None):
        if name in RELEASED:
            file = self.root / (name.replace(".", "/") + ".py")
            return importlib.util.spec_from_file_location(name, file)
        if name == "sglang" or name.startswith("sglang."):
            return importlib.machinery.ModuleSpec(name, self, is_package=True)
        return None

    def create_module(self, spec):
        return StandIn(name=spec.name)

    def exec_module(self, module):
        pass


def install(wheel: Path) -> None:
    """Makes `import sglang…` read the unpacked wheel."""
    sys.meta_path.insert(0, Finder(wheel))


def module(name: str):
    """A released module, by its name in the package."""
    return importlib.import_module(f"sglang.{name}")
