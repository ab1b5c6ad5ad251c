"""Write a model in another format; imported without torch."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from inferno.convert.to_gguf import write_gguf

__all__ = ["write_gguf"]


def __getattr__(name: str) -> Any:
    """Import what writes when it is first used: it brings torch, and `--help` needs none."""
    if name == "write_gguf":
        return import_module("inferno.convert.to_gguf").write_gguf
    raise AttributeError(f"module 'inferno.convert' has no attribute {name!r}")
