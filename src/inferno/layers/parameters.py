"""How a layer declares a weight: shaped and empty, to be filled by the loader."""

from __future__ import annotations

import torch
from torch import nn


def empty(*shape: int) -> nn.Parameter:
    """An unfilled, frozen parameter on the default device: `meta` while a model is built."""
    return nn.Parameter(torch.empty(*shape), requires_grad=False)
