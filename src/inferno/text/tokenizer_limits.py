"""Refuse a tokenizer that would make far more of a text than there is in it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from math import prod
from typing import Any

import tokenizers

MAX_SPECIAL_LENGTH = 128
MAX_GROWTH = 64


def check_limits(backend: tokenizers.Tokenizer, special_tokens: Mapping[int, str]) -> None:
    """ValueError where special tokens are too long or replacements multiply the text."""
    for token_id, text in special_tokens.items():
        if len(text) > MAX_SPECIAL_LENGTH:
            raise ValueError(
                f"special token {token_id} is longer than {MAX_SPECIAL_LENGTH} characters"
            )
    for name in ("normalizer", "decoder"):
        if _growth(spec_of(getattr(backend, name))) > MAX_GROWTH:
            raise ValueError(f"its {name} can make a text more than {MAX_GROWTH} times as long")


def spec_of(part: Any) -> dict[str, Any]:
    """A part of a tokenizer in the words of tokenizer.json; empty where there is no such part."""
    spec: dict[str, Any] = {} if part is None else json.loads(part.__getstate__())
    return spec


def _growth(spec: dict[str, Any]) -> int:
    match spec:
        case {"type": "Sequence", "normalizers": list(parts)}:
            return prod(map(_growth, parts))
        case {"type": "Sequence", "decoders": list(parts)}:
            return prod(map(_growth, parts))
        case {"type": "Replace", "content": str(content)}:
            return max(1, len(content))
        case {"type": "Prepend", "prepend": str(prepended)}:
            return 1 + len(prepended)
    return 1
