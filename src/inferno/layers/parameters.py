"""Declare a layer's weight: shaped and empty, filled by the loader, then laid out by `ops`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor, nn

from inferno import ops
from inferno.errors import ConfigError
from inferno.ops import MXFP4Weight, Prepared, PreparedExperts


@runtime_checkable
class Preparable(Protocol):
    """A module whose weight kernels may want laid out otherwise than checkpoints do."""

    def prepare(self, quantize: str | None) -> None:
        """Replace the filled weight by its prepared form; int8 or int4 also narrows it."""


def empty(*shape: int, dtype: torch.dtype | None = None) -> nn.Parameter:
    """Return an unfilled, frozen parameter on the default device: `meta` while a model is built.

    A dtype that is no float is kept; floats are loaded as what is computed with. Raises ConfigError
    for a size beyond all memory, which only a damaged config can ask for.
    """
    try:
        return nn.Parameter(torch.empty(*shape, dtype=dtype), requires_grad=False)
    except RuntimeError:
        raise ConfigError(f"config.json makes a weight of {list(shape)}: too large") from None


def prepare_weight(module: nn.Module, quantize: str | None) -> None:
    """Replace the parameter `weight` of a module by what the device's kernels want."""
    parameter = module.weight
    if not isinstance(parameter, Tensor):
        return  # it was prepared while it was filled
    prepared = ops.prepare(parameter, quantize=quantize)
    if prepared is not parameter:
        del module.weight
        vars(module)["weight"] = prepared


def prepared_weights(model: nn.Module) -> Iterator[tuple[str, Prepared | PreparedExperts]]:
    """Yield weights that are no parameters any more, by the names that those had."""
    for name, module in model.named_modules():
        weight = getattr(module, "weight", None)
        if weight is not None and not isinstance(weight, Tensor | MXFP4Weight):
            yield f"{name}.weight".lstrip("."), weight
