"""inferno runs large language models: `LLM("path/to/model").generate("Once upon a time")`."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from inferno.errors import InfernoError
    from inferno.llm import LLM
    from inferno.requests import SamplingParams

__all__ = ["LLM", "InfernoError", "SamplingParams", "__version__"]
__version__ = "0.1.0"

_HOMES = {
    "InfernoError": "inferno.errors",
    "LLM": "inferno.llm",
    "SamplingParams": "inferno.requests",
}


def __getattr__(name: str) -> Any:
    """Public names are imported when first used: LLM brings torch, and `--help` needs none."""
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'inferno' has no attribute {name!r}")
