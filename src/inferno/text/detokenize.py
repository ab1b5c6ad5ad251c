"""Turn a stream of token ids into a stream of text that never holds half a character.

The pieces put together are exactly what decoding all ids at once gives. Vocabularies spell bytes in
two ways. Byte-level BPE maps each byte to a printable character, so text is the UTF-8 of all bytes.
SentencePiece has a token <0xE4> per byte beside tokens of whole characters: a run of such bytes is
valid UTF-8 as a whole, or one U+FFFD per byte, so nothing of a run can be known before it ends.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, Protocol

from inferno.text.tokenizer import Tokenizer

CONTEXT_TOKENS = 16
_BYTE_TOKEN = re.compile(r"<0x([0-9A-Fa-f]{2})>")


class IncrementalDecoder:
    """A decoder of token ids as they come: feed() returns certain text, finish() the rest.

    prompt_token_ids    the ids that come before. The text then begins in mid-sentence, and keeps
                        the leading space that SentencePiece drops at a beginning.
    marks               id -> text written instead of the token, as a sign for the reader of the
                        text. No character continues after one.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        *,
        skip_special_tokens: bool = True,
        prompt_token_ids: Sequence[int] = (),
        marks: Mapping[int, str] | None = None,
    ) -> None:
        self._tokenizer = tokenizer
        self._marks = marks or {}
        self._skipped = frozenset(tokenizer.special_tokens.values() if skip_special_tokens else ())
        self._decoder = _choose_decoder(tokenizer)
        self.feed(prompt_token_ids[-CONTEXT_TOKENS:])
        self._decoder.finish()

    def feed(self, token_ids: Iterable[int]) -> str:
        """Return the text that more token ids complete."""
        text = ""
        for token_id in token_ids:
            token = self._tokenizer.id_to_token(token_id)
            shown = None if token in self._skipped else token
            if token_id in self._marks:
                text += self._decoder.finish() + self._marks[token_id]
                if shown is not None:  # it takes the place of a text, so that none begins behind it
                    self._decoder.feed(shown)
                    self._decoder.finish()
            elif shown is not None:
                text += self._decoder.feed(shown)
        return text

    def finish(self) -> str:
        """Return the text held back, with U+FFFD for bytes that made no character."""
        return self._decoder.finish()


class _Decoder(Protocol):
    """The interface of decoders: tokens in the vocabulary's spelling become text."""

    def feed(self, token: str) -> str: ...

    def finish(self) -> str: ...


def _choose_decoder(tokenizer: Tokenizer) -> _Decoder:
    match tokenizer.decoder:
        case {"type": "ByteLevel"}:
            return _ByteLevel()
        case {"type": "Sequence", "decoders": [*stages]}:
            return _sentence_piece(stages) or _WholeText(tokenizer)
    return _WholeText(tokenizer)


class _ByteLevel:
    """A decoder where each character of a token is a byte: GPT-2, Llama 3, Qwen, gpt-oss."""

    def __init__(self) -> None:
        self._utf8 = codecs.getincrementaldecoder("utf-8")("replace")

    def feed(self, token: str) -> str:
        return self._utf8.decode(_byte_level(token))

    def finish(self) -> str:
        text = self._utf8.decode(b"", final=True)
        self._utf8.reset()
        return text


class _SentencePiece:
    """A decoder of characters, and of bytes for those it lacks: Llama 2, Mistral, Gemma.

    space       what stands for a space, and num_stripped how many spaces the beginning loses.
    """

    def __init__(self, space: str, num_stripped: int) -> None:
        self._space = space
        self._num_stripped = num_stripped
        self._run = bytearray()

    def feed(self, token: str) -> str:
        text = token.replace(self._space, " ")
        if byte := _BYTE_TOKEN.fullmatch(text):
            self._run.append(int(byte[1], 16))
            return ""
        return self._end_run() + self._strip(text)

    def finish(self) -> str:
        return self._end_run()

    def _end_run(self) -> str:
        run, self._run = self._run, bytearray()
        try:
            return self._strip(run.decode())
        except UnicodeDecodeError:
            return self._strip("\ufffd" * len(run))

    def _strip(self, text: str) -> str:
        while self._num_stripped and text.startswith(" "):
            text = text[1:]
            self._num_stripped -= 1
        if text:
            self._num_stripped = 0
        return text


def _sentence_piece(stages: list[Any]) -> _SentencePiece | None:
    match stages:
        case [
            {"type": "Replace", "pattern": {"String": str(space)}, "content": " "},
            {"type": "ByteFallback"},
            {"type": "Fuse"},
            *strip,
        ] if space:
            pass
        case _:
            return None
    match strip:
        case []:
            return _SentencePiece(space, 0)
        case [{"type": "Strip", "content": " ", "start": int(num_stripped), "stop": 0}]:
            return _SentencePiece(space, num_stripped)
    return None


class _WholeText:
    """A way of decoding that we don't know piecewise: all the text comes at the end."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._tokens: list[str] = []

    def feed(self, token: str) -> str:
        self._tokens.append(token)
        return ""

    def finish(self) -> str:
        tokens, self._tokens = self._tokens, []
        return self._tokenizer.join(tokens)


def token_bytes(tokenizer: Tokenizer, token_id: int) -> bytes:
    """Return the bytes that a token adds in mid-sentence, perhaps only a part of a character."""
    token = tokenizer.id_to_token(token_id)
    if token is None or token_id in tokenizer.special_tokens:
        return (token or "").encode()
    match tokenizer.decoder:
        case {"type": "ByteLevel"}:
            return _byte_level(token)
        case {"type": "Sequence", "decoders": [{"pattern": {"String": str(space)}}, *_] as stages}:
            if _sentence_piece(stages) is not None:
                text = token.replace(space, " ")
                byte = _BYTE_TOKEN.fullmatch(text)
                return bytes([int(byte[1], 16)]) if byte else text.encode()
    return tokenizer.join([token]).encode()


def is_byte_token(tokenizer: Tokenizer, token_id: int) -> bool:
    """Return whether the token is one of SentencePiece's bytes, whose runs are decoded whole."""
    match tokenizer.decoder:
        case {"type": "Sequence", "decoders": [*stages]} if _sentence_piece(stages) is not None:
            return _BYTE_TOKEN.fullmatch(tokenizer.id_to_token(token_id) or "") is not None
    return False


@lru_cache(maxsize=1 << 15)  # most of an output's tokens come again and again
def _byte_level(token: str) -> bytes:
    if _BYTES.keys() >= set(token):
        return bytes(map(_BYTES.__getitem__, token))
    return token.encode()  # an added token in plain spelling


def _byte_characters() -> dict[str, int]:
    # GPT-2's table (openai/gpt-2, encoder.py): printable bytes stand for themselves, the others for
    # the characters from U+0100 on.
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = (byte for byte in range(256) if byte not in printable)
    table = {chr(0x100 + index): byte for index, byte in enumerate(others)}
    return table | {chr(byte): byte for byte in printable}


_BYTES = _byte_characters()
