"""A model's tokenizer as llguidance has it, made in steps between which others get Python's lock.

llguidance reads a tokenizer.json in one call, which holds the lock for 0.7 seconds where there are
150,000 tokens: so long all streams pause. Tokenizers of bytes, which have the large vocabularies,
are read by the library `tokenizers` instead, and handed over as a list of tokens: each call takes
less than half as long, and a step or two go on between them.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Sequence
from typing import Any

import llguidance
from tokenizers import Tokenizer, decoders, models

from inferno.grammar.recognizer import MARK

# Between two calls that hold the lock: longer than most steps.
_STEP_SECONDS = 0.1
_HAS_SENTENCE_PIECES = re.compile(r'"byte_fallback"\s*:\s*true')


def llguidance_tokenizer(
    content: str, vocab_size: int, eos_token_ids: Sequence[int]
) -> llguidance.LLTokenizer:
    """Return the tokenizer of a tokenizer.json; it has the slices that make masks fast."""
    plain = None
    if not _HAS_SENTENCE_PIECES.search(content):
        tokenizer = Tokenizer.from_str(content)
        time.sleep(_STEP_SECONDS)
        if _is_of_bytes(tokenizer):
            plain = _of_bytes(tokenizer, vocab_size, eos_token_ids)
    if plain is None:
        plain = llguidance.LLTokenizer(
            content, n_vocab=vocab_size, eos_token=list(eos_token_ids), slices=[]
        )
    time.sleep(_STEP_SECONDS)
    return plain.with_slices(plain.general_slices())


def _is_of_bytes(tokenizer: Tokenizer) -> bool:
    """Return whether tokens are texts in the alphabet of ByteLevel, as they stand in a text."""
    if not isinstance(tokenizer.model, models.BPE) or tokenizer.model.dropout is not None:
        return False
    if tokenizer.truncation is not None or tokenizer.padding is not None:
        return False
    normalizer, before = _state(tokenizer.normalizer), _state(tokenizer.pre_tokenizer)
    parts = before.get("pretokenizers", [before])
    return (
        isinstance(tokenizer.decoder, decoders.ByteLevel)
        and normalizer.get("type", "NFC") == "NFC"
        and parts[-1].get("type") == "ByteLevel"
        and all(part["type"] in ("Split", "Digits", "ByteLevel") for part in parts)
        and not any(part.get("add_prefix_space") for part in parts)
    )


def _of_bytes(
    tokenizer: Tokenizer, vocab_size: int, eos_token_ids: Sequence[int]
) -> llguidance.LLTokenizer:
    """Return llguidance's tokenizer of a list of tokens; it asks this one for tokens of texts."""
    texts = {
        token_id: _text_of(token)
        for token, token_id in tokenizer.get_vocab(with_added_tokens=False).items()
    }
    special = []
    for token_id, added in tokenizer.get_added_tokens_decoder().items():
        texts[token_id] = added.content.encode()
        if added.special or (added.content.startswith("<") and added.content.endswith(">")):
            special.append(token_id)
    known = range(vocab_size)
    source = _Source(
        tokenizer,
        # A token that isn't there is a special one, as llguidance has it.
        tokens=[texts.get(token_id) or MARK + b"<[%d]>" % token_id for token_id in known],
        special_token_ids=[token_id for token_id in special if token_id in known],
        eos_token_id=min(eos_token_ids),
    )
    del texts
    time.sleep(_STEP_SECONDS)
    made = llguidance.LLTokenizer(source, eos_token=list(eos_token_ids), slices=[])
    source.tokens = []  # they were copied, and the source stays
    return made


class _Source(llguidance.TokenizerWrapper):
    """A tokenizer as llguidance asks for one."""

    def __init__(
        self,
        tokenizer: Tokenizer,
        *,
        tokens: Sequence[bytes],
        special_token_ids: Sequence[int],
        eos_token_id: int,
    ) -> None:
        # Not as the parent does, which tries out whether a tokenizer takes bytes.
        self.tokenizer = tokenizer
        self.tokens = tokens
        self.special_token_ids = special_token_ids
        self.eos_token_id = eos_token_id
        self.bos_token_id = None
        self.is_tokenizer_wrapper = True

    def __call__(self, text: str) -> list[int]:
        ids: list[int] = self.tokenizer.encode(text, add_special_tokens=False).ids
        return ids


def _text_of(token: str) -> bytes:
    """Return the bytes that a token's characters stand for."""
    try:
        return bytes([_BYTES[char] for char in token])
    except KeyError:
        return token.encode()


def _alphabet() -> dict[str, int]:
    """Return the characters of ByteLevel: printable ones, and for other bytes those from 256 on."""
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {
        chr(256 + i): byte for i, byte in enumerate(others)
    }


_BYTES = _alphabet()


def _state(part: Any) -> dict[str, Any]:
    """Return the settings of a tokenizer's part, none where it is absent."""
    settings: dict[str, Any] = {} if part is None else json.loads(part.__getstate__())
    return settings
