"""The parser for models that only answer."""

from __future__ import annotations

from collections.abc import Iterable

from inferno.text.detokenize import IncrementalDecoder
from inferno.text.parsers.parser import Part, Piece


class PlainParser:
    """A parser to which all text is content."""

    def __init__(self, decoder: IncrementalDecoder) -> None:
        self._decoder = decoder
        self.num_reasoning_tokens = 0

    def feed(self, token_ids: Iterable[int]) -> list[Piece]:
        """Return the text that these ids complete."""
        return _content(self._decoder.feed(token_ids))

    def finish(self) -> list[Piece]:
        """Return the text that was held back, as content."""
        return _content(self._decoder.finish())


def _content(text: str) -> list[Piece]:
    return [Piece(Part.CONTENT, text)] if text else []
