"""Prove, checkpoint by checkpoint, that a model's forward pass is right; imported without torch."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from inferno.verify.run import verify

__all__ = ["verify"]


def __getattr__(name: str) -> Any:
    """Import `verify` at its first use: it brings torch, and `--help` needs none."""
    if name == "verify":
        return import_module("inferno.verify.run").verify
    raise AttributeError(f"module 'inferno.verify' has no attribute {name!r}")
