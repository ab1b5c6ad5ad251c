"""Markdown as lines for a terminal."""

from __future__ import annotations

import io
from collections.abc import Iterator
from functools import cache
from typing import ClassVar, NamedTuple

from markdown_it import MarkdownIt
from markdown_it.token import Token
from rich.console import Console, ConsoleOptions, RenderResult
from rich.markdown import Heading, Markdown, MarkdownElement
from rich.segment import Segment, Segments

# Without HTML and link definitions, which rich would leave out of sight, and without underlined
# headings, for which the first dash of a list passes while it is being written.
_PARSER = (
    MarkdownIt("commonmark", {"html": False})
    .enable(["strikethrough", "table"])
    .disable(["reference", "lheading"])
)
_MIN_WIDTH = 8


class Line(NamedTuple):
    """A line with its escape codes, and the columns that it takes."""

    text: str
    width: int


EMPTY = Line("", 0)


def rendered_lines(source: str, width: int) -> list[Line]:
    """Return the source as lines of at most `width` columns, with an empty one between blocks."""
    blocks = [_block_lines(tokens, width) for tokens in _blocks(_PARSER.parse(source))]
    parted = [[EMPTY, *lines] for lines in blocks if lines]
    return [line for lines in parted for line in lines][1:]


def last_block_start(source: str) -> int:
    """Return where the last block of complete lines begins: what is before it won't change."""
    lines = source.split("\n")
    complete = "\n".join(lines[:-1])
    starts = [token.map[0] for token in _PARSER.parse(complete) if token.map and not token.level]
    return sum(len(line) + 1 for line in lines[: max(starts, default=0)])


def _blocks(tokens: list[Token]) -> Iterator[list[Token]]:
    start = depth = 0
    for end, token in enumerate(tokens, start=1):
        depth += token.nesting
        if not depth:
            yield tokens[start:end]
            start = end


def _block_lines(tokens: list[Token], width: int) -> list[Line]:
    console = _console()
    options = console.options.update(width=max(width, _MIN_WIDTH))
    lines = [
        _without_trailing_space(line)
        for line in console.render_lines(_Block(tokens), options, pad=False)
    ]
    with console.capture() as capture:
        for line in lines:
            console.print(Segments([*line, Segment.line()]), end="", crop=False)
    texts = capture.get().split("\n")
    widths = map(Segment.get_line_length, lines)
    return _without_empty_ends([Line(*pair) for pair in zip(texts, widths, strict=False)])


class _Heading(Heading):
    """A heading at the left margin, without a box."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield self.text


class _Block(Markdown):
    elements: ClassVar[dict[str, type[MarkdownElement]]] = {
        **Markdown.elements,
        "heading_open": _Heading,
    }

    def __init__(self, tokens: list[Token]) -> None:
        super().__init__("", code_theme="ansi_dark", hyperlinks=False)
        self.parsed = tokens
        for token in tokens:
            _keep_line_breaks(token.children or [])


def _keep_line_breaks(tokens: list[Token]) -> None:
    """Let each line that the model ends be a line, as in every chat, though not in Markdown."""
    for token in tokens:
        if token.type == "softbreak":
            token.type = "hardbreak"


def _without_trailing_space(line: list[Segment]) -> list[Segment]:
    kept = list(line)
    while kept and not kept[-1].text.rstrip():
        kept.pop()
    return [*kept[:-1], kept[-1]._replace(text=kept[-1].text.rstrip())] if kept else []


def _without_empty_ends(lines: list[Line]) -> list[Line]:
    filled = [index for index, line in enumerate(lines) if line.width]
    return lines[filled[0] : filled[-1] + 1] if filled else []


@cache
def _console() -> Console:
    """Return a console that knows the terminal's colours, and prints into captures only."""
    return Console(file=io.StringIO(), force_terminal=True, legacy_windows=False)
