"""Process rows of logits as their requests ask, before tokens are chosen: biases, bans, penalties.

The order is vLLM's: logit_bias; allowed tokens, bad words and min_tokens; then repetition,
frequency and presence penalty. Bans commute with the rest; a bias counts as the model's own.
Masks of constraints are bans as well, which `ops.argmax` and `ops.draw` take as they are.

A new processor is a function over rows beside those below, its call in `LogitsProcessors.process`,
and its line in `is_processed`.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from inferno import ops
from inferno.engine.sampling.bad_words import BadWords
from inferno.engine.step_plan import SequenceId
from inferno.ops import Penalties
from inferno.requests import SamplingParams

_BANNED = float("-inf")

_Asked = tuple[SamplingParams, frozenset[int], tuple[tuple[int, ...], ...]]


class LogitsRow(NamedTuple):
    """The use of one row of logits: to choose the token at one position of a sequence.

    A named tuple, for one is built for every token.

    seed            64 bits, signed, resolved at admission.
    position        of the token to be chosen, after token_ids and the proposed tokens.
    token_ids       prompt and output so far; the list of a sequence only grows, step by step.
    bad_words_ids   the last token of each is never chosen after the others.
    proposed        guesses that follow token_ids; the row counts only if all of them turn out
                    right.
    pending_row     the row of the last draw that has the token after token_ids, if only the device
                    knows that token yet.
    """

    sequence_id: SequenceId
    params: SamplingParams
    seed: int
    position: int
    token_ids: Sequence[int]
    num_prompt_tokens: int
    eos_token_ids: frozenset[int] = frozenset()
    bad_words_ids: tuple[tuple[int, ...], ...] = ()
    proposed: tuple[int, ...] = ()
    pending_row: int | None = None


class LogitsProcessors:
    """The processors of logits, with what is built for requests and counted of sequences.

    What is built for a request is kept as long as the request appears in every step; counts are
    kept until `forget`.
    """

    def __init__(self, vocab_size: int, device: torch.device) -> None:
        self._vocab_size = vocab_size
        self._device = device
        self._constraints: dict[str, tuple[_Asked, LogitConstraints]] = {}  # by request
        self._rows: list[_ConstrainedRow] = []
        self._edits = _Edits([], vocab_size)
        self._occurrences: dict[SequenceId, _Occurrences] = {}

    def forget(self, sequence_ids: Iterable[SequenceId]) -> None:
        """Drop the counts of these sequences."""
        for sequence_id in sequence_ids:
            self._occurrences.pop(sequence_id, None)

    def process(
        self, logits_RV: Tensor, rows: Mapping[int, LogitsRow], drawn_N: Tensor | None = None
    ) -> None:
        """Process float32 logits in place; `rows` says what to do, by row number, ascending.

        drawn_N     the tokens of the last draw by row, where some rows have a pending one.

        Token ids outside the vocabulary are ignored.
        """
        constrained = self._find_constraints(rows)
        if constrained != self._rows:  # they are the same for many steps
            self._edits, self._rows = _Edits(constrained, self._vocab_size), constrained
        self._edits.apply(logits_RV)
        ban_completed_words(logits_RV, constrained, rows)
        self.penalize(logits_RV, rows, drawn_N)

    def _find_constraints(self, rows: Mapping[int, LogitsRow]) -> list[_ConstrainedRow]:
        known, self._constraints = self._constraints, {}
        constrained = []
        for i, row in rows.items():
            asked = row.params, row.eos_token_ids, row.bad_words_ids
            request_id = row.sequence_id.request_id
            found = self._constraints.get(request_id) or known.get(request_id)
            # As a rule these are the same objects; if not, another request has the id by now.
            if found is None or found[0] != asked:
                found = asked, build_constraints(*asked, self._vocab_size, self._device)
            self._constraints[request_id] = found
            constrained.append(_ConstrainedRow(i, found[1], is_too_short(row)))
        return constrained

    def penalize(
        self, logits_RV: Tensor, rows: Mapping[int, LogitsRow], drawn_N: Tensor | None = None
    ) -> None:
        """Penalise in place the tokens that have occurred, in rows that ask for that."""
        rows = {i: row for i, row in rows.items() if has_penalty(row.params)}
        if rows:
            penalties = [self._penalties(row) for row in rows.values()]
            ops.penalize(logits_RV, list(rows), penalties, drawn_N)

    def _penalties(self, row: LogitsRow) -> Penalties:
        params = row.params
        return Penalties(
            params.repetition_penalty,
            params.frequency_penalty,
            params.presence_penalty,
            *self._count(row),
            row.pending_row,
        )

    def _count(self, row: LogitsRow) -> Counts:
        """Count the tokens that a sequence has got since the last time, so each is read once."""
        seen = self._occurrences.get(row.sequence_id)
        if seen is None:
            seen = self._occurrences[row.sequence_id] = _Occurrences(row.num_prompt_tokens)
        seen.read_new(row.token_ids)
        return seen.with_proposals(row.proposed) if row.proposed else seen.counts


def is_processed(row: LogitsRow) -> bool:
    """Return whether a processor, masks aside, would change this row's logits."""
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


