"""Kernels in Triton: on a GPU where one is here, otherwise by Triton's interpreter on the CPU."""

from __future__ import annotations

import inspect
from functools import cache
from typing import Any

import pytest
import torch

pytest.importorskip("triton")
core = pytest.importorskip("triton.language.core")
interpreter = pytest.importorskip("triton.runtime.interpreter")

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")


@pytest.fixture
def device() -> torch.device:
    return DEVICE


@cache
def _names_of_builtins(package: Any) -> tuple[str, ...]:
    return tuple(name for name, one in inspect.getmembers(package) if core.is_builtin(one))


def _patch_builtins(package: Any, builder: Any, scope: Any) -> None:
    """Patch what the interpreter patches, by names that are looked up once.

    The interpreter looks through all names of its language whenever one function in Triton calls
    another, which takes two fifths of the time of these tests.
    """
    for name in _names_of_builtins(package):
        member = getattr(package, name)
        if core.is_builtin(member):  # one that is patched already is none
            interpreter._patch_attr(package, name, member, builder, scope)


if hasattr(interpreter, "_patch_builtin") and hasattr(interpreter, "_LangPatchScope"):
    interpreter._patch_builtin = _patch_builtins
