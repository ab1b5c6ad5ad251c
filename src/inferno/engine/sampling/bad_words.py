"""Find the tokens that would complete a bad word after the tokens so far."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence

from torch import Tensor


class BadWords:
    """Bad words of two tokens or more; a look-up takes little time, however many words there are.

    The words' beginnings, all but the last token, are reversed and sorted. The beginnings that a
    text ends with are prefixes of the reversed text, and of one another, so the nearest in the
    order leads to all of them.

    known   makes a tensor [N] of the token ids that the vocabulary has.
    longest the number of tokens of the longest beginning.
    """

    def __init__(
        self, words: Iterable[Sequence[int]], known: Callable[[Iterable[int]], Tensor]
    ) -> None:
        lasts: dict[tuple[int, ...], list[int]] = defaultdict(list)
        for *start, last in words:
            lasts[tuple(reversed(start))].append(last)
        self._starts = sorted(lasts)
        self._shorter = _longest_prefixes(self._starts)
        self._lasts = [known(lasts[start]) for start in self._starts]
        self.longest = max(map(len, self._starts), default=0)

    def completions(self, token_ids: Sequence[int]) -> list[Tensor]:
        """Return the tokens that must not come next, as a few tensors [N]."""
        recent = tuple(token_ids[: -self.longest - 1 : -1])
        nearest = bisect_right(self._starts, recent) - 1
        if nearest < 0:
            return []
        num_shared = _num_shared(self._starts[nearest], recent)
        found = []
        place: int | None = nearest
        while place is not None:
            if len(self._starts[place]) <= num_shared:
                found.append(self._lasts[place])
            place = self._shorter[place]
        return found


def _longest_prefixes(ordered: Sequence[tuple[int, ...]]) -> list[int | None]:
    """Return for each word the place of the longest other that it begins with."""
    places: list[int | None] = []
    prefixes: list[int] = []  # places of what the last one begins with, and its own
    for place, one in enumerate(ordered):
        while prefixes and one[: len(ordered[prefixes[-1]])] != ordered[prefixes[-1]]:
            prefixes.pop()
        places.append(prefixes[-1] if prefixes else None)
        prefixes.append(place)
    return places


def _num_shared(one: Sequence[int], other: Sequence[int]) -> int:
    """Return how many tokens both have in common at the front."""
    for i, (a, b) in enumerate(zip(one, other, strict=False)):
        if a != b:
            return i
    return min(len(one), len(other))
