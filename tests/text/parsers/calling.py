"""Outputs with calls of tools, and the parsers that take them apart."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path

from inferno.model_files import FolderFiles
from inferno.requests import FinishReason, SamplingParams, TokenEvent
from inferno.text.output import OutputText
from inferno.text.parsers.answer import Answer, join_pieces
from inferno.text.parsers.calls.parser import CallMarks, CallParser
from inferno.text.parsers.calls.syntax import SYNTAXES, ToolDialect, make_tool_use
from inferno.text.parsers.choose import Dialect
from inferno.text.parsers.parser import Part, Piece
from inferno.text.tokenizer import Tokenizer, load_tokenizer
from tests.text.loaded import added_token, real_tokenizer, small_spec, write_tokenizer

TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "get_x",
            "parameters": {
                "type": "object",
                "properties": {
                    "s": {"type": "string"},
                    "n": {"type": "integer"},
                    "o": {"type": "object"},
                    "m": {"anyOf": [{"type": "string"}, {"type": "null"}]},
                },
            },
        },
    },
    {"type": "function", "function": {"name": "g"}},
]
SPECIAL = "special"
REASONING = ("<think>", "</think>")


@cache
def tokenizer_of(model: str) -> Tokenizer:
    """A real tokenizer, or a small one to which all marks of calls are special tokens."""
    if model != SPECIAL:
        return real_tokenizer(model)
    spec = small_spec()
    marks = {mark: None for syntax in SYNTAXES.values() for mark in syntax.marks}
    spec["added_tokens"] += [
        added_token(token_id, mark) for token_id, mark in enumerate(marks, start=512)
    ]
    spec["added_tokens"] += [
        added_token(512 + len(marks) + i, mark, special=False) for i, mark in enumerate(REASONING)
    ]
    with tempfile.TemporaryDirectory() as folder:
        return load_tokenizer(FolderFiles(write_tokenizer(Path(folder), spec)))


def parsed(
    model: str,
    dialect: ToolDialect,
    parts: Sequence[Sequence[int]],
    *,
    reasoning: Dialect = Dialect.PLAIN,
    tools: Sequence[object] = TOOLS,
    skips: bool = True,
) -> list[Piece]:
    """The pieces of an output whose ids come in these parts."""
    output = OutputText(
        tokenizer_of(model),
        SamplingParams(skip_special_tokens=skips),
        dialect=reasoning,
        tool_use=make_tool_use(dialect, tools),
    )
    pieces: list[Piece] = []
    for part in parts:
        pieces += output.feed(TokenEvent("r", 0, tuple(part))).pieces
    return pieces + list(
        output.feed(TokenEvent("r", 0, (), finish_reason=FinishReason.STOP)).pieces
    )


class Spoken:
    """A parser to which ids are the numbers of texts, all of them content."""

    num_reasoning_tokens = 0

    def __init__(self, texts: Sequence[str]) -> None:
        self._texts = texts

    def feed(self, token_ids: Iterable[int]) -> list[Piece]:
        return [Piece(Part.CONTENT, self._texts[i]) for i in token_ids]

    def finish(self) -> list[Piece]:
        return []


def answer_of_texts(
    dialect: ToolDialect, texts: Sequence[str], marks: CallMarks, tools: Sequence[object] = TOOLS
) -> Answer:
    """The answer that texts make which come one by one; marks in them as `marks` spells them."""
    tool_use = make_tool_use(dialect, tools)
    assert tool_use is not None
    parser = CallParser(Spoken(texts), tool_use, marks)
    pieces = [piece for i in range(len(texts)) for piece in parser.feed([i])]
    return join_pieces(pieces + parser.finish())


def spelled(text: str, marks: CallMarks) -> str:
    """The text with each mark that is a special token as the decoder writes it."""
    for mark, spelling in marks.spellings.items():
        text = text.replace(mark, spelling)
    return text
