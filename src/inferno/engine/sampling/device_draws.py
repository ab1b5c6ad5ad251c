"""Tokens that a device draws by itself, from rows of logits that it processes too, while the host
goes on.

A row is free if its token doesn't depend on anything that the host has yet to learn. Biases, bans,
penalties and min_tokens don't make the host wait: of the text before, only the last token may be
unknown to it, and that token is on the device. Where all rows of a step are free, their tokens are
chosen on the device, stay there for the next step, and are on their way to the host with the
log-probabilities that are asked for. Rows with masks, with bad words of several tokens, or with
log-probabilities of tokens of their own wait for the token before.
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
from inferno.engine.sampling.logits_processors import LogitsRow, has_penalty
from inferno.engine.sampling.sampler import (
    Sampled,
    Sampler,
    explained_ids,
    explanation,
    non_finite,
    result_of,
)
from inferno.engine.step_plan import SequenceId
from inferno.ops import Fetched, Purpose
from inferno.requests import SamplingParams
from inferno.sampling_params import MAX_LOGPROBS


class DrawnSequence(Protocol):
    """The fields of a sequence's record that decide how its tokens are drawn."""

    @property
    def sequence_id(self) -> SequenceId: ...

    @property
    def params(self) -> SamplingParams: ...

    @property
    def seed(self) -> int: ...

    @property
    def token_ids(self) -> Sequence[int]: ...

    @property
    def num_prompt_tokens(self) -> int: ...

    @property
    def eos_token_ids(self) -> frozenset[int]: ...

    @property
    def bad_words_ids(self) -> tuple[tuple[int, ...], ...]: ...

    @property
    def pending_row(self) -> int: ...


class DrawRows(NamedTuple):
    """The rows of a step that are to be drawn, in their order.

    positions       of the tokens to be chosen.
    num_demanding   for how many steps some of the sequences ask for more than a draw; 0: their
                    tokens depend on temperature and the like alone.
    """

    sequences: list[DrawnSequence]
    params: list[SamplingParams]
    seeds: list[int]
    sequence_indices: list[int]
    positions: list[int]
    num_demanding: int

    def next(self) -> DrawRows:
        """Return the rows of the step that follows, with each sequence's next token."""
        return self._replace(
            positions=[position + 1 for position in self.positions],
            num_demanding=self.num_demanding - (0 < self.num_demanding < sys.maxsize),
        )


class Drawn:
    """The drawn tokens of a step, on their way to the host."""

    def __init__(self, fetched: Fetched | None, positions: Sequence[int]) -> None:
        self._fetched = fetched
        self._positions = positions

    def wait(self) -> tuple[list[int], dict[int, Sampled]]:
        """Wait for the tokens of all rows; return them, and by row a Sampled that tells more."""
        num = len(self._positions)
        if self._fetched is None:
            return [], {}
        found_N = self._fetched.wait().numpy()
        token_ids: list[int] = found_N[:num].tolist()
        peak_R = found_N[num:].view(np.float32)[:num]
        failed = np.flatnonzero(~np.isfinite(peak_R)).tolist()
        return token_ids, {
            i: Sampled(0, None, non_finite(self._positions[i], float(peak_R[i]))) for i in failed
        }


class ProcessedDrawn(Drawn):
    """The drawn tokens of rows that were processed before, and what is told of each."""

    def __init__(self, fetched: Fetched, rows: Sequence[LogitsRow], num_explained: int) -> None:
        super().__init__(fetched, [row.position for row in rows])
        self._rows = rows
        self._num_explained = num_explained

    def wait(self) -> tuple[list[int], dict[int, Sampled]]:
        assert self._fetched is not None, "there are rows"
        rows, num = self._rows, len(self._rows)
        found_N = self._fetched.wait().numpy()
        token_ids: list[int] = found_N[:num].tolist()
        raw_peaks, peaks = found_N[num : 3 * num].view(np.float64).reshape(2, num).tolist()
        ids_RC, logprob_RC = found_N[3 * num :].reshape(2, num, self._num_explained)
        told: dict[int, Sampled] = {}
        for i, row in enumerate(rows):
            sampled = result_of(row, token_ids[i], raw_peaks[i], peaks[i])
            if sampled.error is None and row.params.logprobs is not None:
                logprobs = logprob_RC[i].view(np.float64).tolist()
                explained = explanation(ids_RC[i].tolist(), logprobs, row.params.logprobs)
                sampled = sampled._replace(logprobs=explained)
            if sampled.error is not None or sampled.logprobs is not None:
                told[i] = sampled
        return token_ids, told


