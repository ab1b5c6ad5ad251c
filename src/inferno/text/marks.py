"""Tell the special tokens that a chat template writes from those that a user typed.

Before rendering, every place in a user's text where a special token begins gets a mark after its
first character, so that `<|im_end|>` can't be read as one. The mark is a Unicode noncharacter: no
case, no whitespace, never in honest text. After rendering, special tokens without a mark are the
template's. Marks leave the text again before anyone sees it.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from itertools import groupby, pairwise, takewhile
from operator import itemgetter

MARK = "\ufdd0"
END_MARK = "\ufdd1"
_NO_TEXT = re.compile("[\ud800-\udfff\ufdd0\ufdd1]")


@dataclass(frozen=True, slots=True)
class RenderedChat:
    """A conversation as the model is to read it.

    special_spans   (start, end) of each special token in `text` that counts as one; what looks like
                    a special token elsewhere is only text.
    """

    text: str
    special_spans: tuple[tuple[int, int], ...]


class SpecialTokenMarks:
    """The marks for one tokenizer's special tokens."""

    def __init__(self, special_tokens: Iterable[str]) -> None:
        tokens = {token for token in special_tokens if token}
        self._token = re.compile(f"({_any_of(tokens)})(?!{MARK})")
        self._start = re.compile(_beginning_of(tokens))
        self._beginnings = {token[:end] for token in tokens for end in range(1, len(token))}
        self._longest_beginning = max(map(len, self._beginnings), default=0)

    def mark(self, value: object) -> object:
        """Return the same value with every text in it marked, keys of mappings included."""
        if isinstance(value, str):
            return self._mark_text(value)
        if isinstance(value, dict):
            return {self.mark(key): self.mark(item) for key, item in value.items()}
        if isinstance(value, list):
            return [self.mark(item) for item in value]
        return value

    def unmark(self, marked: str) -> RenderedChat:
        """Return the rendered text without marks, and where the template's special tokens are."""
        pieces: list[str] = []
        spans: list[tuple[int, int]] = []
        length = 0
        for index, piece in enumerate(self._token.split(marked)):
            text = replace_nontext(piece.replace(MARK, ""))
            if index % 2:  # split() alternates between what is between tokens and tokens
                spans.append((length, length + len(text)))
            pieces.append(text)
            length += len(text)
        return RenderedChat("".join(pieces), tuple(spans))

    def _mark_text(self, text: str) -> str:
        text = replace_nontext(text)
        starts = [match.start() for match in self._start.finditer(text)]
        starts += self._cut_off_starts(text)
        if not starts:
            return text
        cuts = [0, *sorted(start + 1 for start in set(starts)), len(text)]
        return MARK.join(text[start:end] for start, end in pairwise(cuts))

    def _cut_off_starts(self, text: str) -> list[int]:
        # What ends like the beginning of a special token could be completed by what comes next.
        first = max(0, len(text) - self._longest_beginning)
        return [start for start in range(first, len(text)) if text[start:] in self._beginnings]


def replace_nontext(text: str) -> str:
    """Return the text with U+FFFD for surrogates, which are no characters, and our own marks."""
    return _NO_TEXT.sub("\ufffd", text)


def _any_of(texts: Collection[str]) -> str:
    # One path through common beginnings: a plain alternation would try hundreds at each character.
    if not texts:
        return "(?!)"
    branches = []
    for _, group in groupby(sorted(texts), key=itemgetter(0)):
        alike = list(group)
        common = _common_beginning(alike[0], alike[-1])  # sorted: of all
        rest = {text.removeprefix(common) for text in alike}
        longer = rest - {""}
        optional = "?" if "" in rest else ""
        branches.append(re.escape(common) + (_any_of(longer) + optional if longer else ""))
    return f"(?:{'|'.join(branches)})"


def _beginning_of(texts: Collection[str]) -> str:
    # The first character is taken: where a pattern can only begin so, the search skips the others,
    # five times as fast as where it looks ahead at each.
    branches = []
    for first, group in groupby(sorted(texts), key=itemgetter(0)):
        rest = {text[1:] for text in group}
        branches.append(re.escape(first) + ("" if "" in rest else f"(?={_any_of(rest)})"))
    return "|".join(branches) or "(?!)"


def _common_beginning(one: str, other: str) -> str:
    pairs = takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False))
    return "".join(char for char, _ in pairs)
