"""The data that decide a row's token: its rule, and the purpose of a random number."""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple, Protocol


class SamplingSpec(NamedTuple):
    """The rule by which a row's token is drawn: top p of the top k of those that min-p leaves.

    temperature 0.0: no token is drawn; else at least float32's smallest normal number.
    top_k       at most V; 0 keeps all.
    top_p       above 0.0; 1.0 keeps all.
    min_p       0.0 keeps all.
    """

    temperature: float
    top_k: int
    top_p: float
    min_p: float


class SamplingSpecs(Protocol):
    """The rules of a batch's rows, as a device's kernels want them."""

    def __len__(self) -> int:
        """Return the number of rows."""
        ...


class Purpose(IntEnum):
    """The decision that a random number is for; each has its own stream."""

    SAMPLE = 0  # which token a position gets
    ACCEPT = 1  # whether a draft token stays
    RESIDUAL = 2  # which token replaces a rejected draft
    DRAFT = 3  # which token a draft proposes
