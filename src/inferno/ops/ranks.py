"""Describe the processes among which a model is split, for collective ops."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup


@dataclass(frozen=True, slots=True)
class Ranks:
    """The processes that hold a model's parts, numbered from 0 on; each process makes this object.

    group           of torch.distributed: gloo's for CPUs, NCCL's for NVIDIA's GPUs.
    is_invariant    whether a token's sums must have the same bits beside any number of other
                    tokens. Libraries add in an order that depends on how much there is to add.
    """

    group: ProcessGroup
    is_invariant: bool = False

    @property
    def size(self) -> int:
        """Return the number of processes."""
        return self.group.size()
