"""Weights that kernels laid out in their own way are compared with their files all the same."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.verify.faults import in_op
from tests.verify.planted import Folders
from tests.verify.tiny_models import verified


@dataclass(frozen=True, eq=False)
class Columns:
    """A weight by columns."""

    columns: Tensor
    change: Callable[[Tensor], Tensor]

    @property
    def shape(self) -> torch.Size:
        return self.columns.T.shape

    @property
    def dtype(self) -> torch.dtype:
        return self.columns.dtype

    @property
    def num_bytes(self) -> int:
        return self.columns.nbytes

    def fill(self, first: int, rows: Tensor) -> None:
        self.columns[:, first : first + len(rows)] = self.change(rows).T

    def unpack(self, dtype: torch.dtype) -> Tensor:
        return self.columns.T.to(dtype)

    def steps(self) -> None:
        return None


def laid_out(change: Callable[[Tensor], Tensor]) -> Callable[[Any], Any]:
    """A backend that keeps weights by columns, after a change."""

    def allocate(
        shape: torch.Size, dtype: torch.dtype, ranges: object, *, is_invariant: bool = False
    ) -> Columns:
        return Columns(torch.empty(shape[1], shape[0], dtype=dtype), change)

    return lambda _: allocate


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_right_layout_passes(
    folders: Folders, monkeypatch: pytest.MonkeyPatch, dtype: str
) -> None:
    in_op("allocate", laid_out(lambda values: values))(monkeypatch)
    report = verified(folders["llama, tied, biases"], dtype=dtype)
    assert report.passed, report.verdict


def test_a_layout_that_loses_rows_is_told_with_the_weight(
    folders: Folders, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lose(values: Tensor) -> Tensor:
        lost = values.clone()
        lost[-3:] = 0
        return lost

    in_op("allocate", laid_out(lose))(monkeypatch)
    failed = verified(folders["llama"]).first_failure
    assert failed is not None
    assert failed.number == "0"
    assert "model.embed_tokens.weight in memory is not what its file holds" in failed.what
