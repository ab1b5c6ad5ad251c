"""The interface of a parser, and the pieces that it makes of an output."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple, Protocol


class Part(StrEnum):
    """The part of an answer to which a text belongs."""

    REASONING = "reasoning"  # what the model thinks before it answers
    CONTENT = "content"  # the answer
    TOOL_CALL = "tool_call"  # the arguments of a call


@dataclass(frozen=True, slots=True)
class Call:
    """The number of a call within an answer, counted from 0, and the function's name.

    id      the id that the model wrote before the arguments; None in dialects without ids.
    """

    index: int
    name: str
    id: str | None = None


class Piece(NamedTuple):
    """The new text of a part of the answer; a tool call's first piece announces the call."""

    part: Part
    text: str
    call: Call | None = None


class Parser(Protocol):
    """The interface of parsers, which turn an output's token ids into pieces of its parts.

    The pieces of a part put together don't depend on how the ids are cut. No text is lost, no
    character is cut in half, and no sequence of ids is an error.
    """

    @property
    def num_reasoning_tokens(self) -> int:
        """Return the number of tokens of reasoning so far, without the marks around it."""
        ...

    def feed(self, token_ids: Iterable[int]) -> list[Piece]:
        """Take more token ids, and return the pieces of text that are certain now."""
        ...

    def finish(self) -> list[Piece]:
        """Return the pieces that were held back, as no more ids come."""
        ...
