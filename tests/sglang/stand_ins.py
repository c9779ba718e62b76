"""Empty modules in the place of packages that SGLang imports and that a schedule without kernels never calls."""

import importlib.abc
import importlib.machinery
import importlib.util
import os
import sys
import types

# Each is needed by GPU kernels, by images, or by a notebook. One that is installed is left alone.
OPTIONAL = ("IPython", "torchvision", "gguf", "sgl_kernel")


class Nothing:
    """Takes any call, attribute, index or use as a base class, and stays nothing. As a decorator it changes nothing."""

    def __init__(self, *args, **kwargs) -> None:
        pass

    def __call__(self, *args, **kwargs):
        return args[0] if len(args) == 1 and not kwargs and callable(args[0]) else Nothing()

    def __getattr__(self, name: str):
        if name.startswith("__"):
            raise AttributeError(name)
        return Nothing()

    def __getitem__(self, key):
        return Nothing()

    def __iter__(self):
        return iter(())

    def __bool__(self) -> bool:
        return False

    def __or__(self, other):
        return other

    __ror__ = __or__

    def __mro_entries__(self, bases):
        return (object,)


class Empty(types.ModuleType):
    def __getattr__(self, name: str):
        if name.startswith("__"):
            raise AttributeError(name)
        return Nothing()


class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def __init__(self, names: tuple[str, ...]) -> None:
        self.names = names

    def find_spec(self, name: str, path=None, target=None):
        if name.partition(".")[0] in self.names:
            return importlib.machinery.ModuleSpec(name, self, is_package=True)
        return None

    def create_module(self, spec):
        module = Empty(spec.name)
        module.__path__, module.__version__ = [], "99.0"
        return module

    def exec_module(self, module) -> None:
        pass


def install() -> None:
    """Makes `import sglang` work on a machine without a GPU. Must come before it."""
    os.environ.setdefault("SGLANG_USE_CPU_ENGINE", "1")
    os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")
    missing = tuple(name for name in OPTIONAL if importlib.util.find_spec(name) is None)
    sys.meta_path.append(Finder(missing))
