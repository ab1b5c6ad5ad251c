"""Shape logits as requests ask before tokens are chosen: biases, bans and penalties."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from inferno.engine.logit_edits import LogitEdits, WishedRow, ban
from inferno.engine.step_plan import SequenceId
from inferno.engine.wishes import Wishes, build_wishes
from inferno.requests import SamplingParams

_SMALLEST = torch.finfo(torch.float32).tiny
_LARGEST = torch.finfo(torch.float32).max

_Asked = tuple[SamplingParams, frozenset[int], tuple[tuple[int, ...], ...]]


class SampleRow(NamedTuple):
    """The use of one row of logits: to choose the token at `position` of one sample of a request.

    A named tuple, for one is built for every token.

    seed            64 bits, signed, resolved at admission.
    token_ids       prompt and output so far; of the same sequence they only grow, step by step.
    bad_words_ids   the last token of each is never chosen after the others.
    """

    request_id: str
    sample_index: int
    params: SamplingParams
    seed: int
    position: int
    token_ids: Sequence[int]
    num_prompt_tokens: int
    eos_token_ids: frozenset[int] = frozenset()
    bad_words_ids: tuple[tuple[int, ...], ...] = ()


class LogitShaper:
    """Applies biases, bans and penalties; owns what is built for requests and counted of samples.

    What is built is kept for as long as a request shows up step after step, and what is counted
    until it is to be forgotten. The order is vLLM's:
    logit_bias, allowed tokens, bad words, min_tokens, then repetition, frequency and presence
    penalty. Bans commute with the rest; a bias counts as the model's own.
    """

    def __init__(self, vocab_size: int, device: torch.device) -> None:
        self._vocab_size = vocab_size
        self._device = device
        self._wishes: dict[str, tuple[_Asked, Wishes]] = {}  # by request
        self._rows: list[WishedRow] = []
        self._edits = LogitEdits([], vocab_size)
        self._occurrences: dict[SequenceId, _Occurrences] = {}

    def forget(self, sequence_ids: Iterable[SequenceId]) -> None:
        """Drop the counts of these sequences."""
        for sequence_id in sequence_ids:
            self._occurrences.pop(sequence_id, None)

    def shape(self, logits_RV: Tensor, rows: Mapping[int, SampleRow]) -> None:
        """Shape float32 logits in place; `rows` says what to do, by row number, ascending.

        Token ids that the vocabulary doesn't have are passed over.
        """
        wished = self._find_wishes(rows)
        if wished != self._rows:  # they are the same for many steps
            self._edits, self._rows = LogitEdits(wished, self._vocab_size), wished
        self._edits.apply(logits_RV)
        ban(logits_RV, list(_completions(wished, rows)))
        self._penalize(logits_RV, {i: row for i, row in rows.items() if has_penalty(row.params)})

    def _find_wishes(self, rows: Mapping[int, SampleRow]) -> list[WishedRow]:
        known, self._wishes = self._wishes, {}
        wished = []
        for i, row in rows.items():
            asked = row.params, row.eos_token_ids, row.bad_words_ids
            found = self._wishes.get(row.request_id) or known.get(row.request_id)
            # As a rule these are the same objects; if not, another request has the id by now.
            if found is None or found[0] != asked:
                found = asked, self._build(asked)
            self._wishes[row.request_id] = found
            wished.append(WishedRow(i, found[1], is_too_short(row)))
        return wished

    def _build(self, asked: _Asked) -> Wishes:
        return build_wishes(*asked, self._vocab_size, self._device)

    def _penalize(self, logits_RV: Tensor, rows: Mapping[int, SampleRow]) -> None:
        if rows:
            occurrences = [self._count(row) for row in rows.values()]
            params = [row.params for row in rows.values()]
            penalize(logits_RV, list(rows), params, occurrences)

    def _count(self, row: SampleRow) -> _Occurrences:
        """Count the tokens that a sequence has got since the last time, so each is read once."""
        sequence_id = SequenceId(row.request_id, row.sample_index)
        seen = self._occurrences.get(sequence_id)
        if seen is None:
            seen = self._occurrences[sequence_id] = _Occurrences(row.num_prompt_tokens)
        seen.read_new(row.token_ids)
        return seen


def is_shaped(row: SampleRow) -> bool:
    """Return whether anything here would change this row's logits."""
    params = row.params
    return (
        bool(params.logit_bias)
        or params.allowed_token_ids is not None
        or bool(row.bad_words_ids)
        or is_too_short(row)
        or has_penalty(params)
    )