class DeviceDraws:
    """The owner of the device's memory of drawn tokens, [N] int64, and of their way to the host."""

    def __init__(self, sampler: Sampler, max_rows: int, device: torch.device) -> None:
        self._sampler = sampler
        # Tokens, then the largest logit of each row: float32, two to a number.
        self._results_N = torch.zeros(max_rows + _num_pairs(max_rows), dtype=torch.int64).to(device)
        self._download = ops.new_download(len(self._results_N), device)
        # Tokens, two peaks, and log-probabilities with their tokens: what processed rows may tell.
        num_told = max_rows * (3 + 2 * (1 + MAX_LOGPROBS))
        self._long_download = ops.new_download(num_told, device)

    @property
    def drawn_N(self) -> Tensor:
        """Return where the tokens of the last draw lie, by row."""
        return self._results_N

    def numbers(self, rows: DrawRows) -> npt.NDArray[np.float64] | None:
        """Return the random number of each row, on the host; None if no row is drawn with one."""
        if self._sampler.specs_of(rows.params) is None:
            return None
        uniform_R = ops.uniform(
            rows.seeds, rows.sequence_indices, rows.positions, Purpose.SAMPLE, torch.device("cpu")
        )
        numbers: npt.NDArray[np.float64] = uniform_R.numpy()
        return numbers

    def draw(self, logits_RV: Tensor, rows: DrawRows, uniform_R: Tensor) -> Drawn:
        """Begin to choose a token for each of the rows, and to bring the tokens to the host.

        There is at least one row.
        """
        if rows.num_demanding:
            return self._draw_processed(logits_RV, rows, uniform_R)
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

    def _draw_processed(self, logits_RV: Tensor, rows: DrawRows, uniform_R: Tensor) -> Drawn:
        """Begin to process rows and to choose their tokens, and to bring what is asked for."""
        num, vocab_size = logits_RV.shape
        uses = [
            logits_row(each, at) for each, at in zip(rows.sequences, rows.positions, strict=True)
        ]
        # Where a token is still to be read by the host, it lies where this draw's will.
        processed = self._sampler.process(logits_RV, uses, self._results_N)
        token_R = processed.token_R
        if processed.specs is not None:
            peak_R = processed.peak_R
            ops.draw(processed.logits_RV, peak_R, processed.specs, uniform_R, out=token_R)
            token_R.clamp_(0, vocab_size - 1)
        self._results_N[:num] = token_R
        peaks_2R = torch.stack((processed.raw_peak_R, processed.peak_R)).double()
        values = [token_R, peaks_2R.view(torch.int64).flatten()]
        asked = [params.logprobs for params in rows.params if params.logprobs is not None]
        num_explained = 0
        if asked:
            ids_RC = explained_ids(processed.raw_logits_RV, token_R.unsqueeze(1), max(asked))
            logprob_RC = ops.log_probabilities(processed.raw_logits_RV, ids_RC)
            values += [ids_RC.flatten(), logprob_RC.view(torch.int64).flatten()]
            num_explained = ids_RC.shape[1]
        return ProcessedDrawn(self._long_download.fetch(torch.cat(values)), uses, num_explained)


def is_free(sequence: DrawnSequence) -> bool:
    """Return whether a sequence's tokens can be drawn before the host has read the last one."""
    return not sequence.params.logprob_token_ids and all(
        len(word) == 1 for word in sequence.bad_words_ids
    )


def num_demanding(sequence: DrawnSequence, position: int) -> int:
    """Return for how many steps from a position on a sequence asks for more than a draw."""
    params = sequence.params
    is_always = (
        bool(params.logit_bias)
        or params.allowed_token_ids is not None
        or bool(sequence.bad_words_ids)
        or has_penalty(params)
        or params.logprobs is not None
    )
    if is_always:
        return sys.maxsize
    return max(0, sequence.num_prompt_tokens + params.min_tokens - position)


def logits_row(sequence: DrawnSequence, position: int, proposed: tuple[int, ...] = ()) -> LogitsRow:
    """Return the row of logits that chooses a sequence's token at a position."""
    is_pending = position > len(sequence.token_ids) + len(proposed)
    return LogitsRow(
        sequence.sequence_id,
        sequence.params,
        sequence.seed,
        position,
        sequence.token_ids,
        sequence.num_prompt_tokens,
        sequence.eos_token_ids,
        sequence.bad_words_ids,
        proposed,
        sequence.pending_row if is_pending else None,
    )


def _num_pairs(num_rows: int) -> int:
    return -(-num_rows // 2)
