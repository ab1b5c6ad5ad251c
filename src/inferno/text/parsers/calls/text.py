"""Read the text of an answer while it comes, from its beginning to its end.

A reader of a dialect is a generator: it asks for the next characters, and is suspended where they
have not come yet. Its decisions depend on the characters alone, never on how they were cut. So a
stream and a whole answer have the same calls.
"""

from __future__ import annotations

import re
from collections.abc import Generator, Mapping, Sequence
from typing import TypeVar

from inferno.text.parsers.parser import Call, Part, Piece

T = TypeVar("T")
Steps = Generator[None, None, T]

# The decoder writes a mark that is a special token as one of these, which no decoded text holds.
FIRST_MARK = 0xD800
MARKS = "\ud800-\udfff"
_MARK = re.compile(f"[{MARKS}]")
_ONE = re.compile(f"[^{MARKS}]")
# Text that begins no mark, up to its last character that is no space.
_PLAIN = re.compile(rf"[^<\[{MARKS}]*[^\s<\[{MARKS}]")
_SPACE = re.compile(r"\s+")


class NoCall(Exception):
    """The error of a reader whose text began as a call but is none."""


class AnswerText:
    """The text of an answer so far, from which a reader makes pieces.

    Text that a reader has passed is held until the reader knows what it is: the structure of a
    call, which is forgotten, or content, which is released.

    spellings   mark -> its spelling in the text; other marks are spelled as themselves.
    shown       the spelling of a mark -> the mark's text as content.
    """

    def __init__(self, spellings: Mapping[str, str], shown: Mapping[str, str]) -> None:
        self._spellings = spellings
        self._shown = shown
        self._text = ""
        self._at = 0
        self._is_over = False
        self._held: list[str] = []
        self._pieces: list[Piece] = []
        self._call: Call | None = None
        self._is_after_call = False
        self.num_calls = 0

    def add(self, text: str) -> None:
        """Add text that has come."""
        self._text = self._text[self._at :] + text
        self._at = 0

    def end(self) -> None:
        """Note that no more text comes."""
        self._is_over = True

    def take_pieces(self) -> list[Piece]:
        """Return the pieces since the last call, neighbours of one kind as one."""
        pieces, self._pieces = self._pieces, []
        return joined(pieces) if len(pieces) > 1 else pieces

    # For readers: what to read.

    def peek(self) -> Steps[str]:
        """Return the next character without passing it; empty at the end."""
        while self._at == len(self._text):
            if self._is_over:
                return ""
            yield
        return self._text[self._at]

    def some(self, run: re.Pattern[str]) -> str:
        """Pass and return the next characters that a pattern matches, of those that have come.

        The pattern must match any number of characters, each by itself.
        """
        match = run.match(self._text, self._at)
        return self._pass(match.end()) if match else ""

    def one(self) -> str:
        """Pass the next character and return it; empty where it is a mark or has not come."""
        return self.some(_ONE)

    def run(self, run: re.Pattern[str]) -> Steps[str]:
        """Pass and return all next characters that a pattern matches, once another one comes."""
        parts = []
        while (yield from self.peek()) and (part := self.some(run)):
            parts.append(part)
        return "".join(parts)

    def space(self) -> Steps[str]:
        """Pass whitespace, and return it."""
        return self.run(_SPACE)

    def comes(self, mark: str) -> Steps[bool]:
        """Return whether a mark or text comes next, without passing it."""
        spelling = self._spellings.get(mark, mark)
        while not self._text.startswith(spelling, self._at):
            rest = self._text[self._at : self._at + len(spelling)]
            if self._is_over or not spelling.startswith(rest):
                return False
            yield
        return True

    def mark(self, mark: str) -> Steps[bool]:
        """Pass a mark or text if it comes next, and return whether it did."""
        if not (yield from self.comes(mark)):
            return False
        self._pass(self._at + len(self._spellings.get(mark, mark)))
        return True

    def document(self) -> Steps[None]:
        """Pass the whole rest of the text as content."""
        self.release()
        while (yield from self.peek()):
            self._show(self._cut(len(self._text)))

    def expect(self, mark: str) -> Steps[None]:
        """Pass a mark or text; raise NoCall if something else comes."""
        if not (yield from self.mark(mark)):
            raise NoCall

    def content(self, marks: Sequence[str]) -> Steps[str | None]:
        """Pass content up to the first of some marks, and return that mark; None at the end.

        Marks begin with `<` or `[`, or are special tokens. Whitespace before the mark is held with
        it, and is content only if the mark is. What stands between the last call and the end is
        forgotten if it is whitespace.
        """
        while True:
            yield from self.space()
            if not (yield from self.peek()):
                break
            for mark in marks:
                if (yield from self.mark(mark)):
                    return mark
            self.release()
            match = _PLAIN.match(self._text, self._at)
            self._show(self._cut(match.end() if match else self._at + 1))
        if self._is_after_call:
            self.forget()
        else:
            self.release()
        return None

    # For readers: what it was.

    def tell(self, name: str, call_id: str | None = None) -> None:
        """Announce a call, and forget the held text, which was the call's."""
        self.forget()
        self._call = Call(self.num_calls, name, call_id)
        self.num_calls += 1
        self._is_after_call = True
        self.argue("")

    def argue(self, text: str) -> None:
        """Add a text to the arguments of the call announced last."""
        self._pieces.append(Piece(Part.TOOL_CALL, text, self._call))

    def forget(self) -> None:
        """Forget the held text."""
        self._held.clear()

    def release(self) -> None:
        """Add the held text to the content."""
        if held := "".join(self._held):
            self._held.clear()
            self._show(held)

    def refuse(self) -> None:
        """Let what was held be content, but for whitespace: what comes after it decides."""
        if not "".join(self._held).isspace():
            self.release()

    def _pass(self, end: int) -> str:
        text = self._cut(end)
        self._held.append(text)
        return text

    def _cut(self, end: int) -> str:
        text = self._text[self._at : end]
        self._at = end
        return text

    def _show(self, text: str) -> None:
        if self._shown:
            text = shown(text, self._shown)
        if text:
            self._is_after_call = False
            self._pieces.append(Piece(Part.CONTENT, text))


def shown(text: str, marks: Mapping[str, str]) -> str:
    """Return the text with each mark as it is shown."""
    return _MARK.sub(lambda found: marks.get(found[0], ""), text)


def joined(pieces: Sequence[Piece]) -> list[Piece]:
    """Return the pieces with neighbours of one part and call joined."""
    found: list[Piece] = []
    texts: list[str] = []
    for piece in pieces:
        if found and found[-1].part is piece.part and found[-1].call is piece.call:
            texts.append(piece.text)
            continue
        if len(texts) > 1:
            found[-1] = found[-1]._replace(text="".join(texts))
        found.append(piece)
        texts = [piece.text]
    if len(texts) > 1:
        found[-1] = found[-1]._replace(text="".join(texts))
    return found