def is_too_short(row: LogitsRow) -> bool:
    """Return whether the output has fewer than min_tokens tokens."""
    length = len(row.token_ids) + len(row.proposed) + (row.pending_row is not None)
    return length - row.num_prompt_tokens < row.params.min_tokens


# The processors


def ban_completed_words(
    logits_RV: Tensor, constrained: Sequence[_ConstrainedRow], rows: Mapping[int, LogitsRow]
) -> None:
    """Ban the tokens that would complete a bad word of several tokens now."""
    banned = []
    for i, constraints, _ in constrained:
        if constraints.bad_words is not None:
            assert rows[i].pending_row is None, "its last token decides what completes a word"
            row, longest = rows[i], constraints.bad_words.longest
            recent = [*row.token_ids[-longest:], *row.proposed] if row.proposed else row.token_ids
            banned += [(i, ids_N) for ids_N in constraints.bad_words.completions(recent)]
    places_N = _places(banned, logits_RV.shape[1])
    if places_N is not None:
        logits_RV.view(-1).index_fill_(0, places_N, _BANNED)


# The demands of a request, which stay the same in every step


@dataclass(frozen=True, slots=True, eq=False)
class LogitConstraints:
    """The demands of a request on its logits in every step, as tensors built once.

    Ids outside the vocabulary are left out; each list has a token once.

    bias_ids_N, bias_N  tokens, and what is added to their logits.
    most_V          what a logit may be at most: infinity, or minus that where a token isn't
                    allowed; None allows all.
    banned_ids_N    tokens that are bad words by themselves.
    ending_ids_N    tokens that would end the output, if there is a min_tokens.
    bad_words       bad words of several tokens.
    """

    bias_ids_N: Tensor
    bias_N: Tensor
    most_V: Tensor | None
    banned_ids_N: Tensor
    ending_ids_N: Tensor
    bad_words: BadWords | None


def build_constraints(
    params: SamplingParams,
    eos_token_ids: frozenset[int],
    bad_words_ids: Sequence[tuple[int, ...]],
    vocab_size: int,
    device: torch.device,
) -> LogitConstraints:
    """Build a request's constraints, on the device of its logits."""

    def known(token_ids: Iterable[int]) -> Tensor:
        """Return the ids that the vocabulary has, ascending, each once: [N] int64."""
        ids = sorted({token_id for token_id in token_ids if token_id < vocab_size})
        return ops.sent(np.array(ids, dtype=np.int64), device)

    endings = (*eos_token_ids, *params.stop_token_ids) if params.min_tokens else ()
    words = [word for word in bad_words_ids if len(word) > 1]
    biases = [bias for token_id, bias in sorted(params.logit_bias.items()) if token_id < vocab_size]
    most_V = None
    if params.allowed_token_ids is not None:
        most_V = torch.full((vocab_size,), _BANNED, device=device)
        most_V.index_fill_(0, known(params.allowed_token_ids), float("inf"))
    return LogitConstraints(
        bias_ids_N=known(params.logit_bias),
        bias_N=ops.sent(np.array(biases, dtype=np.float32), device),
        most_V=most_V,
        banned_ids_N=known(word[0] for word in bad_words_ids if len(word) == 1),
        ending_ids_N=known(endings),
        bad_words=BadWords(words, known) if words else None,
    )


