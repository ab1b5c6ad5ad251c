"""The program that compiles grammars first: a schema is a stranger's, so it is tried apart.

It is run as a script; `limited/child.py` says how. A request is `{"structured"}`, the fields of a
StructuredOutput, and an answer `{"source"}`, the grammar in llguidance's notation, or `{"refused"}`
with why it can't be honoured.

What comes from here is compiled again in the engine's process, where nothing ends what takes too
long. So it is compiled here as well, with the same limits and less time and stack. The bytes are
the tokens here: a grammar costs nearly as much with 150,000 tokens, which would take 100 MB.
"""

from __future__ import annotations

import json
import sys
from contextlib import suppress
from typing import Any

if __name__ == "__main__":
    sys.path += sys.argv[4:]  # no environment variable says where modules are

import resource

import llguidance

from inferno.errors import InvalidRequest
from inferno.limited.child import limit_time, work
from inferno.structured import StructuredOutput

# What a grammar may cost: half of llguidance's own limits for a start, its own for a step.
LIMITS = llguidance.LLParserLimits(
    initial_lexer_fuel=500_000, max_grammar_size=250_000, verbose_errors=False
)
# What compiling a source may take here, and then about as much in the engine's process.
MATCHER_SECONDS = 0.4
# Less than threads of the engine's process have, so that what fits here fits there.
_STACK_BYTES = 2 << 20

# Between JSON's tokens may stand a space, or a new line and its indentation: with more, a model
# that likes blank lines may write nothing else.
_WHITESPACE = r"( |\n[ \t]{0,40})"


def source_of(structured: StructuredOutput) -> str:
    """Return the grammar in llguidance's own notation; InvalidRequest where there is none."""
    of_json = llguidance.LLMatcher.grammar_from_json_schema
    try:
        if structured.json is not None or structured.json_object:
            schema = '{"type":"object"}' if structured.json is None else str(structured.json)
            if structured.disable_any_whitespace:
                return of_json(schema, overrides={"whitespace_flexible": False})
            return of_json(schema, overrides={"whitespace_pattern": _WHITESPACE})
    except ValueError as problem:
        raise refusal(str(problem)) from None
    if structured.regex is not None:
        return llguidance.LLMatcher.grammar_from_regex(structured.regex)
    if structured.choice:
        words = " | ".join(json.dumps(each) for each in structured.choice)
        return llguidance.LLMatcher.grammar_from_lark(f"start: {words}")
    assert structured.grammar is not None
    return llguidance.LLMatcher.grammar_from_lark(structured.grammar)


def compiled(
    tokenizer: llguidance.LLTokenizer, source: str, limits: llguidance.LLParserLimits
) -> llguidance.LLMatcher:
    """Return a grammar that is compiled; InvalidRequest where llguidance finds anything wrong."""
    matcher = llguidance.LLMatcher(tokenizer, source, log_level=0, limits=limits)
    problems = [matcher.get_error()] if matcher.is_error() else matcher.get_grammar_warnings()
    if not problems:
        # Its first mask is computed now, for the copies that requests get know what it knows.
        matcher.compute_bitmask()
        problems = [matcher.get_error()] if matcher.is_error() else []
    if problems:
        raise refusal("; ".join(problems))
    return matcher


def refusal(problem: str) -> InvalidRequest:
    """Return the error for a grammar that can't be honoured; the problem may have many lines."""
    said = " ".join(problem.split())[:500]
    return InvalidRequest(f"structured can't be honoured: {said}", param="structured")


def _answer(request: dict[str, Any]) -> dict[str, str]:
    try:
        source = source_of(StructuredOutput(**request["structured"]))
        limit_time(MATCHER_SECONDS)
        compiled(_BYTES, source, LIMITS)
    except InvalidRequest as problem:
        return {"refused": str(problem)}
    except MemoryError:
        raise
    except Exception as problem:  # whatever a library raises is this grammar's alone
        return {"refused": str(refusal(repr(problem)))}
    return {"source": source}


def _prepare(_first: object) -> None:
    with suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_STACK, (_STACK_BYTES, _STACK_BYTES))
    _answer({"structured": {"json_object": True}})


if __name__ == "__main__":
    _BYTES = llguidance.LLTokenizer("byte")
    work(_prepare, _answer)
