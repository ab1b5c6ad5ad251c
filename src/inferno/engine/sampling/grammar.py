"""Grammars as constraints: llguidance says which tokens may come next.

An extra, imported when the first request has a grammar. Source of the method: llguidance computes
the mask of a step from an Earley parser over a lexer of derivatives of regular expressions.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import llguidance
import numpy as np

from inferno.engine.sampling.constraints import Mask
from inferno.engine.sampling.grammar_child import LIMITS as _LIMITS
from inferno.engine.sampling.grammar_child import GrammarSource, compiled, refusal
from inferno.errors import TokenizerError
from inferno.json_file import MAX_TOKENIZER_BYTES
from inferno.model_files import TOKENIZER, model_files
from inferno.requests import Request


class GrammarCompiler:
    """A model's tokens, for which grammars are compiled; `compiling.py` keeps these.

    path        of the model's folder or GGUF file, which has the tokenizer.
    vocab_size  how many tokens a row of logits has.
    """

    def __init__(self, path: Path, vocab_size: int) -> None:
        self._path = path
        self._vocab_size = vocab_size
        self._tokenizers: dict[frozenset[int], llguidance.LLTokenizer] = {}

    def prepare(self, eos_token_ids: frozenset[int]) -> None:
        """Read the model's tokens, which takes most of a second where they are many."""
        self._tokenizer(eos_token_ids)

    def compile(self, source: str, eos_token_ids: frozenset[int]) -> llguidance.LLMatcher:
        """Return a compiled grammar; InvalidRequest where it can't be honoured.

        source          a GrammarSource as text, as `grammar_child.py` makes it.
        """
        text = GrammarSource.from_json(source).text
        return compiled(self._tokenizer(eos_token_ids), text, _LIMITS)

    def constrain(self, matcher: llguidance.LLMatcher, request: Request) -> list[GrammarConstraint]:
        """Return the constraint of each sequence of a request that has this grammar.

        Raises InvalidRequest where what the request bans leaves no way to begin.
        """
        banned = self._banned(request)
        if banned is not None:
            try:
                GrammarConstraint(matcher.deep_copy(), banned).mask_into(np.zeros_like(banned))
            except ValueError as problem:
                raise refusal(str(problem)) from None
        return [GrammarConstraint(matcher.deep_copy(), banned) for _ in range(request.params.n)]

    def _tokenizer(self, eos_token_ids: frozenset[int]) -> llguidance.LLTokenizer:
        """Return the model's tokens with those that end an output, which requests agree on."""
        if eos_token_ids not in self._tokenizers:
            self._tokenizers.clear()
            content = model_files(self._path).read(
                TOKENIZER, error=TokenizerError, max_bytes=MAX_TOKENIZER_BYTES
            )
            # Slices make masks fast. Python's lock is held while either is made, so make them
            # apart: others are held up half as long at a time.
            tokenizer = llguidance.LLTokenizer(
                content.decode(),
                n_vocab=self._vocab_size,
                eos_token=sorted(eos_token_ids),
                slices=[],
            )
            self._tokenizers[eos_token_ids] = tokenizer.with_slices(tokenizer.general_slices())
        return self._tokenizers[eos_token_ids]

    def _banned(self, request: Request) -> Mask | None:
        """Return the tokens that the request itself never allows, as a mask; None: all may come."""
        params = request.params
        words = [word[0] for word in request.bad_words_ids if len(word) == 1]
        if params.allowed_token_ids is None and not words:
            return None
        is_banned = np.zeros(-(-self._vocab_size // 32) * 32, np.uint8)
        if params.allowed_token_ids is not None:
            is_banned[:] = 1
            is_banned[list(params.allowed_token_ids)] = 0
        is_banned[words] = 1
        return np.packbits(is_banned, bitorder="little").view(np.int32)


class GrammarConstraint:
    """A grammar, and how far one sequence has come in it; see `Constraint`."""

    def __init__(self, matcher: llguidance.LLMatcher, banned: Mask | None) -> None:
        self._matcher = matcher
        self._banned = banned

    def mask_into(self, mask: Mask) -> None:
        self._matcher.unsafe_compute_mask_ptr(mask.ctypes.data, mask.nbytes)
        self._check()
        if self._banned is not None:
            np.bitwise_and(mask, ~self._banned, out=mask)
            if not mask.any():
                raise ValueError(
                    "its grammar, allowed_token_ids and bad_words together leave no token"
                )

    def accept(self, token_ids: Sequence[int]) -> None:
        self._matcher.consume_tokens(list(token_ids))
        self._check()

    def rollback(self, num_tokens: int) -> None:
        self._matcher.rollback(num_tokens)
        self._check()

    def _check(self) -> None:
        if self._matcher.is_error():
            raise ValueError(self._matcher.get_error()[:500])
