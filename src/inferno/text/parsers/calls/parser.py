"""Find calls of tools in the content that a parser of reasoning gives."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from inferno.text.parsers.calls.in_json import read_deepseek, read_hermes, read_mistral
from inferno.text.parsers.calls.in_python import read_llama
from inferno.text.parsers.calls.in_xml import read_xml
from inferno.text.parsers.calls.syntax import SYNTAXES, ToolDialect, ToolUse
from inferno.text.parsers.calls.text import FIRST_MARK, AnswerText, Steps, joined, shown
from inferno.text.parsers.parser import Parser, Part, Piece
from inferno.text.tokenizer import Tokenizer


class CallMarks:
    """The marks of a dialect that are special tokens, told from equal text by their ids.

    by_id   token id -> the sign for the decoder to write, which stands for no character of text.
    """

    def __init__(self, dialect: ToolDialect, tokenizer: Tokenizer, *, is_shown: bool) -> None:
        self.by_id: dict[int, str] = {}
        self.spellings: dict[str, str] = {}
        self.shown: dict[str, str] = {}
        for number, mark in enumerate(SYNTAXES[dialect].marks):
            token_id = tokenizer.token_to_id(mark)
            if token_id in tokenizer.special_tokens:
                spelling = chr(FIRST_MARK + number)
                self.by_id[token_id] = spelling
                self.spellings[mark] = spelling
                self.shown[spelling] = tokenizer.decode(
                    [token_id], skip_special_tokens=not is_shown
                )


class CallParser:
    """A parser that takes calls out of the content that another parser finds.

    inner   the parser of reasoning, whose decoder writes `marks`. It takes marks as text, so no
            reasoning begins after one.
    """

    def __init__(self, inner: Parser, tool_use: ToolUse, marks: CallMarks) -> None:
        self._inner = inner
        self._marks: Mapping[str, str] = marks.shown
        self._text = AnswerText(marks.spellings, marks.shown)
        self._steps = _reader(self._text, tool_use)
        self._is_done = False

    @property
    def num_reasoning_tokens(self) -> int:
        """Return the number of tokens of reasoning so far."""
        return self._inner.num_reasoning_tokens

    def feed(self, token_ids: Iterable[int]) -> list[Piece]:
        """Take more token ids, and return the pieces of text that are certain now."""
        return joined(list(self._read(self._inner.feed(token_ids))))

    def finish(self) -> list[Piece]:
        """Return the pieces that were held back, as no more ids come."""
        pieces = list(self._read(self._inner.finish()))
        self._text.end()
        self._go_on()
        return joined(pieces + self._text.take_pieces())

    def _read(self, pieces: Iterable[Piece]) -> Iterator[Piece]:
        for piece in pieces:
            if piece.part is Part.CONTENT:
                self._text.add(piece.text)
                self._go_on()
                yield from self._text.take_pieces()
            elif text := (shown(piece.text, self._marks) if self._marks else piece.text):
                yield piece._replace(text=text)

    def _go_on(self) -> None:
        if not self._is_done:
            self._is_done = next(self._steps, self) is self


def _reader(text: AnswerText, tool_use: ToolUse) -> Steps[None]:
    first_mark = SYNTAXES[tool_use.dialect].first_mark
    if tool_use.has_document and first_mark is not None:
        return _read_either(text, first_mark, _reader(text, replace(tool_use, has_document=False)))
    match tool_use.dialect:
        case ToolDialect.HERMES:
            return read_hermes(text)
        case ToolDialect.QWEN_XML:
            return read_xml(text, tool_use.schemas)
        case ToolDialect.LLAMA:
            return read_llama(text, tool_use.schemas)
        case ToolDialect.DEEPSEEK:
            return read_deepseek(text)
        case ToolDialect.MISTRAL_LIST | ToolDialect.MISTRAL_ARGS:
            return read_mistral(text)
        case other:
            raise ValueError(f"calls in {other} are not found in content")


def _read_either(text: AnswerText, first_mark: str, read_calls: Steps[None]) -> Steps[None]:
    """Read calls where the first of them begins the answer, and else a document."""
    yield from text.space()
    yield from read_calls if (yield from text.comes(first_mark)) else text.document()
