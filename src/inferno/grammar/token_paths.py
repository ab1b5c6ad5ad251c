"""The fewest tokens to the end of a text, and the tokens that a grammar forces.

A recognizer counts in bytes; a model writes tokens. From a place in a text all short ways to an
end are looked through at once: those with the fewest bytes, and the longer texts of terminals that
have few texts (a name of several). Where bytes are forced only their canonical tokens count, for a
constraint admits no others there.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple

from inferno.grammar.recognizer import MARK, Recognizer, State, id_of_mark
from inferno.grammar.regex import TooComplex

# Bytes of a forced run that are looked at: its first token depends on no more of them.
_MOST_FORCED = 256
# Where a text is free, these characters stand for all others: long runs of each are one token in
# many vocabularies.
_FAVOURED = b"a 0-1=*_.e2"
_RANKS = {
    byte: rank
    for rank, byte in enumerate([*_FAVOURED, *(b for b in range(256) if b not in _FAVOURED)])
}
# Places that are looked through from one place on, before a text of single bytes is good enough.
_MOST_PLACES = 20_000
_MOST_KEPT = 200_000
_MOST_PASSED = 256  # places, before a search is to answer: some milliseconds
_FEW_BYTES = 16
_MOST_FILLED = 32
_MOST_OF_LIST, _MOST_ENDS = 64, 3  # places that one byte may lead to: in lists of texts, elsewhere
# Bytes by which a text may be longer than the shortest and still be looked at: a longer one of
# fewer tokens is a word of one token beside one of several.
_MOST_LONGER = 8
_FEW_BYTES_TO_ONE = 8  # that lead to the same place

_NEVER = 1 << 30
_UTF8_BYTES = {*range(0xC0), *range(0xC2, 0xF5)}


class Vocabulary:
    """The texts of a model's tokens, in order.

    texts       of tokens by their ids; those of special tokens are texts of marks.
    encode      returns the canonical tokens of a text: of a whole one (True), or of the beginning
                of one, as far as what follows can't change them.
    """

    def __init__(
        self, texts: Mapping[int, bytes], encode: Callable[[bytes, bool], list[int]]
    ) -> None:
        pairs = sorted((text, token_id) for token_id, text in texts.items() if text)
        self.texts = [text for text, _ in pairs]
        self.ids = [token_id for _, token_id in pairs]
        self.by_id = texts
        self.encode = encode
        self.fillers = _fillers(texts)
        self.has_all_bytes = {text[0] for text in self.texts if len(text) == 1} >= _UTF8_BYTES

    def within(self, prefix: bytes, low: int, high: int) -> tuple[int, int]:
        """Return the part of low:high in which tokens begin with a prefix."""
        low = bisect_left(self.texts, prefix, low, high)
        after = _after_all(prefix)
        return low, high if after is None else bisect_left(self.texts, after, low, high)


class _Way(NamedTuple):
    """The way on from a place: tokens to an end, and the first of them (-1 at an end)."""

    num_tokens: int
    token_id: int


class TokenPaths:
    """The ways of one grammar's texts in one vocabulary.

    banned      tokens that are never said, unless the grammar forces them.
    """

    def __init__(
        self,
        recognizer: Recognizer,
        vocabulary: Vocabulary,
        banned: frozenset[int] = frozenset(),
    ) -> None:
        self.recognizer = recognizer
        self.vocabulary = vocabulary
        self._banned = banned
        self._forced: dict[State, int | None] = {}
        self._ways: dict[State, _Way] = {}
        self._enough: dict[State, int] = {}  # tokens that are, though fewer may be as well
        self._short: dict[State, list[tuple[int, State]]] = {}
        self._has_given_up = False  # then what isn't known yet is reckoned in single bytes
        self._known_steps: dict[State, list[tuple[int, State]]] = {}

    def forced(self, state: State) -> int | None:
        """Return the one token that may come next where bytes are forced; else None."""
        try:
            return self._forced[state]
        except KeyError:
            if len(self._forced) >= _MOST_KEPT:
                self._forced.clear()
            found = self._forced[state] = self._find_forced(state)
            return found

    def fits(self, state: State, num_tokens: int) -> bool:
        """Return whether so many tokens are enough for a text to end."""
        is_free = self.vocabulary.has_all_bytes and not self._banned
        if is_free and self._fits_surely(state, num_tokens):
            return True
        return self.num_to_end(state) <= num_tokens

    def _fits_surely(self, state: State, num_tokens: int) -> bool:
        """Return whether a way fits that is found at once: a shortest text, byte by byte.

        Where bytes are forced, their tokens count; as soon as what is left fits, it fits.
        """
        passed: list[State] = []
        place: State | None = state
        num_left = num_tokens
        while place is not None and num_left >= 0 and len(passed) < _MOST_PASSED:
            known = self._ways.get(place)
            most = place.distance if known is None else known.num_tokens
            if min(most, self._enough.get(place, _NEVER)) <= num_left:
                self._note_enough(passed, num_tokens)
                return True
            if known is not None:
                return False
            passed.append(place)
            forced = self.forced(place)
            if forced is not None:
                text = self.vocabulary.by_id[forced]
            else:
                text = self.recognizer.first_of_shortest(place, _FAVOURED)
            place = self.recognizer.advance(place, text)
            num_left -= 1
        return False

    def _note_enough(self, places: Iterable[State], num_tokens: int) -> None:
        """Note for places, each a token after the one before, how many tokens are enough."""
        if len(self._enough) >= _MOST_KEPT:
            self._enough.clear()
        for used, place in enumerate(places):
            self._enough[place] = min(num_tokens - used, self._enough.get(place, _NEVER))

    def num_to_end(self, state: State) -> int:
        """Return how many tokens a text needs to end; a huge number where bans leave no way."""
        return self._way(state).num_tokens

    def next_to_end(self, state: State) -> int:
        """Return the first token of a shortest way to an end; the text isn't at one yet."""
        return self._way(state).token_id

    def _way(self, state: State) -> _Way:
        found = self._ways.get(state)
        if found is None and self._has_given_up:
            return self._in_bytes(state)
        if found is None:
            if len(self._ways) >= _MOST_KEPT:
                self._ways.clear()
            try:
                found = self._search(state)
            except TooComplex:
                self._has_given_up = True
                found = self._in_bytes(state)
        return found

    def _in_bytes(self, state: State) -> _Way:
        """Return a way of single bytes, which is one if not the shortest."""
        return _Way(state.distance, self._first_byte(state))

    def _search(self, first: State) -> _Way:
        """Find a shortest way from a place, by its number of tokens, and keep all places on it."""
        ways = self._ways
        came: dict[State, tuple[State, int]] = {}  # whence, and by which token
        level, num_tokens = [first], 0
        best: tuple[int, State] = (_NEVER, first)
        while level and num_tokens < best[0]:
            following: list[State] = []
            for state in level:
                known = _Way(0, -1) if state.is_end else ways.get(state)
                if known is not None:
                    best = min(best, (num_tokens + known.num_tokens, state), key=_first)
                    continue
                if len(came) >= _MOST_PLACES:
                    self._has_given_up = True
                    return self._way(first)
                for token_id, end in self._steps_from(state):
                    if end is not first and end not in came:
                        came[end] = state, token_id
                        following.append(end)
            level, num_tokens = following, num_tokens + 1
        total, state = best
        if total >= _NEVER:
            ways[first] = _Way(_NEVER, -1)
            return ways[first]
        rest = 0 if state.is_end else ways[state].num_tokens
        while state is not first:
            state, token_id = came[state]
            rest += 1
            ways[state] = _Way(rest, token_id)
        return ways.get(first) or _Way(0, -1)

    def _steps_from(self, state: State) -> list[tuple[int, State]]:
        found = self._known_steps.get(state)
        if found is None:
            if len(self._known_steps) >= _MOST_KEPT:
                self._known_steps.clear()
            found = self._known_steps[state] = list(self._steps(state))
        return found

    def _steps(self, state: State) -> Iterator[tuple[int, State]]:
        """Yield the tokens that short ways begin with, and where each leads."""
        forced = self.forced(state)
        if forced is not None:
            end = self.recognizer.advance(state, self.vocabulary.by_id[forced])
            assert end is not None, "what is forced goes on"
            yield forced, end
            return
        vocabulary = self.vocabulary
        for token_id in vocabulary.fillers if self._lacks_any(state) else ():
            following = self.recognizer.advance(state, vocabulary.by_id[token_id])
            is_nearer = following is not None and following.distance < state.distance
            if following is not None and is_nearer and token_id not in self._banned:
                yield token_id, following
        places = [(state, b"", 0, len(vocabulary.texts))]
        while places:
            place, text, low, high = places.pop()
            for byte, following in self._short_bytes(place):
                longer = text + bytes((byte,))
                first, last = vocabulary.within(longer, low, high)
                if first == last:
                    continue
                if vocabulary.texts[first] == longer:
                    token_id = vocabulary.ids[first]
                    if token_id not in self._banned:
                        yield token_id, following
                if not following.is_end or following.scans:
                    places.append((following, longer, first, last))

    def _short_bytes(self, state: State) -> Iterable[tuple[int, State]]:
        """Return the bytes that short ways go on with, and where each leads."""
        found = self._short.get(state)
        if found is None:
            if len(self._short) >= _MOST_KEPT:
                self._short.clear()
            found = self._short[state] = list(self._find_short_bytes(state))
        return found

    def _lacks_any(self, state: State) -> bool:
        """Return whether a text lacks characters, whichever, here or in the string to be begun."""
        for begun in (state, self.recognizer.advance(state, b'"')):
            if begun is not None:
                following = self.recognizer.advance(begun, _FAVOURED[:1])
                if following is not None and following.distance == begun.distance - 1:
                    return True
        return False

    def _find_short_bytes(self, state: State) -> Iterator[tuple[int, State]]:
        narrow: set[int] = set()  # bytes of which few others may come instead
        wide: set[int] = set()
        open_bytes: set[int] = set()  # that go on with what isn't whole yet
        for terminal, inner, _ in state.scans:
            automaton = self.recognizer.automata[terminal]
            is_whole = inner != automaton.start and automaton.accepts(inner)
            for first, last, _ in automaton.ranges(inner):
                if last - first < _FEW_BYTES:
                    narrow.update(range(first, last + 1))
                    open_bytes.update(() if is_whole else range(first, last + 1))
                else:
                    few = [byte for byte in _FAVOURED if first <= byte <= last]
                    wide.update(few or range(first, first + _FEW_BYTES))
        is_list = any(self.recognizer.is_listed(terminal) for terminal, _, _ in state.scans)
        most_ends = _MOST_OF_LIST if is_list else _MOST_ENDS
        ends: dict[int, dict[State, int]] = {}  # by their distance: how many bytes lead to each
        for byte in sorted(wide | narrow, key=_RANKS.__getitem__):
            following = self.recognizer.advance(state, bytes((byte,)))
            if following is None:
                continue
            if following.distance != state.distance - 1:
                is_near = following.distance < state.distance + _MOST_LONGER
                if wide or byte not in open_bytes or byte in b" \n\r\t" or not is_near:
                    continue  # where much may come, only what is needed is worth a look
            alike = ends.setdefault(following.distance, {})
            if following not in alike and len(alike) >= most_ends:
                continue
            if alike.get(following, 0) < _FEW_BYTES_TO_ONE:
                alike[following] = alike.get(following, 0) + 1
                yield byte, following

    def _find_forced(self, state: State) -> int | None:
        run, place = bytearray(), state
        while len(run) < _MOST_FORCED:
            byte = self.recognizer.only_byte(place)
            if byte is None:
                break
            following = self.recognizer.advance(place, bytes((byte,)))
            assert following is not None, "the only byte goes on"
            run.append(byte)
            place = following
        text, mark, _ = bytes(run).partition(MARK)
        if run and not text:
            return id_of_mark(bytes(run))
        if not text:
            return None
        is_whole = bool(mark) or (place.is_end and not place.scans)
        token_ids = self.vocabulary.encode(text, is_whole)
        if not token_ids or not text.startswith(self.vocabulary.by_id.get(token_ids[0], MARK)):
            return None
        return token_ids[0]

    def _first_byte(self, state: State) -> int:
        """Return the token of the first byte of a shortest text."""
        forced = self.forced(state)
        if forced is not None:
            return forced
        byte = self.recognizer.shortest(state, _FAVOURED)[:1]
        first, last = self.vocabulary.within(byte, 0, len(self.vocabulary.texts))
        is_there = first < last and self.vocabulary.texts[first] == byte
        return self.vocabulary.ids[first] if is_there else -1


def _fillers(texts: Mapping[int, bytes]) -> list[int]:
    """Return tokens of each length that short ways through free texts are made of.

    They are printable, and the quotes of a string in JSON may begin or end them.
    """
    found: dict[tuple[int, bool, bool], int] = {}
    for token_id, text in texts.items():
        if not 1 < len(text) <= _MOST_FILLED or not text.isascii():
            continue
        begins, ends = text.startswith(b'"'), text.endswith(b'"')
        inside = text[begins : len(text) - ends].decode()
        if inside.isprintable() and not {'"', "\\"} & {*inside}:
            found.setdefault((len(text), begins, ends), token_id)
    return list(found.values())


def _first(pair: tuple[int, State]) -> int:
    return pair[0]


def _after_all(prefix: bytes) -> bytes | None:
    """Return the first text after all that begin with a prefix; None if there is none."""
    stripped = prefix.rstrip(b"\xff")
    return stripped[:-1] + bytes((stripped[-1] + 1,)) if stripped else None
