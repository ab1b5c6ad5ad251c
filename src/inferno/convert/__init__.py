"""Write a model in another format; imported without torch."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from inferno.convert.to_folder import write_folder
    from inferno.convert.to_gguf import write_gguf

__all__ = ["write_folder", "write_gguf"]

_MODULES = {"write_folder": "inferno.convert.to_folder", "write_gguf": "inferno.convert.to_gguf"}


def __getattr__(name: str) -> Any:
    """Import what writes when it is first used: it brings torch, and `--help` needs none."""
    if name in _MODULES:
        return getattr(import_module(_MODULES[name]), name)
    raise AttributeError(f"module 'inferno.convert' has no attribute {name!r}")
