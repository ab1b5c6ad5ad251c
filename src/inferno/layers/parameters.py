"""How a layer declares a weight: shaped and empty, to be filled by the loader."""

from __future__ import annotations

import torch
from torch import nn

from inferno.errors import ConfigError


def empty(*shape: int, dtype: torch.dtype | None = None) -> nn.Parameter:
    """An unfilled, frozen parameter on the default device: `meta` while a model is built.

    A dtype that is no float is kept; floats are loaded as what is computed with. Raises ConfigError
    for a size beyond all memory, which only a damaged config can ask for.
    """
    try:
        return nn.Parameter(torch.empty(*shape, dtype=dtype), requires_grad=False)
    except RuntimeError:
        raise ConfigError(f"config.json makes a weight of {list(shape)}: too large") from None
