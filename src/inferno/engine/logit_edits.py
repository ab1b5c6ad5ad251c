"""Biases and bans of all rows of a step at once, kept for as long as the rows ask for the same."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from inferno.engine.wishes import Wishes

_BANNED = float("-inf")


class WishedRow(NamedTuple):
    """A row of logits, and what is asked of it; is_short: the output may not end yet."""

    number: int
    wishes: Wishes
    is_short: bool


class LogitEdits:
    """The changes to some rows' logits, in ascending order, that don't depend on what was said."""

    def __init__(self, rows: Sequence[WishedRow], vocab_size: int) -> None:
        self._bias_places_N = _places([(i, w.bias_ids_N) for i, w, _ in rows], vocab_size)
        self._bias_N = torch.cat([w.bias_N for _, w, _ in rows]) if rows else None
        self._ceilings = list(_ceilings(rows))
        bans = [(i, w.banned_ids_N) for i, w, _ in rows]
        bans += [(i, w.ending_ids_N) for i, w, is_short in rows if is_short]
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


def ban(logits_RV: Tensor, banned: Sequence[tuple[int, Tensor]]) -> None:
    """Give tokens no chance: lists [N] of ids, each with the number of its row."""
    places_N = _places(banned, logits_RV.shape[1])
    if places_N is not None:
        logits_RV.view(-1).index_fill_(0, places_N, _BANNED)


def _places(lists: Sequence[tuple[int, Tensor]], vocab_size: int) -> Tensor | None:
    """Return where the tokens of rows lie when row follows row, [N]; None if there are none."""
    sizes = [len(ids_N) for _, ids_N in lists]
    if not any(sizes):
        return None
    starts_N = np.repeat([i * vocab_size for i, _ in lists], sizes)
    ids_N = torch.cat([ids_N for _, ids_N in lists])
    return ids_N.add_(torch.from_numpy(starts_N).to(ids_N.device))


def _ceilings(rows: Sequence[WishedRow]) -> Iterator[tuple[slice, Tensor]]:
    """Return bounds of logits, for rows that follow one another and share them."""
    # Of rows that follow one another, number and place in the list differ by the same.
    runs = groupby(enumerate(rows), key=lambda each: (each[1].number - each[0], each[1].wishes))
    for (_, wishes), run in runs:
        numbers = [row.number for _, row in run]
        if wishes.most_V is not None:
            yield slice(numbers[0], numbers[-1] + 1), wishes.most_V
