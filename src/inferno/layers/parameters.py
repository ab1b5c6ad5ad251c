"""Declare a layer's parameters: shaped and empty, until weights are loaded in their places."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

import torch
from torch import Tensor, nn

from inferno.errors import ConfigError
from inferno.ops import PackedExperts, PackedWeight


def empty(*shape: int) -> nn.Parameter:
    """Return an unfilled, frozen parameter on the default device: `meta` while a model is built.

    Raises ConfigError for a size beyond all memory, which only a damaged config can ask for.
    """
    try:
        return nn.Parameter(torch.empty(*shape), requires_grad=False)
    except (RuntimeError, TypeError):  # one of its sizes has more than 64 bits
        raise ConfigError(f"config.json makes a weight of {list(shape)}: too large") from None


class _HasModules(Protocol):
    def named_modules(self) -> Iterator[tuple[str, nn.Module]]: ...


def packed_weights(model: _HasModules) -> Iterator[tuple[str, PackedWeight | PackedExperts]]:
    """Yield packed weights, which replaced parameters, by the parameters' names."""
    for name, module in model.named_modules():
        weight = vars(module).get("weight")
        if weight is not None and not isinstance(weight, Tensor):
            yield f"{name}.weight".lstrip("."), weight
