"""Tokens that are drawn while the host goes on: of rows that need nothing of it.

A row is plain if nothing but its temperature and the like decides its token: no text that was said
before, no mask, and nobody asks for log-probabilities. Where all rows of a step are, their tokens
are chosen on the device, stay there for the next step, and are on their way to the host.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from inferno import ops
from inferno.engine.sampling.logits_processors import has_penalty
from inferno.engine.sampling.sampler import Sampler, non_finite
from inferno.ops import Fetched, Purpose
from inferno.requests import SamplingParams


class DrawnSequence(Protocol):
    """The part of a sequence's record that decides how its tokens are drawn."""

    @property
    def params(self) -> SamplingParams: ...

    @property
    def seed(self) -> int: ...

    @property
    def num_prompt_tokens(self) -> int: ...

    @property
    def bad_words_ids(self) -> tuple[tuple[int, ...], ...]: ...


class DrawRows(NamedTuple):
    """The rows of a step that are to be drawn, in their order.

    positions   of the tokens to be chosen.
    """

    params: list[SamplingParams]
    seeds: list[int]
    sequence_indices: list[int]
    positions: list[int]


class Drawn:
    """The tokens of a step, on their way to the host; None where it has no rows."""

    def __init__(self, fetched: Fetched | None, positions: Sequence[int]) -> None:
        self._fetched = fetched
        self._positions = positions

    def wait(self) -> tuple[list[int], dict[int, str]]:
        """Wait for the tokens of all rows; return them, and why some rows have none."""
        num = len(self._positions)
        if self._fetched is None:
            return [], {}
        found_N = self._fetched.wait().numpy()
        token_ids: list[int] = found_N[:num].tolist()
        peak_R = found_N[num:].view(np.float32)[:num]
        failed = np.flatnonzero(~np.isfinite(peak_R)).tolist()
        return token_ids, {i: non_finite(self._positions[i], float(peak_R[i])) for i in failed}


class DeviceDraws:
    """Owns the device's memory of drawn tokens, [N] int64, and their way to the host."""

    def __init__(self, sampler: Sampler, max_rows: int, device: torch.device) -> None:
        self._sampler = sampler
        # Tokens, then the largest logit of each row: float32, two to a number.
        self._results_N = torch.zeros(max_rows + _num_pairs(max_rows), dtype=torch.int64).to(device)
        self._download = ops.new_download(len(self._results_N), device)

    @property
    def drawn_N(self) -> Tensor:
        """Return where the tokens of the last draw lie, by row."""
        return self._results_N

    def numbers(self, rows: DrawRows) -> npt.NDArray[np.float64] | None:
        """Return the random number of each row, on the host; None if none is drawn."""
        if self._sampler.specs_of(rows.params) is None:
            return None
        uniform_R = ops.uniform(
            rows.seeds, rows.sequence_indices, rows.positions, Purpose.SAMPLE, torch.device("cpu")
        )
        numbers: npt.NDArray[np.float64] = uniform_R.numpy()
        return numbers

    def draw(self, logits_RV: Tensor, rows: DrawRows, uniform_R: Tensor) -> Drawn:
        """Begin to choose a token for each row, at least one, and to bring them to the host."""
        num = len(logits_RV)
        peak_R, token_R = ops.argmax(logits_RV)
        specs = self._sampler.specs_of(rows.params)
        if specs is not None:
            ops.draw(logits_RV, peak_R, specs, uniform_R, out=token_R)
            # What is drawn for a row without numbers means nothing, but the next step reads it.
            token_R.clamp_(0, logits_RV.shape[1] - 1)
        self._results_N[:num] = token_R
        end = num + _num_pairs(num)
        self._results_N[num:end].view(torch.float32)[:num] = peak_R
        return Drawn(self._download.fetch(self._results_N[:end]), rows.positions)


def plain_from(sequence: DrawnSequence) -> int:
    """Return the first position of a sequence from which on its rows are plain."""
    params = sequence.params
    is_never = (
        bool(params.logit_bias)
        or params.allowed_token_ids is not None
        or bool(sequence.bad_words_ids)
        or has_penalty(params)
        or params.logprobs is not None
    )
    return sys.maxsize if is_never else sequence.num_prompt_tokens + params.min_tokens


def _num_pairs(num_rows: int) -> int:
    return -(-num_rows // 2)
