"""Find the fewest tokens to the end of a text, and the tokens that a grammar forces.

A recognizer counts in bytes; a model writes tokens. From a place in a text all short ways to an
end are looked through at once: those with the fewest bytes, and the longer texts of terminals that
have few texts (a name of several). Where bytes are forced only their canonical tokens count, for a
constraint admits no others there.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import NamedTuple

from inferno.grammar.expressions import OutOfWork
from inferno.grammar.recognizer import MARK, MARK_LENGTH, Recognizer, State, id_of_mark
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
# What an answer may take, in steps of about a microsecond: a search at the start, where nobody
# waits but who asked; later, while others wait for their next token; and all later ones of a
# grammar that take more than little, together, with some more for each token that is followed.
# Beyond that a text of single bytes is good enough. The end of an object in a list takes 52,000.
_START_WORK, _LATER_WORK, _LITTLE_WORK = 320_000, 150_000, 25_000
_ALL_LATER_WORK, _WORK_A_TOKEN = 400_000, 30_000
_MOST_PLACES = 20_000
_MOST_KEPT = 200_000
_MOST_PASSED = 96  # places that are looked at before a search is to answer: some milliseconds
_FEW_BYTES = 16
_MOST_FILLED = 32
_MOST_OF_LIST, _MOST_ENDS = 64, 3  # places that one byte may lead to: in lists of texts, elsewhere
# Bytes by which a text may be longer than the shortest and still be looked at: a longer one of
# fewer tokens is a word of one token beside one of several.
_MOST_LONGER = 8
_FEW_BYTES_TO_ONE = 8  # that lead to the same place

NEVER = 1 << 30  # tokens to an end to which no way leads
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


class _Came(NamedTuple):
    """The way of a search to a place: whence, by which token, and which of the ways there."""

    state: State
    token_id: int
    rank: int


class TokenPaths:
    """The ways of one grammar's texts in one vocabulary.

    Of several shortest ways, the same one is always chosen, whatever was asked before.

    banned      tokens that are never said.
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
        self._in_vain: dict[State, int] = {}  # the same where others looked for a way in vain
        self._short: dict[State, list[tuple[int, State]]] = {}
        self._known_steps: dict[State, list[tuple[int, State]]] = {}
        self._work_left = _ALL_LATER_WORK
        self._work_of_searches = 0

    @property
    def work_kept(self) -> int:
        """Return the work that left something to be remembered, in steps."""
        return self.recognizer.meter.spent - self._work_of_searches

    @property
    def has_bytes(self) -> bool:
        """Return whether any text can be said byte by byte."""
        return self.vocabulary.has_all_bytes and not self._banned

    def advance(self, state: State, token_id: int) -> State | None:
        """Return where a token leads from a state; None if no text of the grammar goes on so.

        Raises TooComplex where that takes too long to find out.
        """
        text = self.vocabulary.by_id.get(token_id)
        if text is None:
            return None
        self._work_left = min(self._work_left + _WORK_A_TOKEN, _ALL_LATER_WORK)
        try:
            with self._later():
                return self.recognizer.advance(state, text)
        except OutOfWork:
            raise TooComplex("to follow a text takes too many steps") from None

    def forced(self, state: State) -> int | None:
        """Return the one token that may come next where bytes are forced; else None."""
        known = self._forced.get(state, -1)
        if known != -1:
            return known
        try:
            with self._later():
                return self._only_token(state)
        except OutOfWork:  # the masks allow no other all the same
            self._forced[state] = None
            return None

    @contextmanager
    def _later(self) -> Iterator[None]:
        """Bound what is done inside, while steps wait for it."""
        meter = self.recognizer.meter
        with meter.at_most(_LATER_WORK if self._work_left > 0 else _LITTLE_WORK):
            most = meter.left
            try:
                yield
            finally:
                spent = most - meter.left  # what others have spent meanwhile is theirs
                if spent > _LITTLE_WORK:
                    self._work_left -= spent

    def _only_token(self, state: State) -> int | None:
        known = self._forced.get(state, -1)
        if known == -1:
            if len(self._forced) >= _MOST_KEPT:
                self._forced.clear()
            known = self._forced[state] = self._find_forced(state)
        return known

    def find_way(self, state: State) -> bool:
        """Look for a shortest way to an end for tenths of a second; return whether it is known.

        From there on an output can be led to an end within as many tokens, for a way that is known
        stays known, and others are looked for only as long as steps can wait.
        """
        try:
            with self.recognizer.meter.at_most(_START_WORK):
                return state in self._ways or self._search(state) is not None
        except (OutOfWork, TooComplex):
            return False

    def tokens_to_end(self, state: State) -> list[int]:
        """Return the tokens of a way that `find_way` has found."""
        found = []
        while not state.is_end:
            token_id = self._ways[state].token_id
            following = self.recognizer.advance(state, self.vocabulary.by_id[token_id])
            assert following is not None, "a way goes on"
            found.append(token_id)
            state = following
        return found

    def learn_way(self, state: State, token_ids: Sequence[int]) -> None:
        """Keep a way that others have found, without what they had to look at for it."""
        for index, token_id in enumerate(token_ids):
            self._ways[state] = _Way(len(token_ids) - index, token_id)
            following = self.recognizer.advance(state, self.vocabulary.by_id[token_id])
            assert following is not None, "a way goes on"
            state = following

    def learn_enough(self, state: State, num_tokens: int) -> None:
        """Keep how many tokens are enough, found by others, who looked for a shortest way in vain.

        Neither is looked for again from that state.
        """
        self._in_vain[state] = num_tokens

    def fits(self, state: State, num_tokens: int) -> bool:
        """Return whether so many tokens are enough for a text to end, as far as is known."""
        is_known = state in self._ways
        if self.has_bytes and not is_known and self.enough(state, num_tokens) <= num_tokens:
            return True
        return self.num_to_end(state) <= num_tokens

    def enough(self, state: State, wanted: int = 0) -> int:
        """Return how many tokens are surely enough, found at once where any text can be said.

        They say a shortest text byte by byte, but for forced tokens, of which the first are counted
        until no more than `wanted` are needed.
        """
        if state in self._in_vain:
            return min(state.distance, self._in_vain[state])
        least = min(state.distance, self._enough.get(state, NEVER))
        passed: list[State] = []
        place: State | None = state
        try:
            with self._later():
                while place is not None and len(passed) < _MOST_PASSED and least > wanted:
                    passed.append(place)
                    token_id = None if place.is_end else self._only_token(place)
                    if token_id is not None:
                        text = self.vocabulary.by_id[token_id]
                    elif not place.is_end:
                        text = self._first_text(place)
                    else:
                        break
                    place = self.recognizer.advance(place, text)
                    if place is not None:
                        least = min(least, len(passed) + place.distance)
        except (OutOfWork, TooComplex):
            pass  # what was found so far is enough
        if len(self._enough) >= _MOST_KEPT:
            self._enough.clear()
        for used, each in enumerate(passed):
            self._enough[each] = min(least - used, self._enough.get(each, NEVER))
        return least

    def num_to_end(self, state: State) -> int:
        """Return how many tokens a text needs to end; a huge number where bans leave no way.

        Where to find out takes too long, that is how many would be enough.
        """
        way = self._known_way(state)
        if way is None:
            return state.distance if self.has_bytes else NEVER
        return way.num_tokens

    def next_to_end(self, state: State) -> int:
        """Return the first token of a shortest way to an end; the text isn't at one yet."""
        way = self._known_way(state)
        if way is None:
            return self._first_byte(state) if self.has_bytes else -1
        return way.token_id

    def _known_way(self, state: State) -> _Way | None:
        """Return a shortest way to an end, unless it takes too long to find one."""
        found = self._ways.get(state)
        if found is None and state not in self._in_vain:
            with suppress(OutOfWork, TooComplex), self._later():
                found = self._search(state)
        return found

    def _search(self, first: State) -> _Way:
        """Find a shortest way from a place, and keep all places on it."""
        if len(self._ways) >= _MOST_KEPT:
            self._ways.clear()
        came: dict[State, _Came] = {}
        best = self._nearest_end(first, came)
        ways = self._ways
        if best is None:
            ways[first] = _Way(NEVER, -1)
            return ways[first]
        rest = 0 if best.is_end else ways[best].num_tokens
        state = best
        while state is not first:
            state, token_id, _ = came[state]
            rest += 1
            ways[state] = _Way(rest, token_id)
        return ways.get(first) or _Way(0, -1)

    def _nearest_end(self, first: State, came: dict[State, _Came]) -> State | None:
        """Return the end that is the fewest tokens away, or a place whose way to one is known.

        Of several it is the one to which the earliest of the ways from each place leads.

        came    is filled with how places were come to.
        """
        meter = self.recognizer.meter
        level, num_tokens = [first], 0
        fewest, best = NEVER, None
        while level and num_tokens <= fewest:  # at last, for others of the same length
            following: list[State] = []
            for state in level:
                known = _Way(0, -1) if state.is_end else self._ways.get(state)
                if known is not None:
                    total = num_tokens + known.num_tokens
                    if total < fewest or (
                        best is not None
                        and total == fewest
                        and _ranks(came, state) < _ranks(came, best)
                    ):
                        fewest, best = total, state
                if known is not None or num_tokens >= fewest:
                    continue
                if len(came) >= _MOST_PLACES:
                    raise OutOfWork
                steps = self._steps_from(state)
                work = 1 + len(steps) // 4
                self._work_of_searches += work
                meter.spend(work)
                for rank, (token_id, end) in enumerate(steps):
                    if end is not first and end not in came:
                        came[end] = _Came(state, token_id, rank)
                        following.append(end)
            level, num_tokens = following, num_tokens + 1
        return best

    def _steps_from(self, state: State) -> list[tuple[int, State]]:
        found = self._known_steps.get(state)
        if found is None:
            if len(self._known_steps) >= _MOST_KEPT:
                self._known_steps.clear()
            found = self._known_steps[state] = list(self._steps(state))
        return found

    def _steps(self, state: State) -> Iterator[tuple[int, State]]:
        """Yield the tokens that short ways begin with, and where each leads."""
        forced = self._only_token(state)
        if forced is not None and forced in self._banned:
            return  # the masks allow no other
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
            self.recognizer.meter.spend(5)
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
        run, place = self.recognizer.forced_run(state, _MOST_FORCED)
        text, mark, _ = run.partition(MARK)
        if run and not text:  # where several marks may come, only a part of them is forced
            return id_of_mark(run) if len(run) >= MARK_LENGTH else None
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
        text = self._first_text(state)
        first, last = self.vocabulary.within(text, 0, len(self.vocabulary.texts))
        is_there = first < last and self.vocabulary.texts[first] == text
        return self.vocabulary.ids[first] if is_there else -1

    def _first_text(self, state: State) -> bytes:
        """Return the first byte of a shortest text; of a special token, the whole of it."""
        text, place = b"", state
        while not text or (text.startswith(MARK) and len(text) < MARK_LENGTH):
            byte = bytes((self.recognizer.nearer(place, _FAVOURED),))
            following = self.recognizer.advance(place, byte)
            assert following is not None, "a shortest text goes on"
            text, place = text + byte, following
        return text


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


def _ranks(came: Mapping[State, _Came], state: State) -> list[int]:
    """Return which of the ways from each place was taken, from the first place on."""
    found = []
    while state in came:
        state, _, rank = came[state]
        found.append(rank)
    return found[::-1]


def _after_all(prefix: bytes) -> bytes | None:
    """Return the first text after all that begin with a prefix; None if there is none."""
    stripped = prefix.rstrip(b"\xff")
    return stripped[:-1] + bytes((stripped[-1] + 1,)) if stripped else None
