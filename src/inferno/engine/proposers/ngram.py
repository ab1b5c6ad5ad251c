"""Propose what followed a sequence's last tokens where they occurred before: prompt lookup.

No model is asked. What followed the same two or three tokens is looked up in the sequence's own
output, in its prompt, and in what this engine wrote lately for requests of the same cache salt; a
request of another salt never finds it. A text that is found is followed as long as it is right.

Measured on edits of this repository's files, on new ones, and on 96 stories of the embedded model,
with steps whose further tokens cost 8 % of one: an own match of 2 tokens is worth more than one of
3 (tokens a step of new code 1.16, not 1.11), in others' texts one of 3 more than one of 4 (stories
1.49, not 1.40). Whether the latest place or the longest match is taken matters less (1 %) than
that a text is followed once it is found (3 %). The longer the match, the likelier is the next token
right: 2 tokens 0.4, 3 tokens 0.55, 5 to 7 tokens 0.7, 16 tokens 0.95; so few are proposed after a
short one.
"""

from __future__ import annotations

from array import array
from collections import OrderedDict, deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import NamedTuple

import numpy as np

from inferno.engine.scheduling.sequence import SequenceState
from inferno.plan.choices import SMALL_STEP

_MOST_BYTES = 64 << 20
_SHARED_PART = 4  # what was written lately takes one part of so many of it
_SLOTS = 4  # of a table, per token: with more of them fewer places are overwritten
_LONGEST_MATCH = 16  # longer ones are as good
_FIRST_CAPACITY = 256  # tokens
# Tokens of long texts that are indexed in a step, which takes 0.2 ms then.
_MOST_INDEXED = 4096
# Tokens of outputs that ended since proposals were last wanted: those before are not found. Shorter
# outputs than the least are never found.
_MOST_UNREAD = 16_384
_LEAST_WRITTEN = 4
_BYTES_PER_TOKEN = 4
_FEW = 16  # tokens up to which a loop is faster than numpy
_BETWEEN = -1  # no token's id, between outputs
_BYTES_OF_SALT = 1024  # besides its texts
# Odd numbers by which tokens become slots: sums of three products fit 63 bits.
_FIRST, _SECOND, _THIRD = 0x2545F491, 0x1B873593, 0x19D699A5


