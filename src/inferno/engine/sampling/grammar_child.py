"""The program of the child process in which grammars, which strangers write, are compiled first.

It is run as a script; `limited/child.py` says how. A request is `{"structured"}`, the fields of a
StructuredOutput, `{"matcher_seconds"}`, what the library may take with what is made of it, and
`{"is_loose"}`, whether schemas that need not be kept to are left out. An answer is `{"source"}`, a
GrammarSource, or `{"refused"}` with why it can't be honoured. Where the library has compiled the
source's text in little time, `{"text"}` goes out before: the engine's process compiles it while the
rest is found out here.

What comes from here is compiled again in the engine's process, where nothing ends what takes too
long. So it is compiled here as well, with the same limits and less time and stack. The bytes are
the tokens here: a grammar costs nearly as much with 150,000 tokens, which would take 100 MB.
"""

from __future__ import annotations

import json
import re
import sys
import time
from contextlib import suppress
from typing import Any

if __name__ == "__main__":
    sys.path += sys.argv[4:]  # no environment variable says where modules are

import resource
from dataclasses import dataclass
from functools import partial

import llguidance

from inferno.errors import InvalidRequest
from inferno.grammar.encoding import decode, encode
from inferno.grammar.json_schema import WHITESPACE, compile_schema
from inferno.grammar.lark import marks_of, to_lark
from inferno.grammar.recognizer import Recognizer
from inferno.grammar.regex import (
    ANY,
    Regex,
    TooComplex,
    UnsupportedRegex,
    alt,
    both,
    literal,
    repeat,
)
from inferno.grammar.rules import START, Grammar, Terminal
from inferno.grammar.structural_tag import compile_structural_tag
from inferno.grammar.syntax import parse_regex
from inferno.limited.child import limit_time, say_so_far, work
from inferno.structured import StructuredOutput

# What a grammar may cost: half of llguidance's own limits for a start, a fifth of them for a step,
# and some megabytes of states in each sequence. A step of so many items takes a tenth of a second,
# and all others wait while a token is followed; none of our tests' grammars takes 2,000.
LIMITS = llguidance.LLParserLimits(
    initial_lexer_fuel=500_000,
    max_grammar_size=250_000,
    max_lexer_states=50_000,
    step_max_items=10_000,
    verbose_errors=False,
)
# In a grammar: a string, a comment, a regular expression or, by itself, a special token.
_SPECIAL_TOKEN = re.compile(r'"(?:\\.|[^"\\\n])*"|//[^\n]*|/(?:\\.|[^/\\\n])+/|(<[^<>\s"]+>)')
# What llguidance may take here if the engine's process is to begin while the rest is done here:
# what is refused in the end has cost it no more than about that.
_LITTLE_SECONDS = 0.02
# Attributes of Lark's terminals whose tokens llguidance doesn't take back.
_NOT_TAKEN_BACK = ("stop", "max_tokens")
# Less than threads of the engine's process have, so that what fits here fits there.
_STACK_BYTES = 2 << 20


@dataclass(frozen=True, slots=True)
class GrammarSource:
    """A grammar in llguidance's notation, and as our rules, where they can express it."""

    text: str
    grammar: Grammar | None

    def to_json(self) -> str:
        """Return the source as a text for another process."""
        rules = None if self.grammar is None else encode(self.grammar)
        return json.dumps({"text": self.text, "rules": rules})

    @classmethod
    def from_json(cls, text: str) -> GrammarSource:
        """Return the source that `to_json` wrote."""
        content = json.loads(text)
        rules = content["rules"]
        return cls(content["text"], None if rules is None else decode(rules))


def grammar_source(structured: StructuredOutput, *, is_loose: bool = False) -> GrammarSource:
    """Return the grammar of a shape. Raises InvalidRequest where it can't be honoured.

    is_loose    any object is allowed in place of a schema that need not be kept to.
    """
    if structured.grammar is not None:
        if structured.grammar.lstrip().startswith("{"):  # llguidance would read it as JSON
            raise refusal("a grammar in Lark's notation doesn't begin with {")
        return GrammarSource(llguidance.LLMatcher.grammar_from_lark(structured.grammar), None)
    try:
        grammar = _rules(structured, is_loose)
    except UnsupportedRegex as problem:
        if structured.regex is None:
            raise refusal(str(problem)) from None
        # llguidance may know more; then no end is known.
        return GrammarSource(llguidance.LLMatcher.grammar_from_regex(structured.regex), None)
    except ValueError as problem:
        raise refusal(str(problem)) from None
    return GrammarSource(llguidance.LLMatcher.grammar_from_lark(to_lark(grammar)), grammar)


