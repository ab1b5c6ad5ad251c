"""Choose the weights that become int8 or int4 while a model is loaded, and count its bytes."""

from __future__ import annotations

import torch
from torch import nn

from inferno.weights.allocate import kept_dtype

BITS = {"int8": 8.5, "int4": 4.5}  # a weight: with one scale of 16 bits for each group of 32

# Read once for every token, so as costly as a layer, but a logit has no later layer to mend it.
_KEPT_WIDE = ("lm_head", "embed_tokens")
_NEVER = ("router",)  # a wrong choice of experts costs far more than these few bytes


def choose(name: str, quantize: str | None) -> str | None:
    """Return the type that a module's weight becomes by the module's name: int8, int4 or None."""
    leaf = name.rpartition(".")[2]
    if leaf in _NEVER:
        return None
    return "int8" if quantize and leaf in _KEPT_WIDE else quantize


def num_bytes(model: nn.Module, dtype: torch.dtype, quantize: str | None) -> float:
    """Return the bytes that the parameters take: weights quantized, other floats in `dtype`."""
    return sum(
        parameter.numel() * _bits(name, parameter, dtype, quantize) / 8
        for name, parameter in model.named_parameters()
    )


def _bits(name: str, parameter: nn.Parameter, dtype: torch.dtype, quantize: str | None) -> float:
    owner, _, leaf = name.rpartition(".")
    becomes = choose(owner, quantize) if leaf == "weight" and parameter.ndim > 1 else None
    if becomes is not None:
        return BITS[becomes]
    return kept_dtype(parameter, dtype).itemsize * 8
