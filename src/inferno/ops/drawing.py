"""Define the data that decide a row's token: how it is drawn, and what a random number is for."""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import NamedTuple, Protocol, Self

from inferno.sampling_params import SamplingParams

_SMALLEST_TEMPERATURE = 2.0**-126  # float32's smallest normal number


class SamplingSpec(NamedTuple):
    """The way a row's token is drawn: from the top p of the top k of the tokens that min-p leaves.

    The kernels take its fields as numbers, in this order (native/kernels/sampling/draw.h,
    ops/cuda/drawing.py).

    temperature 0.0: no token is drawn; else at least float32's smallest normal number.
    top_k       at most V; 0 keeps all.
    top_p       above 0.0; 1.0 keeps all.
    min_p       0.0 keeps all.
    """

    temperature: float
    top_k: int
    top_p: float
    min_p: float

    @classmethod
    def of(cls, params: SamplingParams, vocab_size: int) -> Self:
        """Return how a row is drawn; not at all if it gets the likeliest token."""
        is_greedy = params.temperature == 0.0 or params.top_k == 1 or params.top_p == 0.0
        return cls(
            temperature=0.0 if is_greedy else max(params.temperature, _SMALLEST_TEMPERATURE),
            top_k=params.top_k if params.top_k < vocab_size else 0,
            top_p=params.top_p,
            min_p=params.min_p,
        )


class Penalties(NamedTuple):
    """The penalties of a row, and the tokens of its sequence that get them.

    repetition  divides positive logits and multiplies others; as float32's smallest normal number
                where it is below that. Frequency is subtracted for each time that the output has
                the token, presence once if it has the token at all.
    token_ids   distinct tokens of prompt and output; in_output: how often the output has each.
    pending_row the row of the last draw whose token stands in the output as well, if there is one:
                only the device knows it yet.
    """

    repetition: float
    frequency: float
    presence: float
    token_ids: Sequence[int]
    in_output: Sequence[int]
    pending_row: int | None = None


class SamplingSpecs(Protocol):
    """The sampling specs of a batch's rows, in the form that a device's kernels take."""

    def __len__(self) -> int:
        """Return the number of rows."""
        ...


class Purpose(IntEnum):
    """The decision that a random number is for; each has its own stream."""

    SAMPLE = 0  # which token a position gets