class NgramProposer:
    """A proposer of what followed a sequence's last tokens where they occurred before.

    most_bytes  of memory, a quarter of it for outputs written lately. Where the rest is full, the
                older part of a prompt is not searched.

    Outputs that were aborted or failed are searched too: their tokens are as good.
    """

    name = "ngram"
    takes_passes = False

    def __init__(self, most_bytes: int = _MOST_BYTES) -> None:
        shared = most_bytes // _SHARED_PART
        self._most_unread = min(_MOST_UNREAD, shared // (4 * _BYTES_PER_TOKEN))
        self._unread: deque[tuple[str, array[int]]] = deque()  # with their salts
        self._num_unread = 0  # tokens
        self._written = _Written(shared - self._most_unread * _BYTES_PER_TOKEN)
        self._most_bytes = most_bytes - shared
        self._num_bytes = 0  # of sequences
        self._sequences: dict[SequenceState, _Sequence] = {}
        self._prompts: dict[str, _Prompt] = {}  # by request
        self._num_to_index = 0  # in this step

    @property
    def num_bytes(self) -> int:
        """Return the memory that tables and kept texts take."""
        unread = self._num_unread * _BYTES_PER_TOKEN
        return self._num_bytes + self._written.num_bytes + unread

    def serves(self, sequence: SequenceState) -> bool:
        """Return True, for any sequence may repeat an earlier text."""
        return True

    def propose(
        self, sequences: Sequence[SequenceState], most: Sequence[int]
    ) -> Sequence[Sequence[int]]:
        """Return what followed each sequence's last tokens before, or nothing."""
        self._num_to_index = _MOST_INDEXED
        self._read_outputs()
        return [self._propose(*pair) for pair in zip(sequences, most, strict=True)]

    def forget(self, sequence: SequenceState) -> None:
        """Drop a sequence that has ended; from now on others may find its output."""
        known = self._sequences.pop(sequence, None)
        if known is not None:
            self._num_bytes -= known.output.num_bytes
            self._leave_prompt(sequence.request.request_id)
        # It is indexed when proposals are wanted: those who sleep cost nothing.
        output = array("i", sequence.token_ids[sequence.num_prompt_tokens :][-self._most_unread :])
        if len(output) < _LEAST_WRITTEN:
            return
        self._unread.append((sequence.request.cache_salt, output))
        self._num_unread += len(output)
        while self._num_unread > self._most_unread:
            self._num_unread -= len(self._unread.popleft()[1])

    def clear(self) -> None:
        """Drop all running sequences; outputs written before are kept."""
        self._sequences.clear()
        self._prompts.clear()
        self._num_bytes = 0

    def _read_outputs(self) -> None:
        """Have outputs that ended be found, as many as this step has time for."""
        while self._unread and self._num_to_index > 0:
            salt, output = self._unread.popleft()
            self._num_unread -= len(output)
            self._num_to_index -= len(output)
            self._written.add(salt, output)

    def _propose(self, sequence: SequenceState, most: int) -> Sequence[int]:
        known = self._sequences.get(sequence) or self._begin(sequence)
        token_ids = sequence.token_ids
        self._index(known.prompt.text, sequence.num_prompt_tokens)
        self._index_output(known.output, len(token_ids))
        match = known.follow(token_ids)
        if match is None:
            match = known.find(token_ids, self._written.texts(sequence.request.cache_salt))
        known.match, known.length = match, len(token_ids)
        return () if match is None else match.proposal(min(most, SMALL_STEP), token_ids)

    def _begin(self, sequence: SequenceState) -> _Sequence:
        request = sequence.request
        length = sequence.num_prompt_tokens
        prompt = self._prompts.get(request.request_id)
        if prompt is None:
            capacity = self._affordable(max(length, _FIRST_CAPACITY))
            start = max(0, length - capacity)
            text = _Text(request.prompt_token_ids, start, capacity, has_pairs=True)
            prompt = self._prompts[request.request_id] = _Prompt(text)
            self._num_bytes += text.num_bytes
        prompt.num_users += 1
        try:
            capacity = self._affordable(_FIRST_CAPACITY)
            output = _Text(sequence.token_ids, length, capacity, has_pairs=True)
        except BaseException:
            self._leave_prompt(request.request_id)
            raise
        self._num_bytes += output.num_bytes
        known = self._sequences[sequence] = _Sequence(prompt, output)
        return known

    def _leave_prompt(self, request_id: str) -> None:
        """Note that a sequence looks at its request's prompt no more; the last lets go of it."""
        prompt = self._prompts[request_id]
        prompt.num_users -= 1
        if not prompt.num_users:
            self._num_bytes -= prompt.text.num_bytes
            del self._prompts[request_id]

    def _affordable(self, capacity: int) -> int:
        """Return for how many of so many tokens there is memory."""
        left = self._most_bytes - self._num_bytes
        return max(0, min(capacity, left // _bytes_of_tables(1, has_pairs=True)))

    def _index_output(self, output: _Text, length: int) -> None:
        if length - output.start > output.capacity:
            capacity = output.capacity + self._affordable(max(output.capacity, _FIRST_CAPACITY))
            if capacity > output.capacity:
                before = output.num_bytes
                output.reserve(capacity)
                self._num_bytes += output.num_bytes - before
        self._index(output, min(length, output.start + output.capacity))

    def _index(self, text: _Text, end: int) -> None:
        """Note the places of a text before `end`, as far as this step has time for it."""
        num_places = min(end - text.next_place, self._num_to_index)
        if num_places > 0:
            text.index(text.next_place + num_places)
            self._num_to_index -= num_places


class _Text:
    """The latest places of pairs and threes of tokens in a text, from `start` on.

    The place of tokens is that of the one which follows them. Slots of the tables are chosen by a
    hash: where places share one, the earlier is lost; who finds another's place sees other tokens.

    capacity    places that the tables are made for.
    """

    def __init__(
        self, token_ids: Sequence[int], start: int, capacity: int, *, has_pairs: bool
    ) -> None:
        self.token_ids = token_ids
        self.start = max(start, 3)
        self._has_pairs = has_pairs
        self.reserve(capacity)

    @property
    def num_bytes(self) -> int:
        return _bytes_of_tables(self.capacity, has_pairs=self._has_pairs)

    def reserve(self, capacity: int) -> None:
        """Make new tables; nothing is found before places are noted again."""
        num_slots = _SLOTS * capacity + 1
        tables = _new_table(num_slots), _new_table(num_slots if self._has_pairs else 0)
        self._threes, self._pairs = tables  # without memory for both, the old ones stay
        self._num_slots, self.capacity = num_slots, capacity
        self.next_place = self.start  # the first that is not noted

    def index(self, end: int) -> None:
        """Note the places before `end`; a token stands at each of them."""
        first, num_slots, token_ids = self.next_place, self._num_slots, self.token_ids
        self.next_place = end
        if end - first > _FEW:
            self._index_many(first, end)
            return
        for place in range(first, end):
            a, b, c = token_ids[place - 3 : place]
            pair = b * _SECOND + c * _THIRD
            self._threes[(pair + a * _FIRST) % num_slots] = place
            if self._has_pairs:
                self._pairs[pair % num_slots] = place

    def _index_many(self, first: int, end: int) -> None:
        ids = np.array(array("q", self.token_ids[first - 3 : end - 1]))
        pairs = ids[1:-1] * _SECOND + ids[2:] * _THIRD
        threes = pairs + ids[:-2] * _FIRST
        places = np.arange(first, end, dtype=np.int32)
        # Of several places for one slot the last stays, as numpy promises.
        np.frombuffer(self._threes, np.int32)[threes % self._num_slots] = places
        if self._has_pairs:
            np.frombuffer(self._pairs, np.int32)[pairs % self._num_slots] = places

    def find_three(self, a: int, b: int, c: int, key: int) -> int:
        """Return the place of three tokens, or 0; `key` is their sum of products."""
        place = self._threes[key % self._num_slots]
        if place:
            ids = self.token_ids
            if ids[place - 1] == c and ids[place - 2] == b and ids[place - 3] == a:
                return place
        return 0

    def find_pair(self, b: int, c: int, key: int) -> int:
        """Return the place of two tokens, or 0; `key` is their sum of products."""
        place = self._pairs[key % self._num_slots]
        if place and self.token_ids[place - 1] == c and self.token_ids[place - 2] == b:
            return place
        return 0


def _new_table(num_slots: int) -> memoryview[int]:
    # Its memory is cleared when it is touched; an array's would be at once.
    return np.zeros(num_slots, np.int32).data


def _bytes_of_tables(capacity: int, *, has_pairs: bool) -> int:
    return 4 * (_SLOTS * capacity + 1) * (1 + has_pairs)


@dataclass(slots=True)
class _Prompt:
    """A prompt, and how many sequences look at it."""

    text: _Text
    num_users: int = 0


class _Match(NamedTuple):
    """A place in a text, and how many tokens before it are a sequence's last ones."""

    text: _Text
    place: int
    length: int

    def proposal(self, most: int, token_ids: Sequence[int]) -> Sequence[int]:
        """Return what follows in the text; the longer the match, the more of it."""
        most = min(most, self.length * self.length // 2)
        source = self.text.token_ids
        found = list(takewhile(_BETWEEN.__ne__, source[self.place : self.place + most]))
        if source is token_ids and len(found) < most:  # it repeats what it has just said
            found *= most // len(found) + 1
        return found[:most]


@dataclass(slots=True)
class _Sequence:
    """The texts of a sequence.

    match       where its tokens stood before, when it had `length` of them.
    """

    prompt: _Prompt
    output: _Text
    match: _Match | None = None
    length: int = 0

    def follow(self, token_ids: Sequence[int]) -> _Match | None:
        """Return the match after the tokens that came since, if it was right about all of them."""
        if self.match is None:
            return None
        text, place, length = self.match
        new = token_ids[self.length :]
        end = place + len(new)
        source = text.token_ids
        if end < len(source) and source[end] != _BETWEEN and list(source[place:end]) == new:
            return _Match(text, end, length + len(new))
        return None

    def find(self, token_ids: Sequence[int], shared: Sequence[_Text]) -> _Match | None:
        """Return the longest match; of equal ones that in the output, then in the prompt."""
        if len(token_ids) < 3:
            return None
        a, b, c = token_ids[-3:]
        pair = b * _SECOND + c * _THIRD
        three = pair + a * _FIRST
        best = None
        for text in (self.output, self.prompt.text, *shared):
            place = text.find_three(a, b, c, three)
            if place and text.token_ids[place] != _BETWEEN:
                length = _match_length(text.token_ids, place, token_ids)
                if best is None or length > best.length:
                    best = _Match(text, place, length)
        if best is None:
            for text in (self.output, self.prompt.text):
                place = text.find_pair(b, c, pair)
                if place:
                    return _Match(text, place, _match_length(text.token_ids, place, token_ids))
        return best


def _match_length(source: Sequence[int], place: int, token_ids: Sequence[int]) -> int:
    """Return how many tokens before a place are the last ones, of which two are."""
    length = 2
    most = min(place, len(token_ids), _LONGEST_MATCH)
    while length < most and source[place - length - 1] == token_ids[-length - 1]:
        length += 1
    return length


class _Written:
    """The outputs that were written lately, by cache salt: each finds its own only.

    A salt has a text that grows, and the one before it; at most half of the memory each. Salts for
    which nothing was written for the longest time are forgotten first.
    """

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._most_tokens = max(0, most_bytes // 2 - _BYTES_OF_SALT) // _bytes_written(1)
        self._by_salt: OrderedDict[str, list[_Text]] = OrderedDict()  # newest first
        self.num_bytes = 0

    def texts(self, salt: str) -> Sequence[_Text]:
        return self._by_salt.get(salt, ())

    def add(self, salt: str, token_ids: array[int]) -> None:
        """Have an output be found."""
        token_ids = token_ids[-max(0, self._most_tokens - 1) :]
        if len(token_ids) < _LEAST_WRITTEN or len(token_ids) >= self._most_tokens:
            return
        texts = self._by_salt.pop(salt, [])
        self.num_bytes -= _bytes_of_salt(texts)
        if not texts or not _has(texts[0], token_ids):
            text = self._with_room(texts, len(token_ids) + 1)
            tokens = text.token_ids
            assert isinstance(tokens, array)
            tokens.extend(token_ids)
            text.index(len(tokens))
            tokens.append(_BETWEEN)
        self._by_salt[salt] = texts
        self.num_bytes += _bytes_of_salt(texts)
        while self.num_bytes > self._most_bytes:
            _, forgotten = self._by_salt.popitem(last=False)
            self.num_bytes -= _bytes_of_salt(forgotten)
            for text in forgotten:
                text.token_ids = ()  # for whoever follows it

    def _with_room(self, texts: list[_Text], num_tokens: int) -> _Text:
        """Return the newest text, with room for so many tokens more."""
        needed = num_tokens + (len(texts[0].token_ids) if texts else 0)
        if needed <= self._most_tokens and texts:
            text = texts[0]
            if needed > text.capacity:
                text.reserve(min(max(needed, 2 * text.capacity), self._most_tokens))
            return text
        capacity = min(max(num_tokens, _FIRST_CAPACITY), self._most_tokens)
        text = _Text(array("i"), 0, capacity, has_pairs=False)
        for older in texts[1:]:
            older.token_ids = ()
        texts[:] = [text, *texts[:1]]
        return text


def _has(text: _Text, token_ids: array[int]) -> bool:
    """Return whether an output is in a text as it is."""
    a, b, c = token_ids[-4:-1]
    place = text.find_three(a, b, c, a * _FIRST + b * _SECOND + c * _THIRD)
    end = place + 1
    return end >= len(token_ids) and text.token_ids[end - len(token_ids) : end] == token_ids


def _bytes_written(capacity: int) -> int:
    return _bytes_of_tables(capacity, has_pairs=False) + _BYTES_PER_TOKEN * capacity


def _bytes_of_salt(texts: Sequence[_Text]) -> int:
    each: Iterator[int] = (_bytes_written(text.capacity) for text in texts)
    return sum(each, _BYTES_OF_SALT if texts else 0)