class _ConstrainedRow(NamedTuple):
    """A row of logits, and what is asked of it; is_short: the output may not end yet."""

    number: int
    constraints: LogitConstraints
    is_short: bool


class _Edits:
    """The changes to some rows, in ascending order, that don't depend on what was said.

    They are kept for as long as the rows ask for the same.
    """

    def __init__(self, rows: Sequence[_ConstrainedRow], vocab_size: int) -> None:
        self._bias_places_N = _places([(i, c.bias_ids_N) for i, c, _ in rows], vocab_size)
        self._bias_N = torch.cat([c.bias_N for _, c, _ in rows]) if rows else None
        self._ceilings = list(_ceilings(rows))
        bans = [(i, c.banned_ids_N) for i, c, _ in rows]
        bans += [(i, c.ending_ids_N) for i, c, is_short in rows if is_short]
        self._banned_places_N = _places(bans, vocab_size)

    def apply(self, logits_RV: Tensor) -> None:
        """Change float32 logits in place; NaN stays NaN where tokens are not allowed."""
        if self._bias_places_N is not None and self._bias_N is not None:
            logits_RV.view(-1).scatter_add_(0, self._bias_places_N, self._bias_N)
        for rows, most_V in self._ceilings:
            some_RV = logits_RV[rows]
            torch.minimum(some_RV, most_V, out=some_RV)
        if self._banned_places_N is not None:
            logits_RV.view(-1).index_fill_(0, self._banned_places_N, _BANNED)


def _places(lists: Sequence[tuple[int, Tensor]], vocab_size: int) -> Tensor | None:
    """Return where the tokens of rows lie when row follows row, [N]; None if there are none."""
    sizes = [len(ids_N) for _, ids_N in lists]
    if not any(sizes):
        return None
    starts_N = np.repeat([i * vocab_size for i, _ in lists], sizes)
    ids_N = torch.cat([ids_N for _, ids_N in lists])
    return ids_N.add_(ops.sent(starts_N, ids_N.device))


def _ceilings(rows: Sequence[_ConstrainedRow]) -> Iterator[tuple[slice, Tensor]]:
    """Return bounds of logits, for rows that follow one another and share them."""
    # In rows that follow one another, number and place in the list differ by the same.
    runs = groupby(enumerate(rows), key=lambda each: (each[1].number - each[0], each[1][1]))
    for (_, constraints), run in runs:
        numbers = [row.number for _, row in run]
        if constraints.most_V is not None:
            yield slice(numbers[0], numbers[-1] + 1), constraints.most_V


# The tokens that a sequence has, counted


class Counts(NamedTuple):
    """The distinct tokens of a sequence, and how often its output has each."""

    token_ids: array[int]
    in_output: array[int]


class _Occurrences:
    """Counts of one sequence, which grow with it."""

    __slots__ = ("_num_prompt_tokens", "_num_read", "_places", "counts")

    def __init__(self, num_prompt_tokens: int) -> None:
        self._num_prompt_tokens = num_prompt_tokens
        self._num_read = 0
        self._places: dict[int, int] = {}
        self.counts = Counts(array("q"), array("q"))

    def read_new(self, token_ids: Sequence[int]) -> None:
        """Count the tokens that came since the last call, of all that the sequence has."""
        ids, in_output = self.counts
        for token_id in token_ids[self._num_read :]:
            place = self._places.setdefault(token_id, len(ids))
            if place == len(ids):
                ids.append(token_id)
                in_output.append(0)
            in_output[place] += self._num_read >= self._num_prompt_tokens
            self._num_read += 1

    def with_proposals(self, proposed: Sequence[int]) -> Counts:
        """Return what the counts would be if these tokens had been chosen; nothing is kept."""
        ids, in_output = self.counts.token_ids[:], self.counts.in_output[:]
        places = dict(self._places)
        for token_id in proposed:
            place = places.setdefault(token_id, len(ids))
            if place == len(ids):
                ids.append(token_id)
                in_output.append(0)
            in_output[place] += 1
        return Counts(ids, in_output)
