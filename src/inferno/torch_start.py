"""Import PyTorch without the parts that no command uses, more than a third of its import.

`import torch` registers functions in Python by which tracers foresee the shapes of operators, makes
ready to export programs, and imports what trains models and what quantizes them in its own way. A
program that imports inferno as a library may use all that, so it is left to the commands:
`defer_tracing` before the first import.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from threading import Thread
from types import ModuleType
from typing import Any

# In another order than PyTorch's own its modules may not find each other: only these versions.
_TESTED_VERSIONS = ("2.13.",)
_VERSION = re.compile(r"""^__version__ = ['"]([^'"]+)""", re.MULTILINE)
# Modules that run when something of theirs is first asked for.
_REGISTRATIONS = "torch._meta_registrations"
_DEFERRED = (
    *(_REGISTRATIONS, "torch.export", "torch.distributions", "torch.masked", "torch.quantization"),
    *("torch.nn.intrinsic", "torch.nn.qat", "torch.utils.data"),
)
# Nobody asks the registrations for anything: they run before any of these, which need them. Of
# these some can only be imported after the others, in the order in which PyTorch does it.
_TRACING = (
    *("torch._decomp", "torch._dynamo", "torch._prims", "torch._refs", "torch._subclasses"),
    "torch.utils._content_store",
)


def defer_tracing() -> None:
    """Have PyTorch import its parts for tracing, exporting and training only when they are used.

    All parts work as ever, only later. For versions of PyTorch that weren't tried, this does
    nothing.
    """
    is_new = "torch" not in sys.modules and not any(isinstance(f, _Finder) for f in sys.meta_path)
    if is_new and _is_tested():
        sys.meta_path.insert(0, _Finder())


@contextmanager
def loading_libraries() -> Iterator[None]:
    """Load the libraries of PyTorch in a thread until the block ends, for the import after it.

    That takes 0.2 s, a quarter of the import, which holds Python's lock meanwhile; the thread does
    not. The system's loader has a lock too: the block should import no module that is a library.
    Where the libraries aren't found, or of a version that wasn't tried, this does nothing.
    """
    if sys.platform != "linux" or "torch" in sys.modules or not _is_tested():
        yield
        return
    thread = Thread(target=_load_libraries, name="inferno-libraries")
    thread.start()
    try:
        yield
    finally:
        thread.join()


def _load_libraries() -> None:
    import ctypes  # noqa: PLC0415 - --help doesn't wait for it

    # Called as any function, for ctypes.CDLL holds Python's lock while it loads (in Python 3.11).
    load = ctypes.CDLL(None).dlopen
    load.argtypes, load.restype = (ctypes.c_char_p, ctypes.c_int), ctypes.c_void_p
    for folder in _folders():
        # In PyTorch's own order and ways; a failure is told of by the import, which loads it again.
        load(
            os.fsencode(Path(folder, "lib", "libtorch_global_deps.so")),
            os.RTLD_NOW | os.RTLD_GLOBAL,
        )
        load(os.fsencode(Path(folder, "lib", "libtorch_python.so")), os.RTLD_NOW)


def _is_tested() -> bool:
    return _version().startswith(_TESTED_VERSIONS)


def _version() -> str:
    """Return the version of the PyTorch that would be imported; empty where it isn't known."""
    for folder in _folders():
        try:
            found = _VERSION.search(Path(folder, "version.py").read_text())
        except (OSError, ValueError):
            continue
        if found is not None:
            return found[1]
    return ""


def _folders() -> Sequence[str]:
    """Return the folders of the PyTorch that would be imported."""
    spec = PathFinder.find_spec("torch")
    return (spec.submodule_search_locations if spec is not None else None) or ()


class _Finder(MetaPathFinder):
    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname in _DEFERRED:
            make: Callable[[Loader], Loader] = _Deferred
        elif (first := sys.modules.get(_first_of(fullname))) is not None and _is_deferred(first):
            make = partial(_After, first)
        else:
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is not None and spec.loader is not None:
            spec.loader = make(spec.loader)
        return spec


class _Deferred(Loader):
    """Runs a module when something that it has is first asked for."""

    def __init__(self, loader: Loader) -> None:
        self.loader = loader

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self.loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        def find(name: str) -> Any:
            if name.startswith("__"):  # asked for by the import itself
                raise AttributeError(f"module {module.__name__!r} has no attribute {name!r}")
            _run(module)
            return getattr(module, name)

        vars(module)["__getattr__"] = find
        if module.__name__ == _REGISTRATIONS:
            _allow_generators()


def _allow_generators() -> None:
    """Do what `torch.Generator` waits for, and what is done again where tracing is imported."""
    opaque = import_module("torch._opaque_base")
    sys.modules["torch._C"]._set_generator_metaclass(opaque.OpaqueBaseMeta)


class _After(Loader):
    """Runs a module after one that was put off, or not at all where that one has imported it."""

    def __init__(self, first: ModuleType, loader: Loader) -> None:
        self._first = first
        self._loader = loader
        self._is_done = False

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        _run(self._first)
        self._is_done = spec.name in sys.modules
        return sys.modules[spec.name] if self._is_done else self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        if not self._is_done:
            self._loader.exec_module(module)


def _first_of(fullname: str) -> str:
    """Return the module that is to run before this one, or an empty name."""
    if fullname in _TRACING:
        return _REGISTRATIONS
    package = fullname.rpartition(".")[0]
    return package if package in _DEFERRED else ""


def _is_deferred(module: ModuleType) -> bool:
    return isinstance(module.__loader__, _Deferred) and "__getattr__" in vars(module)


def _run(module: ModuleType) -> None:
    """Run a module that was put off, unless that was done."""
    loader = module.__loader__
    if isinstance(loader, _Deferred) and vars(module).pop("__getattr__", None) is not None:
        loader.loader.exec_module(module)
