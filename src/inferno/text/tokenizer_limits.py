"""Refuse a tokenizer that would make a text far longer, or panic over it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from math import prod
from typing import Any

import tokenizers

from inferno.text.charsmap import longest_replacement

MAX_ID = 2**24
MAX_TOKEN_LENGTH = 4096
MAX_SPECIAL_LENGTH = 128
MAX_SPECIAL_TOKENS = 2**15
MAX_GROWTH = 64
MAX_PART_BYTES = 4 * 2**20
MAX_STAGES = 64
MAX_ADDED = 32
MAX_WORD = 1000

_STAGES = ("normalizers", "pretokenizers", "processors", "decoders")
_ADD_TOKENS = ("TemplateProcessing", "BertProcessing", "RobertaProcessing")


def check_limits(
    backend: tokenizers.Tokenizer, vocab: Mapping[str, int], special_tokens: Mapping[int, str]
) -> None:
    """Raise ValueError where a text or a token could become far too long."""
    _check_vocabulary(vocab)
    if len(special_tokens) > MAX_SPECIAL_TOKENS:
        raise ValueError(f"it has more than {MAX_SPECIAL_TOKENS} special tokens")
    for token_id, text in special_tokens.items():
        if len(text) > MAX_SPECIAL_LENGTH:
            raise ValueError(
                f"special token {token_id} is longer than {MAX_SPECIAL_LENGTH} characters"
            )
    for name in ("normalizer", "pre_tokenizer", "post_processor", "decoder"):
        stages = list(_stages(spec_of(getattr(backend, name))))
        if len(stages) > MAX_STAGES:
            raise ValueError(f"its {name} has more than {MAX_STAGES} stages")
        if prod(map(_growth, stages)) > MAX_GROWTH:
            raise ValueError(f"its {name} can make a text more than {MAX_GROWTH} times as long")
        if name == "post_processor":
            _check_added(stages)
        if any(stage["type"] == "Strip" and stage.get("stop") for stage in stages):
            # The library counts past the beginning of a text that is shorter.
            raise ValueError(f"inferno doesn't do a {name} that strips the end of tokens")
    _check_words(backend.model)


def spec_of(part: Any) -> dict[str, Any]:
    """Return a part of a tokenizer in the form of tokenizer.json; empty without such a part."""
    state = b"{}" if part is None else part.__getstate__()
    if len(state) > MAX_PART_BYTES:
        raise ValueError(f"a part of it, {state[:30]!r}..., is longer than {MAX_PART_BYTES} bytes")
    spec: dict[str, Any] = json.loads(state)
    return spec


def _check_vocabulary(vocab: Mapping[str, int]) -> None:
    if max(vocab.values(), default=0) > MAX_ID:
        raise ValueError(f"its vocabulary has an id above {MAX_ID}")
    if max(map(len, vocab), default=0) > MAX_TOKEN_LENGTH:
        raise ValueError(f"its vocabulary has a token of more than {MAX_TOKEN_LENGTH} characters")


def _check_words(model: Any) -> None:
    # The work for a word grows with the third power of its length.
    is_word_piece = isinstance(model, tokenizers.models.WordPiece)
    if is_word_piece and model.max_input_chars_per_word > MAX_WORD:
        raise ValueError(f"its max_input_chars_per_word is above {MAX_WORD}")


def _stages(spec: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the parts of nested sequences, in order."""
    parts = [spec[key] for key in _STAGES if key in spec]
    if parts:
        for part in parts[0]:
            yield from _stages(part)
    elif spec:
        yield spec


def _growth(stage: dict[str, Any]) -> int:
    """Return how many characters may come of one, at most."""
    match stage:
        case {"type": "Replace", "pattern": {"String": str(pattern)}, "content": str(content)}:
            return max(1, -(-len(content) // len(pattern))) if pattern else 1 + len(content)
        case {"type": "Replace", "content": str(content)}:
            return 1 + len(content)  # a regular expression may match between any two characters
        case {"type": "Prepend", "prepend": str(prepended)}:
            return 1 + len(prepended)
        case {"type": "Precompiled", "precompiled_charsmap": str(charsmap)}:
            return max(1, longest_replacement(charsmap))
        case {"type": "ByteLevel"}:
            return 4  # bytes of a character
        case {"type": "BertNormalizer" | "Metaspace" | "BPEDecoder" | "WordPiece" | "CTC"}:
            return 3  # spaces around it
    return 1


def _check_added(stages: list[dict[str, Any]]) -> None:
    """Refuse stages that may add many tokens, or have the text more than once."""
    adding = [stage for stage in stages if stage["type"] in _ADD_TOKENS]
    if len(adding) > 1:
        raise ValueError("its post_processor adds special tokens in more than one stage")
    for stage in adding:
        if stage["type"] == "TemplateProcessing" and not _is_sound(stage):
            raise ValueError(
                f"its TemplateProcessing must have $A once and at most {MAX_ADDED} special tokens, "
                "all of them among its special_tokens"
            )


def _is_sound(template: dict[str, Any]) -> bool:
    pieces, known = template["single"], template["special_tokens"]
    texts = [piece["Sequence"]["id"] for piece in pieces if "Sequence" in piece]
    names = [piece["SpecialToken"]["id"] for piece in pieces if "SpecialToken" in piece]
    if texts != ["A"] or not known.keys() >= set(names):
        return False
    num_ids = sum(len(known[name]["ids"]) for name in names)
    return max(len(names), num_ids) <= MAX_ADDED
