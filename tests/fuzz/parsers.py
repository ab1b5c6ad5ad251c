"""Feed random outputs to every parser of tool calls, and look at what comes out.

    python -m tests.fuzz.parsers --count 50000 --seed 1

An output is made of marks, pieces of calls, text and random tokens. However its ids are cut, the
answer must be the same; without calls it must be the one that is parsed without tools; and nothing
may raise an error. What is found is printed, and ends the run with status 1. A case is made of its
seed and number alone.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from collections.abc import Sequence
from functools import cache
from random import Random

from inferno.text.parsers.answer import Answer, join_pieces
from inferno.text.parsers.calls.syntax import (
    FUNCTION,
    FUNCTION_END,
    PARAMETER,
    PARAMETER_END,
    SYNTAXES,
    ToolDialect,
)
from inferno.text.parsers.choose import Dialect
from inferno.text.parsers.parser import Part, Piece
from tests.text.parsers.calling import REASONING as REASONING_MARKS
from tests.text.parsers.calling import SPECIAL, TOOLS, parsed, tokenizer_of

JSON = ["{", "}", "[", "]", '"', '"', ":", ", ", ",", '"name"', '"arguments"', '"parameters"']
JSON += ['{"name": "', '", "arguments": ', '", "parameters": ', '"id": "', '{"a": 1}', "{}", "}}"]
JSON += ["null", "-1.5e3", "\\", '\\"', "\\u00e9", "\\ud800", '{"a": {"b": ["}', '"]}']
PYTHON = ["get_x(", "g()", "[get_x(s=", ")", "'", "'it\\'s'", "s=", "n=1", "True", "None", "; "]
BARE = ["[get_x(", "[get_x(s='", "[g(), get_x(n=", SYNTAXES[ToolDialect.LLAMA].begin("g"), "[{"]
XML = [f"{FUNCTION}g>", f"{FUNCTION}get_x>\n", f"{PARAMETER}s>\n", f"{PARAMETER}n>", "\n", "5"]
XML += [
    PARAMETER_END,
    f"\n{PARAMETER_END}\n",
    FUNCTION_END,
    "</",
    "<",
    ">",
    f"{PARAMETER}o>",
    "<func",
]
TEXT = [
    "Well",
    " then",
    "\n",
    "\n\n",
    " ",
    "é",
    "世",
    "😀",
    "get_x",
    "g",
    "function",
    "```",
    "```json\n",
]
REASONING = ["<think>", "</think>", "<think>\n", "\n</think>\n\n"]
REASONING_OF = {ToolDialect.HARMONY: Dialect.HARMONY, ToolDialect.LLAMA: Dialect.PLAIN}
ANY = (ToolDialect.HERMES, ToolDialect.QWEN_XML, ToolDialect.LLAMA, ToolDialect.DEEPSEEK)
PARSED = [
    ("hf/gpt-oss-20b", ToolDialect.HARMONY),
    ("hf/Mistral-7B-Instruct-v0.3", ToolDialect.MISTRAL_LIST),
]
PARSED += [("hf/Qwen3-0.6B", dialect) for dialect in ANY]
PARSED += [(SPECIAL, dialect) for dialect in (*ANY, ToolDialect.MISTRAL_ARGS)]


@cache
def ids_of(model: str, text: str) -> tuple[int, ...]:
    return tuple(tokenizer_of(model).encode(text, add_special_tokens=False))


@cache
def reasoning_ids() -> frozenset[int]:
    return frozenset(token_id for mark in REASONING_MARKS for token_id in ids_of(SPECIAL, mark))


@cache
def stock(dialect: ToolDialect) -> tuple[str, ...]:
    """The texts of which outputs are made: what the dialect writes, and what it doesn't."""
    syntax = SYNTAXES[dialect]
    own = [*syntax.marks, syntax.opens, syntax.closes, syntax.separator, syntax.end]
    own += [syntax.begin("get_x"), syntax.begin("g"), syntax.before_name, syntax.after_name]
    whole = syntax.opens + syntax.begin("g") + "{}" + syntax.end + syntax.closes
    halves = [mark[: len(mark) // 2] for mark in syntax.marks]
    more = {ToolDialect.QWEN_XML: XML, ToolDialect.LLAMA: PYTHON}.get(dialect, [])
    return tuple(filter(None, [*own, *own, whole, *halves, *JSON, *more, *TEXT, *REASONING]))


def random_ids(random: Random, model: str, dialect: ToolDialect) -> list[int]:
    texts = stock(dialect)
    ids: list[int] = []
    if dialect is ToolDialect.LLAMA and random.random() < 0.5:  # what makes a bare answer a call
        ids += ids_of(model, random.choice(BARE))
    for _ in range(random.randrange(1, 24)):
        if random.random() < 0.08:
            ids.append(random.randrange(tokenizer_of(model).vocab_size + 20))
        else:
            ids += ids_of(model, random.choice(texts))
    return ids


def parsed_as(
    model: str,
    dialect: ToolDialect,
    parts: Sequence[Sequence[int]],
    *,
    skips: bool = True,
    has_tools: bool = True,
) -> list[Piece]:
    reasoning = REASONING_OF.get(dialect, Dialect.THINK)
    tools = TOOLS if has_tools else []
    return parsed(model, dialect, parts, reasoning=reasoning, tools=tools, skips=skips)


def problem_of(pieces: list[Piece], whole: Answer, plain: Answer | None) -> str | None:
    """What is wrong with the pieces of a stream, if anything is."""
    if join_pieces(pieces) != whole:
        return f"the stream makes {join_pieces(pieces)}"
    if plain is not None and whole != plain:
        return f"without tools it is {plain}"
    told = [piece.call for piece in pieces if piece.call is not None]
    if [call.index for call in told] != sorted(call.index for call in told):
        return "calls are mixed"
    if {call.index for call in told} != set(range(len(whole.tool_calls))):
        return "calls are not counted from 0"
    if any((piece.part is Part.TOOL_CALL) != (piece.call is not None) for piece in pieces):
        return "a piece is of no part"
    try:
        "".join([*(p.text for p in pieces), *(call.name for call in told)]).encode()
    except UnicodeEncodeError:
        return "a text is none"
    return None


def run_case(seed: int, number: int) -> tuple[str, str | None]:
    """Run a case; return what it was, with the number of its calls, and what is wrong, if so."""
    random = Random(f"{seed}:{number}")
    model, dialect = random.choice(PARSED)
    ids = random_ids(random, model, dialect)
    skips = random.random() < 0.8
    parts, at = [], 0
    longest = random.choice([1, 1, 3, 9])
    while at < len(ids):
        size = random.randrange(1, longest + 1)
        parts.append(ids[at : at + size])
        at += size
    whole = join_pieces(parsed_as(model, dialect, [ids], skips=skips))
    plain = None
    if not whole.tool_calls and dialect is not ToolDialect.HARMONY:
        plain = join_pieces(parsed_as(model, dialect, [ids], has_tools=False, skips=skips))
        if "\ufffd" in whole.content + whole.reasoning:  # a character that a hidden mark cut
            plain = None
        # To the parser of reasoning even a hidden mark is text: no reasoning begins after it.
        if skips and model == SPECIAL and not set(ids).isdisjoint(reasoning_ids()):
            plain = None
    problem = problem_of(parsed_as(model, dialect, parts, skips=skips), whole, plain)
    kind = f"{model} {dialect}: {min(len(whole.tool_calls), 3)} calls"
    if problem is not None:
        problem = f"case {number} of seed {seed}, {kind}, {json.dumps(ids)}: {whole}; {problem}"
    return kind, problem


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--count", type=int, default=10_000)
    arguments.add_argument("--first", type=int, default=0)
    arguments.add_argument("--seed", type=int, default=1)
    options = arguments.parse_args()
    for model, dialect in PARSED:  # loads the tokenizers
        parsed_as(model, dialect, [])
    kinds: Counter[str] = Counter()
    num_problems, slowest = 0, (0.0, 0)
    for number in range(options.first, options.first + options.count):
        start = time.process_time()
        kind, problem = run_case(options.seed, number)
        slowest = max(slowest, (time.process_time() - start, number))
        kinds[kind] += 1
        if number % 10_000 == 9_999:
            print(f"up to {number}: {num_problems} problems", file=sys.stderr, flush=True)
        if problem is not None:
            num_problems += 1
            print(problem, flush=True)
    for kind, count in sorted(kinds.items()):
        print(f"{count:8} {kind}")
    print(
        f"{options.count} cases, {num_problems} problems; slowest {slowest[0]:.3f} s: {slowest[1]}"
    )
    return num_problems > 0


if __name__ == "__main__":
    sys.exit(main())
