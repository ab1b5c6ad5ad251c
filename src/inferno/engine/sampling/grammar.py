"""Grammars as constraints: llguidance says which tokens may come next.

An extra, imported when the first request has a grammar. Source of the method: llguidance computes
the mask of a step from an Earley parser over a lexer of derivatives of regular expressions.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Sequence
from pathlib import Path

import llguidance
import numpy as np

from inferno.engine.sampling.constraints import Mask
from inferno.errors import InvalidRequest, TokenizerError
from inferno.json_file import MAX_TOKENIZER_BYTES
from inferno.model_files import TOKENIZER, model_files
from inferno.requests import Request
from inferno.structured import StructuredOutput

_MOST_KEPT = 64  # compiled grammars, some kilobytes to megabytes each

# Between JSON's tokens may stand a space, or a new line and its indentation: with more, a model
# that likes blank lines may write nothing else.
_WHITESPACE = r"( |\n[ \t]{0,40})"

# What a grammar may cost: half of llguidance's own limits for a start, its own for a step.
_LIMITS = llguidance.LLParserLimits(
    initial_lexer_fuel=500_000, max_grammar_size=250_000, verbose_errors=False
)


class GrammarCompiler:
    """A model's tokens, and the grammars that were compiled for them.

    path        of the model's folder or GGUF file, which has the tokenizer.
    vocab_size  how many tokens a row of logits has.
    """

    def __init__(self, path: Path, vocab_size: int) -> None:
        content = model_files(path).read(
            TOKENIZER, error=TokenizerError, max_bytes=MAX_TOKENIZER_BYTES
        )
        self._tokenizer_json = content.decode()
        self._vocab_size = vocab_size
        self._tokenizers: dict[frozenset[int], llguidance.LLTokenizer] = {}
        self._compiled: OrderedDict[
            tuple[StructuredOutput, frozenset[int]], llguidance.LLMatcher
        ] = OrderedDict()

    def constrain(self, request: Request) -> GrammarConstraint:
        """Return the constraint of one sequence of a request that has a grammar.

        Raises InvalidRequest where the grammar can't be honoured, and says why.
        """
        structured = request.params.structured
        assert structured is not None
        if not request.eos_token_ids:
            raise InvalidRequest(
                "structured needs a model that has an end-of-sequence token", param="structured"
            )
        matcher = self._compile(structured, request.eos_token_ids)
        banned = self._banned(request)
        if banned is not None:
            try:
                GrammarConstraint(matcher.deep_copy(), banned).mask_into(np.zeros_like(banned))
            except ValueError as problem:
                raise _refusal(str(problem)) from None
        return GrammarConstraint(matcher.deep_copy(), banned)

    def _compile(
        self, structured: StructuredOutput, eos_token_ids: frozenset[int]
    ) -> llguidance.LLMatcher:
        key = structured, eos_token_ids
        if key in self._compiled:
            self._compiled.move_to_end(key)
            return self._compiled[key]
        matcher = llguidance.LLMatcher(
            self._tokenizer(eos_token_ids), _grammar(structured), log_level=0, limits=_LIMITS
        )
        problems = [matcher.get_error()] if matcher.is_error() else matcher.get_grammar_warnings()
        if problems:
            raise _refusal("; ".join(problems))
        self._compiled[key] = matcher
        if len(self._compiled) > _MOST_KEPT:
            self._compiled.popitem(last=False)
        return matcher

    def _tokenizer(self, eos_token_ids: frozenset[int]) -> llguidance.LLTokenizer:
        """Return the model's tokens with those that end an output, which requests agree on."""
        if eos_token_ids not in self._tokenizers:
            self._tokenizers.clear()
            self._tokenizers[eos_token_ids] = llguidance.LLTokenizer(
                self._tokenizer_json, n_vocab=self._vocab_size, eos_token=sorted(eos_token_ids)
            )
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


def _grammar(structured: StructuredOutput) -> str:
    """Return the grammar in llguidance's own notation."""
    of_json = llguidance.LLMatcher.grammar_from_json_schema
    try:
        if structured.json is not None or structured.json_object:
            schema = '{"type":"object"}' if structured.json is None else str(structured.json)
            if structured.disable_any_whitespace:
                return of_json(schema, overrides={"whitespace_flexible": False})
            return of_json(schema, overrides={"whitespace_pattern": _WHITESPACE})
    except ValueError as problem:
        raise _refusal(str(problem)) from None
    if structured.regex is not None:
        return llguidance.LLMatcher.grammar_from_regex(structured.regex)
    if structured.choice:
        words = " | ".join(json.dumps(each) for each in structured.choice)
        return llguidance.LLMatcher.grammar_from_lark(f"start: {words}")
    assert structured.grammar is not None
    return llguidance.LLMatcher.grammar_from_lark(structured.grammar)


def _refusal(problem: str) -> InvalidRequest:
    """Return the error for a grammar that can't be honoured; the problem may have many lines."""
    said = " ".join(problem.split())[:500]
    return InvalidRequest(f"structured can't be honoured: {said}", param="structured")
