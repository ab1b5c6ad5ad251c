"""Choose a model's dialect, the parser for it, and the tokens that end its answers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import StrEnum

from inferno.text.detokenize import IncrementalDecoder
from inferno.text.parsers.harmony import HarmonyParser
from inferno.text.parsers.harmony_header import Mark
from inferno.text.parsers.parser import Parser, Part, Piece
from inferno.text.parsers.think import CLOSES, OPENS, ThinkParser
from inferno.text.tokenizer import Tokenizer


class Dialect(StrEnum):
    """The way in which a model sets its reasoning apart from its answer."""

    HARMONY = "harmony"  # in channels: gpt-oss
    THINK = "think"  # between <think> and </think>: Qwen3, DeepSeek-R1
    PLAIN = "plain"  # not at all


def choose_dialect(template: str | None, tokenizer: Tokenizer) -> Dialect:
    """Return the dialect whose marks the chat template and, as single tokens, the tokenizer know.

    Harmony's marks must be special tokens. Where there is no template, or one without marks, the
    dialect is plain.
    """
    text = template or ""
    if Mark.CHANNEL in text and set(Mark) <= set(tokenizer.special_tokens.values()):
        return Dialect.HARMONY
    if CLOSES in text and None not in map(tokenizer.token_to_id, (OPENS, CLOSES)):
        return Dialect.THINK
    return Dialect.PLAIN


def make_parser(
    dialect: Dialect,
    tokenizer: Tokenizer,
    decoder: IncrementalDecoder,
    prompt_token_ids: Sequence[int] = (),
) -> Parser:
    """Return a parser for one output that continues a prompt; the parser takes over the decoder."""
    match dialect:
        case Dialect.HARMONY:
            return HarmonyParser(tokenizer, decoder, prompt_token_ids)
        case Dialect.THINK:
            return ThinkParser(tokenizer, decoder, prompt_token_ids)
        case Dialect.PLAIN:
            return PlainParser(decoder)


def ending_ids(dialect: Dialect, tokenizer: Tokenizer) -> frozenset[int]:
    """Return the tokens that end an answer beside those that the model's files declare.

    Harmony's `<|call|>` hands over to a tool; gpt-oss's first files don't declare it.
    """
    if dialect is not Dialect.HARMONY:
        return frozenset()
    ids = map(tokenizer.token_to_id, (Mark.RETURN, Mark.CALL))
    return frozenset(token_id for token_id in ids if token_id is not None)


class PlainParser:
    """A parser to which all text is content."""

    def __init__(self, decoder: IncrementalDecoder) -> None:
        self._decoder = decoder
        self.num_reasoning_tokens = 0

    def feed(self, token_ids: Iterable[int]) -> list[Piece]:
        """Return the text that more token ids complete."""
        return _content(self._decoder.feed(token_ids))

    def finish(self) -> list[Piece]:
        """Return the text that was held back, as content."""
        return _content(self._decoder.finish())


def _content(text: str) -> list[Piece]:
    return [Piece(Part.CONTENT, text)] if text else []