def has_penalty(params: SamplingParams) -> bool:
    """Return whether tokens that have occurred are penalised."""
    return (
        params.repetition_penalty != 1.0
        or params.presence_penalty != 0.0
        or params.frequency_penalty != 0.0
    )


def is_too_short(row: SampleRow) -> bool:
    """Return whether the output has fewer than min_tokens tokens."""
    return len(row.token_ids) - row.num_prompt_tokens < row.params.min_tokens


def penalize(
    logits_RV: Tensor,
    rows: Sequence[int],
    params: Sequence[SamplingParams],
    occurrences: Sequence[_Occurrences],
) -> None:
    """Penalise the tokens that have occurred in the requests of `rows`, all rows at once.

    The N pairs of row and token lie flat; each is there once, so nothing depends on their order.
    """
    num_tokens = torch.tensor([len(seen.ids) for seen in occurrences])
    penalties = torch.tensor(
        [
            (max(p.repetition_penalty, _SMALLEST), p.frequency_penalty, p.presence_penalty)
            for p in params
        ]
    )
    device = logits_RV.device
    row_N = torch.tensor(rows).repeat_interleave(num_tokens).to(device)
    id_N = _concatenate([seen.ids for seen in occurrences]).to(device)
    count_N = _concatenate([seen.counts for seen in occurrences]).to(device)
    penalties_N3 = penalties.repeat_interleave(num_tokens, dim=0).to(device)
    repetition_N, frequency_N, presence_N = penalties_N3.unbind(1)
    logit_N = logits_RV[row_N, id_N]
    logit_N = torch.where(logit_N > 0, logit_N / repetition_N, logit_N * repetition_N)
    logit_N -= count_N * frequency_N + (count_N > 0) * presence_N
    # A tiny repetition penalty may overflow, and infinity is no logit.
    logits_RV[row_N, id_N] = logit_N.clamp_(max=_LARGEST)


class _Occurrences:
    """The distinct tokens of one sequence and how often its output has each; grows with it."""

    __slots__ = ("_num_prompt_tokens", "_slots", "counts", "ids", "num_read")

    def __init__(self, num_prompt_tokens: int) -> None:
        self._num_prompt_tokens = num_prompt_tokens
        self._slots: dict[int, int] = {}
        self.ids = array("q")
        self.counts = array("q")
        self.num_read = 0

    def read_new(self, token_ids: Sequence[int]) -> None:
        """Count the tokens that came since the last call, of all that the request has."""
        for token_id in token_ids[self.num_read :]:
            slot = self._slots.setdefault(token_id, len(self.ids))
            if slot == len(self.ids):
                self.ids.append(token_id)
                self.counts.append(0)
            self.counts[slot] += self.num_read >= self._num_prompt_tokens
            self.num_read += 1


def _completions(
    wished: Sequence[WishedRow], rows: Mapping[int, SampleRow]
) -> Iterator[tuple[int, Tensor]]:
    """The tokens that would complete a bad word now, as lists [N] with the numbers of rows."""
    for i, wishes, _ in wished:
        if wishes.bad_words is not None:
            for ids_N in wishes.bad_words.completions(rows[i].token_ids):
                yield i, ids_N


def _concatenate(parts: Sequence[array[int]]) -> Tensor:
    return torch.from_numpy(np.concatenate(parts))
