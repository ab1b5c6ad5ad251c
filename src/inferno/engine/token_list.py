"""Token ids that index logits: a tensor of those that a vocabulary has."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor


def token_list(token_ids: Iterable[int], vocab_size: int, device: torch.device) -> Tensor:
    """The ids below vocab_size, ascending, each once: [N] int64."""
    known = sorted({token_id for token_id in token_ids if token_id < vocab_size})
    return torch.tensor(known, dtype=torch.int64, device=device)
