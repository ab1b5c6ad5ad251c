"""Grammars as constraints: llguidance says which tokens may come next.

An extra, imported when the first request has a grammar. Source of the method: llguidance computes
the mask of a step from an Earley parser over a lexer of derivatives of regular expressions.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import llguidance
import numpy as np

from inferno.engine.sampling.constraints import MAX_ROLLBACK, Mask, set_bit
from inferno.engine.sampling.grammar_child import LIMITS, GrammarSource, compiled, refusal
from inferno.engine.sampling.grammar_tokenizer import llguidance_tokenizer
from inferno.errors import InvalidRequest, TokenizerError
from inferno.grammar.lark import marks_of
from inferno.grammar.recognizer import MARK, Recognizer, State, text_of_mark
from inferno.grammar.regex import TooComplex
from inferno.grammar.token_paths import TokenPaths, Vocabulary
from inferno.json_file import MAX_TOKENIZER_BYTES
from inferno.model_files import TOKENIZER, model_files
from inferno.requests import Request

T = TypeVar("T")


class GrammarCompiler:
    """A model's tokens, for which grammars are compiled; `compiling.py` keeps these.

    path        of the model's folder or GGUF file, which has the tokenizer.
    vocab_size  how many tokens a row of logits has.
    most_mask_bytes     of masks that are kept by their states: by default 1,700 of 150,000 tokens.
    """

    def __init__(self, path: Path, vocab_size: int, *, most_mask_bytes: int = 32 << 20) -> None:
        self._path = path
        self._vocab_size = vocab_size
        self._tokens: dict[frozenset[int], _Tokens] = {}
        self._masks = KeptMasks(most_mask_bytes)

    def prepare(self, eos_token_ids: frozenset[int]) -> None:
        """Read the model's tokens, which takes most of a second where they are many."""
        self._tokens_for(eos_token_ids)

    def compile(self, source: str, eos_token_ids: frozenset[int]) -> _Compiled:
        """Return a compiled grammar; InvalidRequest where it can't be honoured.

        source          a GrammarSource as text, as `grammar_child.py` makes it.
        """
        tokens = self._tokens_for(eos_token_ids)
        made = GrammarSource.from_json(source)
        matcher = compiled(tokens.tokenizer, made.text, LIMITS)
        banned = self._bits(tokens.without_text)
        paths = None
        if made.grammar is not None:
            with suppress(TooComplex):  # then no end is known
                paths = TokenPaths(Recognizer(made.grammar), tokens.vocabulary)
            named = marks_of(made.grammar) | eos_token_ids
            banned |= self._bits(tokens.special - named)
        return _Compiled(matcher, paths, banned)

    def is_costly(self, grammar: _Compiled, request: Request) -> bool:
        """Return whether its way to an end is to be searched before a request can begin."""
        params = request.params
        if params.allowed_token_ids is not None or request.bad_words_ids:
            return True
        if grammar.paths is None or params.max_tokens is None:
            return False
        return grammar.paths.recognizer.start.distance > params.max_tokens

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
                first = GrammarConstraint(matcher.deep_copy(), None, self._masks, banned, ends)
                first.mask_into(np.zeros_like(banned))
            except ValueError as problem:
                raise refusal(str(problem)) from None
            if paths is not None:
                paths = TokenPaths(paths.recognizer, paths.vocabulary, _ids(of_request))
        if paths is not None and self.is_costly(grammar, request):
            with suppress(TooComplex):  # now, where no step waits for it
                paths.fits(paths.recognizer.start, request.params.max_tokens or 0)
        state = None if paths is None else paths.recognizer.start
        if request.answer_so_far:
            matcher = matcher.deep_copy()
            begun = request.answer_so_far.encode(errors="replace")
            vocabulary = self._tokens_for(request.eos_token_ids).vocabulary
            matcher.consume_tokens(vocabulary.encode(begun, True))
            state = (
                None if paths is None else paths.recognizer.advance(paths.recognizer.start, begun)
            )
            if matcher.is_error():
                raise InvalidRequest(
                    "the last message is not the beginning of an answer of this shape: end it "
                    "where one may go on, or leave it out",
                    param="messages",
                )
        ends = request.eos_token_ids
        return [
            GrammarConstraint(matcher.deep_copy(), paths, self._masks, banned, ends, state)
            for _ in range(request.params.n)
        ]

    def _tokens_for(self, eos_token_ids: frozenset[int]) -> _Tokens:
        """Return the model's tokens with those that end an output, which requests agree on."""
        if eos_token_ids not in self._tokens:
            self._tokens.clear()
            content = model_files(self._path).read(
                TOKENIZER, error=TokenizerError, max_bytes=MAX_TOKENIZER_BYTES
            )
            tokenizer = llguidance_tokenizer(
                content.decode(), self._vocab_size, sorted(eos_token_ids)
            )
            special = frozenset(filter(tokenizer.is_special_token, range(tokenizer.vocab_size)))
            vocabulary = _vocabulary(tokenizer, special)
            without_text = frozenset(range(self._vocab_size)) - vocabulary.by_id.keys()
            self._tokens[eos_token_ids] = _Tokens(tokenizer, vocabulary, special, without_text)
        return self._tokens[eos_token_ids]

    def _banned(self, request: Request) -> Mask | None:
        """Return the tokens that the request itself never allows, as a mask; None: all may come."""
        params = request.params
        words = [word[0] for word in request.bad_words_ids if len(word) == 1]
        if params.allowed_token_ids is None and not words:
            return None
        banned = self._bits(words)
        if params.allowed_token_ids is not None:
            banned |= ~self._bits(params.allowed_token_ids)
        return banned

    def _bits(self, token_ids: Iterable[int]) -> Mask:
        """Return a mask of these tokens."""
        is_meant = np.zeros(-(-self._vocab_size // 32) * 32, np.uint8)
        is_meant[list(token_ids)] = 1
        return np.packbits(is_meant, bitorder="little").view(np.int32)


class KeptMasks:
    """Masks by the states of recognizers, those used last, within a number of bytes.

    What may follow is the same wherever the state is: of many streams that have one shape, most
    find the masks that others have made. Each keeps its grammar's recognizer as well.
    """

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._kept: OrderedDict[State, Mask] = OrderedDict()

    def find(self, state: State | None) -> Mask | None:
        """Return the mask of a state, if it is kept; it is the last used now."""
        found = None if state is None else self._kept.get(state)
        if state is not None and found is not None:
            self._kept.move_to_end(state)
        return found

    def keep(self, state: State | None, mask: Mask) -> None:
        """Keep a copy of a mask, and forget those that were used least lately to make room."""
        if state is not None:
            self._kept[state] = mask.copy()
            while len(self._kept) * mask.nbytes > self._most_bytes:
                self._kept.popitem(last=False)


class GrammarConstraint:
    """A grammar, and how far one sequence has come in it; see `Constraint`.

    paths   what is known of the ways to an end; None where nothing is.
    masks   those of states where others have been.
    banned  tokens that the request or the grammar never allows.
    state   where the output begins; None where no way to an end is known.
    """

    def __init__(
        self,
        matcher: llguidance.LLMatcher,
        paths: TokenPaths | None,
        masks: KeptMasks,
        banned: Mask,
        eos_token_ids: frozenset[int],
        state: State | None = None,
    ) -> None:
        self._matcher = matcher
        self._paths = paths
        self._masks = masks
        self._banned = banned
        self._not_banned = ~banned
        self._end = min(eos_token_ids)
        self._states = [state]

    def mask_into(self, mask: Mask) -> None:
        if forced := self.forced(1):
            set_bit(mask, forced[0], is_allowed=True)
        elif (known := self._masks.find(self._states[-1])) is not None:
            mask[:] = known
        else:
            self._matcher.unsafe_compute_mask_ptr(mask.ctypes.data, mask.nbytes)
            self._check()
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
            token_id = paths.forced(state)
            if token_id is None or self._is_banned(token_id):
                break
            found.append(token_id)
            state = self._after(state, token_id)
        return found

    def accept(self, token_ids: Sequence[int]) -> None:
        self._matcher.consume_tokens(list(token_ids))
        self._check()
        for token_id in token_ids:
            try:
                self._states.append(self._after(self._states[-1], token_id))
            except TooComplex:  # from here on no end is known
                self._states.append(None)
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
        if state is None or self._paths is None:
            return None
        text = self._paths.vocabulary.by_id.get(token_id)
        return None if text is None else self._paths.recognizer.advance(state, text)

    def _check(self) -> None:
        if self._matcher.is_error():
            raise ValueError(self._matcher.get_error()[:500])


def _vocabulary(tokenizer: llguidance.LLTokenizer, special: frozenset[int]) -> Vocabulary:
    """Return the texts of a tokenizer's tokens, but for those that have none."""
    texts = {}
    for token_id in range(tokenizer.vocab_size):
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
    """A model's tokens: llguidance's, by text, and which of them are special or have no text."""

    tokenizer: llguidance.LLTokenizer
    vocabulary: Vocabulary
    special: frozenset[int]
    without_text: frozenset[int]


@dataclass(frozen=True, slots=True)
class _Compiled:
    matcher: llguidance.LLMatcher
    paths: TokenPaths | None
    banned: Mask
