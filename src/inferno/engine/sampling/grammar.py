"""Grammars as constraints: llguidance says which tokens may come next.

An extra, imported when the first request has a grammar. Source of the method: llguidance computes
the mask of a step from an Earley parser over a lexer of derivatives of regular expressions.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar
from weakref import ref

import llguidance
import numpy as np

from inferno.engine.sampling.constraints import MAX_ROLLBACK, Mask, set_bit
from inferno.engine.sampling.grammar_child import LIMITS, GrammarSource, compiled, refusal
from inferno.engine.sampling.grammar_tokenizer import llguidance_tokenizer
from inferno.errors import InvalidRequest, TokenizerError
from inferno.grammar.lark import marks_of
from inferno.grammar.recognizer import MARK, Recognizer, State, text_of_mark
from inferno.grammar.regex import TooComplex
from inferno.grammar.rules import Grammar
from inferno.grammar.token_paths import NEVER, TokenPaths, Vocabulary
from inferno.grammar.turns import NotQuick, away
from inferno.json_file import MAX_TOKENIZER_BYTES
from inferno.model_files import TOKENIZER, model_files
from inferno.requests import Request

# What a compiled grammar takes: itself, a few times its source, and what is remembered of each step
# of work on its rules (54 MB after 1.5 million of them).
_BYTES, _BYTES_OF_SOURCE, _BYTES_OF_STEP = 200_000, 8, 36

_SLOW_SECONDS = 0.015  # for a mask

_MOST_ENDINGS = 4  # sets of tokens that end an output, with each of which the tokens are kept

T = TypeVar("T")


class GrammarCompiler:
    """A compiler of grammars for a model's tokens; `compiling.py` keeps what it compiles.

    path        of the model's folder or GGUF file, which has the tokenizer.
    vocab_size  how many tokens a row of logits has.
    max_length  in tokens, of a prompt and an output together.
    most_mask_bytes     for masks that are kept by their states; the default has room for 1,700
                        masks of 150,000 tokens.
    """

    def __init__(
        self, path: Path, vocab_size: int, max_length: int, *, most_mask_bytes: int = 32 << 20
    ) -> None:
        self._path = path
        self._vocab_size = vocab_size
        self._max_length = max_length
        self._tokens: dict[frozenset[int], _Tokens] = {}
        self._masks = KeptMasks(most_mask_bytes)

    def prepare(self, eos_token_ids: frozenset[int]) -> None:
        """Read the model's tokens, which takes most of a second if they are many."""
        self._tokens_for(eos_token_ids)

    def begin(self, text: str, eos_token_ids: frozenset[int]) -> _Begun:
        """Return the matcher of a grammar whose rules are yet to come."""
        tokenizer = self._tokens_for(eos_token_ids).tokenizer
        return _Begun(text, compiled(tokenizer, text, LIMITS))

    def compile(
        self,
        source: str,
        eos_token_ids: frozenset[int],
        requests: Sequence[Request] = (),
        begun: _Begun | None = None,
    ) -> _Compiled:
        """Return a compiled grammar; InvalidRequest where it can't be honoured.

        source          a GrammarSource as text, as `grammar_child.py` makes it.
        requests        the requests that wait for the grammar.
        begun           what `begin` has returned for the same ends.
        """
        tokens = self._tokens_for(eos_token_ids)
        made = GrammarSource.from_json(source)
        if begun is not None and begun.text == made.text:
            matcher = begun.matcher
        else:
            matcher = compiled(tokens.tokenizer, made.text, LIMITS)
        banned = self._bits(tokens.without_text)
        if made.grammar is not None:
            named = marks_of(made.grammar) | eos_token_ids
            banned |= self._bits(tokens.special - named)
        found = _Compiled(matcher, made.grammar, len(source), tokens.vocabulary, banned)
        if plain := eos_token_ids - tokens.special:
            found.plain_ends = self._bits(plain)
        found.paths, _ = found.new_paths()
        if found.paths is not None and requests:
            found.look_for(min(map(self._room, requests)), found.paths)
            found.paths.recognizer.keep_automata()  # before steps walk them
        return found

    def num_bytes(self, grammar: _Compiled) -> int:
        """Return about how much memory a grammar takes by now."""
        return grammar.num_bytes

    def is_costly(self, grammar: _Compiled, request: Request) -> bool:
        """Return whether `constrain` takes too long for the thread that runs steps."""
        if request.answer_so_far or self._banned(request) is not None:
            return True
        return grammar.searched is None and not grammar.suffices(self._room(request))

    def constrain(self, grammar: _Compiled, request: Request) -> list[GrammarConstraint]:
        """Return the constraint of each sequence of a request that has this grammar.

        Raises InvalidRequest where what the request bans leaves no way to begin.
        """
        matcher, paths, banned = grammar.matcher, grammar.paths, grammar.banned
        of_request = self._banned(request)
        if of_request is not None:
            banned = banned | of_request
            try:
                ends = request.eos_token_ids
                first = GrammarConstraint(
                    matcher.deep_copy(), None, self._masks, banned, ends, None, grammar.plain_ends
                )
                first.mask_into(np.zeros_like(banned))
            except ValueError as problem:
                raise refusal(str(problem)) from None
        begun = request.answer_so_far.encode(errors="replace")
        if begun:
            matcher = matcher.deep_copy()
            matcher.consume_tokens(grammar.vocabulary.encode(begun, True))
        if matcher.is_error():
            raise InvalidRequest(
                "the last message is not the beginning of an answer of this shape: end it "
                "where one may go on, or leave it out",
                param="messages",
            )
        state = None if paths is None else paths.recognizer.start
        if begun or of_request is not None:
            paths, state = self._search(grammar, request, begun, of_request)
        elif self._is_tight(grammar, request):
            if grammar.searched is None:
                grammar.searched = self._search(grammar, request)
            paths, state = grammar.searched
        ends = request.eos_token_ids
        return [
            GrammarConstraint(
                matcher.deep_copy(), paths, self._masks, banned, ends, state, grammar.plain_ends
            )
            for _ in range(request.params.n)
        ]

    def _search(
        self,
        grammar: _Compiled,
        request: Request,
        begun: bytes = b"",
        banned: Mask | None = None,
    ) -> tuple[TokenPaths | None, State | None]:
        """Return ways that belong to nobody else yet, and the state after a text.

        Steps may be asking those of the grammar meanwhile. What a search has looked at is much more
        than what it has found, so this alone is kept, and that it found nothing: steps would wait
        for the same search. No state: no end is known.
        """
        never = frozenset[int]() if banned is None else _ids(banned)
        paths, state = grammar.new_paths(begun, never)
        if paths is None or state is None or self._fits_in_bytes(paths, state, request):
            return paths, state
        is_found = paths.find_way(state)
        if not is_found and not paths.has_bytes:
            return None, None
        if is_found and paths.num_to_end(state) >= NEVER:
            raise refusal("allowed_token_ids and bad_words leave no way to its end")
        own, start = grammar.new_paths(begun, never)
        assert own is not None, "they were made before"
        assert start is not None, "it was come to before"
        if is_found:
            own.learn_way(start, paths.tokens_to_end(state))
        else:
            own.learn_enough(start, paths.enough(state))
        return own, start

    def _is_tight(self, grammar: _Compiled, request: Request) -> bool:
        """Return whether the shortest answer might not fit, as far as is known without a search.

        To find out may take some milliseconds; `is_costly` says where.
        """
        room = self._room(request)
        if room < grammar.looked_for and not grammar.suffices(room):
            paths, _ = grammar.new_paths()
            if paths is not None:
                grammar.look_for(room, paths)
        return not grammar.suffices(room)

    def _fits_in_bytes(self, paths: TokenPaths, state: State, request: Request) -> bool:
        """Return whether what a request may say is surely enough for an end from a state."""
        return paths.has_bytes and state.distance <= self._room(request)

    def _room(self, request: Request) -> int:
        """Return how many tokens an answer may have."""
        room = self._max_length - len(request.prompt_token_ids)
        if request.params.max_tokens is not None:
            room = min(room, request.params.max_tokens)
        if request.reasoning is not None:
            room -= len(request.reasoning.opens) + len(request.reasoning.closes)
        return room

    def _tokens_for(self, eos_token_ids: frozenset[int]) -> _Tokens:
        """Return the model's tokens with those that end an output.

        The last sets are kept: where a request has tools it is another one, and both take turns.
        """
        found = self._tokens.pop(eos_token_ids, None)
        if found is None:
            found = self._read_tokens(eos_token_ids)
        self._tokens[eos_token_ids] = found  # the last used
        while len(self._tokens) > _MOST_ENDINGS:
            del self._tokens[next(iter(self._tokens))]
        return found

    def _read_tokens(self, eos_token_ids: frozenset[int]) -> _Tokens:
        content = model_files(self._path).read(
            TOKENIZER, error=TokenizerError, max_bytes=MAX_TOKENIZER_BYTES
        )
        tokenizer = llguidance_tokenizer(content.decode(), self._vocab_size, sorted(eos_token_ids))
        special = frozenset(filter(tokenizer.is_special_token, range(tokenizer.vocab_size)))
        plain_ends = eos_token_ids - special
        for known in self._tokens.values():  # of a model: only what ends an output may differ
            if known.special == special and known.plain_ends == plain_ends:
                return replace(known, tokenizer=tokenizer)
        vocabulary = _vocabulary(tokenizer, special, plain_ends)
        without_text = frozenset(range(self._vocab_size)) - vocabulary.by_id.keys() - plain_ends
        return _Tokens(tokenizer, vocabulary, special, plain_ends, without_text)

    def _banned(self, request: Request) -> Mask | None:
        """Return the tokens that the request itself never allows, as a mask; None: all may come.

        Those that end an output aren't among them: an answer that is whole has to end.
        """
        params = request.params
        words = [word[0] for word in request.bad_words_ids if len(word) == 1]
        if params.allowed_token_ids is None and not words:
            return None
        banned = self._bits(words)
        if params.allowed_token_ids is not None:
            banned |= ~self._bits(params.allowed_token_ids)
        return banned & ~self._bits(request.eos_token_ids)

    def _bits(self, token_ids: Iterable[int]) -> Mask:
        """Return a mask of these tokens."""
        is_meant = np.zeros(-(-self._vocab_size // 32) * 32, np.uint8)
        is_meant[list(token_ids)] = 1
        return np.packbits(is_meant, bitorder="little").view(np.int32)


class KeptMasks:
    """A cache of the masks used last, by the states of recognizers, within a number of bytes.

    A state always allows the same tokens, so of many streams with one shape, most find masks that
    others have made. Kept masks don't keep their grammars alive, which are larger.
    """

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        # Masks of states that are gone are never found, and forgotten in their turn.
        self._kept: OrderedDict[ref[State], Mask] = OrderedDict()

    def find(self, state: State | None) -> Mask | None:
        """Return the mask of a state, or None if none is kept; it counts as used now."""
        if state is None:
            return None
        key = ref(state)
        found = self._kept.get(key)
        if found is not None:
            self._kept.move_to_end(key)
        return found

    def keep(self, state: State | None, mask: Mask) -> None:
        """Keep a copy of a mask; those used longest ago are forgotten to make room."""
        if state is not None:
            self._kept[ref(state)] = mask.copy()
            while len(self._kept) * mask.nbytes > self._most_bytes:
                self._kept.popitem(last=False)


class GrammarConstraint:
    """A grammar, and the place in it that one sequence has reached; see `Constraint`.

    paths   what is known of the ways to an end; None where nothing is.
    masks   the masks of states that any sequence has been in.
    banned  tokens that the request or the grammar never allows.
    state   where the output begins; None where no way to an end is known.
    plain_ends  tokens that end an output although they are ordinary text.
    """

    def __init__(
        self,
        matcher: llguidance.LLMatcher,
        paths: TokenPaths | None,
        masks: KeptMasks,
        banned: Mask,
        eos_token_ids: frozenset[int],
        state: State | None = None,
        plain_ends: Mask | None = None,
    ) -> None:
        self._matcher = matcher
        self._paths = paths
        self._masks = masks
        self._banned = banned
        self._not_banned = ~banned
        self._end = min(eos_token_ids)
        self._states = [state]
        self._plain_ends = plain_ends
        self._is_slow = False  # llguidance took long for the latest mask
        self._knows_ends = state is not None

    def mask_into(self, mask: Mask) -> None:
        if forced := self.forced(1):
            set_bit(mask, forced[0], is_allowed=True)
        elif (known := self._masks.find(self._states[-1])) is not None:
            mask[:] = known
        else:
            self._compute(mask)
            if self._plain_ends is not None and not self.is_complete:
                mask &= ~self._plain_ends  # as text they would cut the output off
            self._masks.keep(self._states[-1], mask)
        np.bitwise_and(mask, self._not_banned, out=mask)
        if not mask.any():
            raise ValueError("its grammar, allowed_token_ids and bad_words together leave no token")

    def forced(self, most: int) -> Sequence[int]:
        return self._ask(lambda paths, state: self._find_forced(paths, state, most), ())

    def _find_forced(self, paths: TokenPaths, first: State, most: int) -> Sequence[int]:
        found: list[int] = []
        state: State | None = first
        while state is not None and len(found) < most:
            try:
                token_id = paths.forced(state)
                if token_id is None or self._is_banned(token_id):
                    break
                found.append(token_id)
                state = self._after(state, token_id)
            except NotQuick:
                if not found:
                    raise
                break  # fewer are forced as well
        return found

    def accept(self, token_ids: Sequence[int]) -> None:
        states = self._states[-1:]
        for token_id in token_ids:  # first, for only this may be not quick
            try:
                states.append(self._after(states[-1], token_id))
            except TooComplex:  # no end is known from here
                states.append(None)
        self._matcher.consume_tokens(list(token_ids))
        self._check()
        self._states += states[1:]
        del self._states[: -MAX_ROLLBACK - 1]

    def rollback(self, num_tokens: int) -> None:
        self._matcher.rollback(num_tokens)
        self._check()
        del self._states[len(self._states) - num_tokens :]

    @property
    def is_complete(self) -> bool:
        return bool(self._matcher.is_accepting())

    @property
    def num_to_end(self) -> int | None:
        return self._ask(lambda paths, state: paths.num_to_end(state), None)

    def fits(self, num_tokens: int) -> bool:
        if self._knows_ends and self._states[-1] is None:
            return False  # here no end is known any more, and before one was
        return self._ask(lambda paths, state: paths.fits(state, num_tokens), True)

    def next_to_end(self) -> int:
        return self._ask(
            lambda paths, state: self._end if state.is_end else paths.next_to_end(state), -1
        )

    def _ask(self, question: Callable[[TokenPaths, State], T], unknown: T) -> T:
        """Return what is known of the ways to an end, or what stands for not knowing."""
        state = self._states[-1]
        if self._paths is None or state is None:
            return unknown
        try:
            return question(self._paths, state)
        except TooComplex:
            self._states[-1] = None  # from here on no end is known
            return unknown

    def _is_banned(self, token_id: int) -> bool:
        return bool(self._banned[token_id // 32] >> token_id % 32 & 1)

    def _after(self, state: State | None, token_id: int) -> State | None:
        """Return where a token leads; None where the recognizer is at a loss, or at the end."""
        return (
            None if state is None or self._paths is None else self._paths.advance(state, token_id)
        )

    def _compute(self, mask: Mask) -> None:
        """Have llguidance make a mask; beside the steps if the one before took long."""
        with away() if self._is_slow else nullcontext():
            began = time.thread_time()
            self._matcher.unsafe_compute_mask_ptr(mask.ctypes.data, mask.nbytes)
            self._is_slow = time.thread_time() - began > _SLOW_SECONDS
        self._check()

    def _check(self) -> None:
        if self._matcher.is_error():
            raise ValueError(self._matcher.get_error()[:500])


def _vocabulary(
    tokenizer: llguidance.LLTokenizer, special: frozenset[int], plain_ends: frozenset[int]
) -> Vocabulary:
    """Return the texts of a tokenizer's tokens, but for those that have none or end an output."""
    texts = {}
    for token_id in range(tokenizer.vocab_size):
        if token_id in plain_ends:
            continue
        if token_id in special:
            texts[token_id] = text_of_mark(token_id)
        elif not (text := tokenizer.decode_bytes([token_id])).startswith(MARK):
            texts[token_id] = text

    def encode(text: bytes, is_whole: bool) -> list[int]:
        if is_whole:
            return list(tokenizer.tokenize_bytes(text))
        return list(tokenizer.tokenize_partial(text)[0])

    return Vocabulary(texts, encode)


def _ids(mask: Mask) -> frozenset[int]:
    """Return the tokens of a mask."""
    bits = np.unpackbits(mask.view(np.uint8), bitorder="little")
    return frozenset(np.flatnonzero(bits).tolist())


@dataclass(frozen=True, slots=True)
class _Tokens:
    """A model's tokens: llguidance's, by text, and some of them.

    special     those that stand for no text.
    plain_ends  those that end an output, though they are text as others are.
    """

    tokenizer: llguidance.LLTokenizer
    vocabulary: Vocabulary
    special: frozenset[int]
    plain_ends: frozenset[int]
    without_text: frozenset[int]


@dataclass(frozen=True, slots=True)
class _Begun:
    """The matcher of a source's text, compiled before the whole source was there."""

    text: str
    matcher: llguidance.LLMatcher


@dataclass(slots=True)
class _Compiled:
    """A compiled grammar.

    grammar     its rules; None where nothing is known of its ends.
    paths       the ways in it; only steps go them.
    enough      tokens that are surely enough for a whole text, of any.
    looked_for  how few were looked for: whether less than these are enough isn't known.
    searched    the same for requests with few tokens, and where they begin: a way from there was
                looked for. None until it is.
    plain_ends  the tokens that end an output, though they are text as others are.
    """

    matcher: llguidance.LLMatcher
    grammar: Grammar | None
    num_source_bytes: int
    vocabulary: Vocabulary
    banned: Mask
    paths: TokenPaths | None = None
    enough: int = NEVER
    looked_for: int = NEVER
    searched: tuple[TokenPaths | None, State | None] | None = None
    plain_ends: Mask | None = None

    def new_paths(
        self, begun: bytes = b"", never: frozenset[int] = frozenset()
    ) -> tuple[TokenPaths | None, State | None]:
        """Return ways of its own in it, and the state after a text; None where no end is known."""
        if self.grammar is None:
            return None, None
        try:
            recognizer = Recognizer(self.grammar)
            state = recognizer.advance(recognizer.start, begun)
        except TooComplex:
            return None, None
        return TokenPaths(recognizer, self.vocabulary, never), state

    def look_for(self, room: int, paths: TokenPaths) -> None:
        """Find out whether so many tokens are surely enough, in ways that no step goes yet."""
        if paths.has_bytes:
            self.enough = min(self.enough, paths.enough(paths.recognizer.start, room))
        # Where so many aren't enough, less never are. Set last, for other threads ask meanwhile.
        self.looked_for = room if self.enough <= room else 0

    def suffices(self, room: int) -> bool:
        """Return whether so many tokens are surely enough, as far as it was looked for."""
        return self.paths is None or self.enough <= room

    @property
    def num_bytes(self) -> int:
        """Return about how much memory it takes: it grows as outputs go other ways in it."""
        searched = None if self.searched is None else self.searched[0]
        num_steps = sum(each.work_kept for each in (self.paths, searched) if each is not None)
        return _BYTES + _BYTES_OF_SOURCE * self.num_source_bytes + _BYTES_OF_STEP * num_steps
