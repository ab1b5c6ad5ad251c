"""Tell the special tokens that a chat template writes from those that a user typed.

Before rendering, every place in a user's text where a special token begins gets a mark after its
first character, so that `<|im_end|>` can't be read as one. The mark is a Unicode noncharacter: no
case, no whitespace, never in honest text. After rendering, special tokens without a mark are the
template's. Marks leave the text again before anyone sees it, and where the tokenizer would take a
user's text for a special token, a copy of the tokenizer, with other spellings of special tokens,
encodes it.
"""

from __future__ import annotations

import re
import secrets
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from itertools import groupby, pairwise, takewhile
from operator import itemgetter

import tokenizers

from inferno.text.tokenizer_calls import ids_of

MARK = "\ufdd0"
END_MARK = "\ufdd1"
_MAX_COMPILED = 256  # beginnings in a regular expression, of which each takes 0.1 ms
_NO_TEXT = re.compile("[\ud800-\udfff\ufdd0\ufdd1]")


@dataclass(frozen=True, slots=True)
class RenderedChat:
    """A conversation as the model is to read it.

    special_spans   (start, end) of each special token in `text`; elsewhere the same letters are
                    only text.
    """

    text: str
    special_spans: tuple[tuple[int, int], ...]


class SpecialTokenEscaper:
    """The marker of text that looks like one of a tokenizer's special tokens."""

    def __init__(self, special_tokens: Iterable[str]) -> None:
        self._tokens = sorted({token for token in special_tokens if token})
        self._known = frozenset(self._tokens)
        lengths: defaultdict[str, set[int]] = defaultdict(set)
        for token in self._tokens:
            lengths[token[0]].add(len(token))
        # Of tokens that begin with a character, longest first.
        self._lengths = {first: sorted(found, reverse=True) for first, found in lengths.items()}
        self._start = re.compile(_beginning_of(_beginnings(self._tokens)))
        self._longest = max(map(len, self._tokens), default=0)

    def escape(self, value: object) -> object:
        """Return a copy of a value in which all texts are marked, keys of mappings included."""
        if isinstance(value, str):
            return self._escape_text(value)
        if isinstance(value, dict):
            return {self.escape(key): self.escape(item) for key, item in value.items()}
        if isinstance(value, list):
            return [self.escape(item) for item in value]
        return value

    def unescape(self, marked: str) -> RenderedChat:
        """Return the rendered text without marks, and where the template's special tokens are."""
        pieces: list[str] = []
        spans: list[tuple[int, int]] = []
        length = end = 0

        def add(piece: str) -> None:
            nonlocal length
            pieces.append(replace_nontext(piece.replace(MARK, "")))
            length += len(pieces[-1])

        for match in self._start.finditer(marked):
            start = match.start()
            if start >= end and (found := self._token_at(marked, start, unless_before=MARK)):
                add(marked[end:start])
                begin, end = length, start + found
                add(marked[start:end])
                spans.append((begin, length))
        add(marked[end:])
        return RenderedChat("".join(pieces), tuple(spans))

    def _token_at(self, text: str, start: int, *, unless_before: str | None = None) -> int:
        """Return the length of the longest token that begins at a place, 0 where none does.

        unless_before  what must not follow the token.
        """
        for length in self._lengths[text[start]]:
            end = start + length
            if text[start:end] in self._known and not (
                unless_before and text.startswith(unless_before, end)
            ):
                return length
        return 0

    def _escape_text(self, text: str) -> str:
        text = replace_nontext(text)
        found = (match.start() for match in self._start.finditer(text))
        starts = [start for start in found if self._token_at(text, start)]
        starts += self._cut_off_starts(text)
        if not starts:
            return text
        cuts = [0, *sorted(start + 1 for start in set(starts)), len(text)]
        return MARK.join(text[start:end] for start, end in pairwise(cuts))

    def _cut_off_starts(self, text: str) -> list[int]:
        # An end that begins like a special token could be completed by what follows.
        first = max(0, len(text) - self._longest + 1)
        return [start for start in range(first, len(text)) if self._is_beginning(text[start:])]

    def _is_beginning(self, text: str) -> bool:
        """Return whether some token goes on after this text; those are sorted behind it."""
        place = bisect_right(self._tokens, text)
        return place < len(self._tokens) and self._tokens[place].startswith(text)


def without_marks(text: str) -> str:
    """Return a template's text without the marks of the escaper."""
    return text.replace(MARK, "").replace(END_MARK, "")


def replace_nontext(text: str) -> str:
    """Return a text with U+FFFD in place of surrogates, which are no characters, and of marks."""
    return _NO_TEXT.sub("\ufffd", text)


def _beginnings(tokens: Collection[str]) -> set[str]:
    """Return the first characters of tokens, as many as leave few enough to compile."""
    for length in (8, 4, 2):
        found = {token[:length] for token in tokens}
        if len(found) <= _MAX_COMPILED:
            return found
    return {token[0] for token in tokens}


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


class PrivateTokenizer:
    """A copy of a tokenizer that knows special tokens only by spellings that nobody can guess.

    Real special tokens are respelled, the whole text is encoded at once, as by the original, and
    the ids of the private spellings are replaced by the real ones.
    """

    def __init__(self, backend: tokenizers.Tokenizer) -> None:
        self._backend = tokenizers.Tokenizer.from_str(backend.to_str())
        self._backend.encode_special_tokens = True  # their public spelling is but text
        secret = secrets.token_hex(16)
        added = backend.get_added_tokens_decoder()
        special = {token_id: token for token_id, token in added.items() if token.special}
        spellings = {token_id: f"<{secret}:{token_id}>" for token_id in special}
        # All at once: each call of add_tokens goes through those that are there.
        self._backend.add_tokens([_respelled(special[i], spellings[i]) for i in special])
        self._spelling = {special[i].content: spellings[i] for i in special}
        self._real_id = {self._backend.token_to_id(spellings[i]): i for i in special}

    def encode(self, chat: RenderedChat) -> list[int]:
        """Return the ids of a rendered conversation, with nothing put before or after."""
        ids = ids_of(self._backend, self._respell(chat), add_special_tokens=False)
        return [self._real_id.get(token_id, token_id) for token_id in ids]

    def _respell(self, chat: RenderedChat) -> str:
        borders = [0, *(border for span in chat.special_spans for border in span), len(chat.text)]
        pieces = [chat.text[start:end] for start, end in pairwise(borders)]
        pieces[1::2] = [self._spelling[piece] for piece in pieces[1::2]]
        return "".join(pieces)


def _respelled(token: tokenizers.AddedToken, spelling: str) -> tokenizers.AddedToken:
    return tokenizers.AddedToken(
        spelling,
        lstrip=token.lstrip,
        rstrip=token.rstrip,
        # Found wherever it stands: a secret must never be read as text.
        single_word=False,
        normalized=False,
        special=False,
    )
