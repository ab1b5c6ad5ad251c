"""The collective ops, by torch.distributed: gloo among processes on CPUs, NCCL among GPUs."""

from __future__ import annotations

import torch
from torch import Tensor

from inferno.ops.ranks import Ranks


def all_gather(x: Tensor, ranks: Ranks) -> Tensor:
    return torch.cat(_parts(x, ranks), -1)


def all_reduce(x: Tensor, ranks: Ranks) -> Tensor:
    if not ranks.is_invariant:
        total = x.clone(memory_format=torch.contiguous_format)
        torch.distributed.all_reduce(total, group=ranks.group)
        return total
    first, *others = _parts(x, ranks)
    total = first.to(torch.promote_types(x.dtype, torch.float32), copy=True)
    for part in others:
        total += part
    return total.to(x.dtype)


def _parts(x: Tensor, ranks: Ranks) -> list[Tensor]:
    """Return the tensors of all ranks, from rank 0 on."""
    x = x.contiguous()
    parts = [torch.empty_like(x) for _ in range(ranks.size)]
    torch.distributed.all_gather(parts, x, group=ranks.group)
    return parts