def _rules(structured: StructuredOutput, is_loose: bool) -> Grammar:
    if structured.regex is not None:
        return Grammar({START: ((Terminal(parse_regex(structured.regex)),),)})
    if structured.choice:
        return Grammar({START: ((Terminal(alt(*map(literal, structured.choice))),),)})
    whitespace: Regex | None = WHITESPACE
    if structured.whitespace_pattern is not None:
        # There may be none of it anywhere: what is left is at least a character.
        whitespace = both(parse_regex(structured.whitespace_pattern), repeat(ANY, 1, None))
    elif structured.disable_any_whitespace:
        whitespace = None
    to_grammar = partial(
        compile_schema,
        whitespace=whitespace,
        disable_additional_properties=structured.disable_additional_properties,
    )
    if structured.structural_tag is not None:
        tag = json.loads(str(structured.structural_tag))
        marks = dict(structured.special_tokens)
        return compile_structural_tag(tag, marks, to_grammar, is_loose=is_loose)
    return to_grammar('{"type":"object"}' if structured.json is None else str(structured.json))


def _trial(source: GrammarSource) -> str:
    """Return what is compiled here instead of a source, for no special token is known here."""
    if source.grammar is None:
        return _SPECIAL_TOKEN.sub(_as_text, source.text)
    if not marks_of(source.grammar):
        return source.text
    return llguidance.LLMatcher.grammar_from_lark(to_lark(source.grammar, marks_as_text=True))


def _as_text(found: re.Match[str]) -> str:
    return json.dumps(found[0]) if found[1] else found[0]


def compiled(
    tokenizer: llguidance.LLTokenizer, source: str, limits: llguidance.LLParserLimits
) -> llguidance.LLMatcher:
    """Return a compiled grammar; InvalidRequest where llguidance finds anything wrong."""
    matcher = llguidance.LLMatcher(tokenizer, source, log_level=0, limits=limits)
    problems = [matcher.get_error()] if matcher.is_error() else matcher.get_grammar_warnings()
    if not problems:
        # Its first mask is computed now, for the copies that requests get know what it knows.
        mask = matcher.compute_bitmask()
        problems = [matcher.get_error()] if matcher.is_error() else []
        if not problems and any(word in source for word in _NOT_TAKEN_BACK):
            problems = _problems_of_taking_back(matcher, mask)
    if problems:
        is_endless = problems[0].startswith("NoExtensionBias")
        raise refusal("no text has this shape" if is_endless else "; ".join(problems))
    return matcher


def _problems_of_taking_back(matcher: llguidance.LLMatcher, mask: bytes) -> list[str]:
    """Return why no token can be taken back, as steering does; an empty list if it can be."""
    first = next((i for i in range(8 * len(mask)) if mask[i // 8] >> i % 8 & 1), None)
    if first is None:
        return []
    tried = matcher.deep_copy()
    tried.consume_token(first)
    tried.rollback(1)
    if not tried.is_error():
        return []
    words = " and ".join(f"`{word}`" for word in _NOT_TAKEN_BACK)
    return [f"{words} of Lark's terminals can't be kept to; say `suffix`, or the request's stop"]


def refusal(problem: str) -> InvalidRequest:
    """Return the error for a grammar that can't be honoured; the problem may have many lines."""
    said = " ".join(problem.split())[:500]
    return InvalidRequest(f"structured can't be honoured: {said}", param="structured")


def _answer(request: dict[str, Any]) -> dict[str, str]:
    try:
        structured = StructuredOutput(**request["structured"])
        source = grammar_source(structured, is_loose=request.get("is_loose", False))
        if "matcher_seconds" in request:
            limit_time(request["matcher_seconds"])
        began = time.process_time()
        compiled(_BYTES, _trial(source), LIMITS)
        took_little = time.process_time() - began < _LITTLE_SECONDS
        if "matcher_seconds" in request and took_little:
            say_so_far({"text": source.text})
        if source.grammar is not None:
            with suppress(TooComplex):  # then no end is known
                recognizer = Recognizer(source.grammar)
                recognizer.shortest(recognizer.start)
                recognizer.keep_automata()
    except InvalidRequest as problem:
        return {"refused": str(problem)}
    except MemoryError:
        raise
    except Exception as problem:  # whatever a library raises is this grammar's alone
        return {"refused": str(refusal(repr(problem)))}
    return {"source": source.to_json()}


def _prepare(_first: object) -> None:
    with suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_STACK, (_STACK_BYTES, _STACK_BYTES))
    _answer({"structured": {"json_object": True}})


if __name__ == "__main__":
    _BYTES = llguidance.LLTokenizer("byte")
    work(_prepare, _answer)
