"""Run large language models: `LLM("path/to/model").generate("Once upon a time")`."""

from __future__ import annotations

TYPE_CHECKING = False  # typing itself, and importlib, would be most of what a command waits for

if TYPE_CHECKING:
    from typing import Any

    from inferno.async_llm import AsyncLLM
    from inferno.errors import InfernoError
    from inferno.llm import LLM
    from inferno.requests import SamplingParams
    from inferno.sampling_params import RepetitionDetection
    from inferno.structured import StructuredOutput

__all__ = [
    "LLM",
    "AsyncLLM",
    "InfernoError",
    "RepetitionDetection",
    "SamplingParams",
    "StructuredOutput",
    "__version__",
]
__version__ = "0.1.0"

_HOMES = {
    "AsyncLLM": "inferno.async_llm",
    "InfernoError": "inferno.errors",
    "LLM": "inferno.llm",
    "RepetitionDetection": "inferno.sampling_params",
    "SamplingParams": "inferno.requests",
    "StructuredOutput": "inferno.structured",
}


def __getattr__(name: str) -> Any:
    """Import a public name when first used: LLM imports torch, which `--help` doesn't need."""
    if name in _HOMES:
        import gc  # noqa: PLC0415
        from importlib import import_module  # noqa: PLC0415

        # Looking for garbage, of which imports make none, takes a tenth of PyTorch's import.
        was_enabled = gc.isenabled()
        gc.disable()
        try:
            return getattr(import_module(_HOMES[name]), name)
        finally:
            if was_enabled:
                gc.enable()
    raise AttributeError(f"module 'inferno' has no attribute {name!r}")
