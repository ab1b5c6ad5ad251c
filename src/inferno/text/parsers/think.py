"""Parse outputs of models that think between `<think>` and `</think>`: Qwen3, DeepSeek-R1."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from enum import Enum, auto

from inferno.text.detokenize import IncrementalDecoder
from inferno.text.parsers.parser import Part, Piece
from inferno.text.tokenizer import Tokenizer

OPENS = "<think>"
CLOSES = "</think>"
# Qwen's <|im_start|> is a special token, DeepSeek's <｜Assistant｜> is a token like any other.
_TURN_MARK = re.compile(r"<[|｜].+[|｜]>")


class _State(Enum):
    BEFORE = auto()  # nothing yet, or whitespace
    OPENED = auto()  # no reasoning yet
    THINKING = auto()
    CLOSED = auto()  # no answer yet
    ANSWERING = auto()


class ThinkParser:
    """A parser of outputs that begin with reasoning, if there is any; all that follows is content.

    Only the tokens `<think>` and `</think>` count as marks, not the same letters in other tokens,
    and only where reasoning can begin or end: elsewhere they are text. Newlines next to a mark, and
    whitespace before the first, belong to it. Reasoning without an end goes on to the end.

    prompt_token_ids    the prompt, in which a template may have opened or closed the reasoning.
    """

    def __init__(
        self, tokenizer: Tokenizer, decoder: IncrementalDecoder, prompt_token_ids: Sequence[int]
    ) -> None:
        self._decoder = decoder
        self._opens = tokenizer.token_to_id(OPENS)
        self._closes = tokenizer.token_to_id(CLOSES)
        self._state = _State.BEFORE
        self._held: list[str] = []
        self.num_reasoning_tokens = 0
        self._continue(tokenizer, prompt_token_ids)
        self.num_reasoning_tokens = 0

    def feed(self, token_ids: Iterable[int]) -> list[Piece]:
        """Take more token ids, and return the pieces of text that are certain now."""
        return [piece for token_id in token_ids for piece in self._token(token_id)]

    def finish(self) -> list[Piece]:
        """Return the pieces that were held back, as no more ids come."""
        pieces = list(self._text(self._decoder.finish()))
        part = Part.CONTENT if self._state is _State.BEFORE else Part.REASONING
        return pieces + _pieces(part, self._take_held())

    def _continue(self, tokenizer: Tokenizer, prompt_token_ids: Sequence[int]) -> None:
        self.feed(from_last_mark(tokenizer, prompt_token_ids, {self._opens, self._closes}))
        self.finish()

    def _token(self, token_id: int) -> Iterator[Piece]:
        if token_id in (self._opens, self._closes):
            yield from self._text(self._decoder.finish())
            if self._moves(token_id):
                return
        if self._state in (_State.OPENED, _State.THINKING):
            self.num_reasoning_tokens += 1
        yield from self._text(self._decoder.feed((token_id,)))

    def _moves(self, token_id: int) -> bool:
        """Return whether the token is a mark where it stands, and drop what was held back if so."""
        match self._state:
            case _State.BEFORE | _State.OPENED:
                self._state = _State.OPENED if token_id == self._opens else _State.CLOSED
            case _State.THINKING if token_id == self._closes:
                self._state = _State.CLOSED
            case _:
                return False
        self._held.clear()
        return True

    def _text(self, text: str) -> list[Piece]:
        match self._state:
            case _State.BEFORE:
                return self._before(text)
            case _State.OPENED | _State.THINKING:
                return self._reasoning(text)
            case _State.CLOSED:
                text = text.lstrip("\n")
        if text:
            self._state = _State.ANSWERING
        return _pieces(Part.CONTENT, text)

    def _before(self, text: str) -> list[Piece]:
        self._held.append(text)
        if not text or text.isspace():
            return []
        self._state = _State.ANSWERING
        return _pieces(Part.CONTENT, self._take_held())

    def _reasoning(self, text: str) -> list[Piece]:
        if self._state is _State.OPENED:
            text = text.lstrip("\n")
        body = text.rstrip("\n")
        newlines = text[len(body) :]
        if body:
            self._state = _State.THINKING
            body = self._take_held() + body
        self._held.append(newlines)
        return _pieces(Part.REASONING, body)

    def _take_held(self) -> str:
        held = "".join(self._held)
        self._held.clear()
        return held


def from_last_mark(
    tokenizer: Tokenizer, prompt_token_ids: Sequence[int], marks: set[int | None]
) -> Sequence[int]:
    """Return the end of the prompt's last turn, from its last mark on; empty without a mark."""
    for index in reversed(range(len(prompt_token_ids))):
        token_id = prompt_token_ids[index]
        if token_id in marks:
            return prompt_token_ids[index:]
        spelling = tokenizer.id_to_token(token_id) or ""
        if token_id in tokenizer.special_tokens or _TURN_MARK.fullmatch(spelling):
            break
    return ()


def _pieces(part: Part, text: str) -> list[Piece]:
    return [Piece(part, text)] if text else []
