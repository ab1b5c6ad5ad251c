"""Mistakes that show only in company: requests that get what belongs to others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from inferno.engine.execution.batcher import Batcher
from inferno.engine.sampling import sampler
from inferno.engine.sampling.sampler import Sampler
from inferno.layers.decoder import CausalLM
from tests.verify.faults_stream import patched

Patch = pytest.MonkeyPatch
_FEW = range(2, 6)  # requests of a step, and not the rows that a prompt's logits are made in


def _in_company(change: Callable[[Tensor], Tensor]) -> Callable[[Any], Any]:
    """Logits of several requests, changed."""

    def make(right: Callable[..., Tensor]) -> Callable[..., Tensor]:
        def logits(self: CausalLM, hidden: Tensor) -> Tensor:
            rows = right(self, hidden)
            return change(rows) if len(rows) in _FEW else rows

        return logits

    return make


swapped_logits = patched(CausalLM, "logits", _in_company(lambda rows: rows.flip(0)))
odd_logits = patched(
    CausalLM,
    "logits",
    _in_company(lambda rows: rows + 0.01 * torch.ones_like(rows).cumsum(1).sin()),
)


def swapped_samples(patch: Patch) -> None:
    """The first two tokens of a step change places."""
    right = Sampler.choose

    def choose(self: Sampler, *processed: Any) -> Any:
        first, *rest = right(self, *processed)
        return [rest[0], first, *rest[1:]] if rest else [first]

    patch.setattr(Sampler, "choose", choose)


def swapped_chances(patch: Patch) -> None:
    """Drawn tokens use the random numbers of others."""
    right = sampler._uniform
    patch.setattr(sampler, "_uniform", lambda rows, device: right(rows, device).flip(0))


def shared_block_tables(patch: Patch) -> None:
    """The second of three requests reads the keys of the first."""
    right = Batcher.build

    def build(self: Batcher, *arguments: Any) -> Any:
        batch = right(self, *arguments)
        if len(batch.query_lens) > 2:
            for group in batch.groups:
                group.block_tables_RB[1] = group.block_tables_RB[0]
        return batch

    patch.setattr(Batcher, "build", build)
