"""Read the header of a Harmony message: who speaks, in which channel, to whom."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from enum import StrEnum


class Mark(StrEnum):
    """The special tokens of the Harmony format."""

    START = "<|start|>"
    CHANNEL = "<|channel|>"
    CONSTRAIN = "<|constrain|>"
    MESSAGE = "<|message|>"
    END = "<|end|>"
    CALL = "<|call|>"
    RETURN = "<|return|>"


# A tool's result names the tool as its role, and is to the assistant.
_ROLE = re.compile(r"assistant|user|system|developer|tool|\S+(?= to=assistant\b)|")
_CHANNEL = re.compile(r"\s*(analysis|commentary|final|)\s*")
_RECIPIENT = re.compile(r"\s*to=(\S+)")
_RECIPIENT_IN_CHANNEL = re.compile(r"(?:to=|(?=functions\.))(\S+)")  # `to=` is forgotten at times
_Match = Callable[[str], re.Match[str] | None]
_NAMES: dict[Mark | None, _Match] = {Mark.START: _ROLE.match, Mark.CHANNEL: _CHANNEL.match}
_NO_TOOLS = ("assistant", "user", "all")


class Header:
    """The header of a Harmony message, as it grows.

    first       the mark that the header begins with, or that ended the message before, if any.
    num_tokens  the header's length, marks included.
    """

    def __init__(self, first: Mark | None = None) -> None:
        self._texts: list[tuple[Mark | None, str]] = [(first, "")]
        self.num_tokens = 0

    def begin(self, mark: Mark) -> None:
        """Begin the part of the header that follows a mark."""
        self._texts.append((mark, ""))

    def add(self, text: str) -> None:
        """Add the text of one more token, or the text held back at a mark."""
        mark, before = self._texts[-1]
        self._texts[-1] = (mark, before + text)
        self.num_tokens += 1

    @property
    def is_by_another(self) -> bool:
        """Return whether the message is in a user's or tool's name, as models may write."""
        role = _beginning(_ROLE.match, self._after(Mark.START))
        return role not in ("", "assistant") or self._recipient == "assistant"

    @property
    def channel(self) -> str | None:
        """Return the last channel named; "" for an unknown name, None without a name."""
        name = self._after(Mark.CHANNEL)
        return None if name is None else _beginning(_CHANNEL.match, name).strip()

    @property
    def tool(self) -> str | None:
        """Return the tool that the message is for, such as `functions.f` or `python`, or None."""
        return None if self._recipient in _NO_TOOLS else self._recipient

    @property
    def rest(self) -> str:
        """Return the header's text without the names of role and channel."""
        return "".join(text for _, text in self._unnamed())

    @property
    def _recipient(self) -> str | None:
        # It stands right after the role or the channel.
        for mark, text in self._unnamed():
            is_channel = mark is Mark.CHANNEL
            found = _RECIPIENT_IN_CHANNEL.match(text) if is_channel else _RECIPIENT.match(text)
            if found:
                return found[1]
        return None

    def _after(self, mark: Mark) -> str | None:
        return next((text for found, text in reversed(self._texts) if found is mark), None)

    def _unnamed(self) -> Iterator[tuple[Mark | None, str]]:
        """Yield each mark with what follows it, but for the name of a role or channel."""
        for mark, text in self._texts:
            name = _NAMES.get(mark)
            yield mark, text.removeprefix(_beginning(name, text)) if name else text


def _beginning(match: _Match, text: str | None) -> str:
    found = match(text or "")
    return found[0] if found else ""
