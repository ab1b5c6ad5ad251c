"""Refuse a tokenizer.json over which the library would panic, or contradict itself.

A panic prints lines of its own, past any handler, before it becomes an error. Regular expressions
that could take forever are refused too. For other faults of a file the library raises an error.
"""

from __future__ import annotations

import gc
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from inferno.json_file import MAX_TOKENIZER_SEPARATORS
from inferno.text.charsmap import longest_replacement
from inferno.text.tokenizer_regex import read_pattern
from inferno.untrusted_json import SEPARATORS


def check_file(content: bytes) -> dict[str, int] | None:
    """Raise ValueError where a file is no JSON, or can't be read safely by the library.

    Returns the ids of the model's tokens if the file lists merges.
    """
    if sum(map(content.count, SEPARATORS)) > MAX_TOKENIZER_SEPARATORS:
        raise ValueError("it has too many values")
    with no_collection():
        spec = json.loads(content.decode("utf-8"), object_pairs_hook=_unique)
    if not isinstance(spec, dict):
        raise ValueError("it is no JSON object")
    check_parts(spec)
    match spec.get("model"):
        case {"vocab": dict(vocab), "merges": list(merges), **model}:
            _check_merges(vocab, merges, str(model.get("continuing_subword_prefix") or ""))
            return vocab
    return None


def check_parts(spec: Mapping[str, Any]) -> None:
    """Raise ValueError where a part beside the model can't be read safely by the library."""
    for part in ("normalizer", "pre_tokenizer", "decoder"):
        for pattern in _patterns(spec.get(part)):
            read_pattern(pattern)
    for normalizer in _normalizers(spec.get("normalizer")):
        _check_normalizer(normalizer)
    _check_added(spec.get("added_tokens"))


@contextmanager
def no_collection() -> Iterator[None]:
    """Stop garbage collection until the block ends, for it would take a third of the time."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    unique = dict(pairs)
    if len(unique) < len(pairs):
        raise ValueError("it has a key twice in one object")
    return unique


def _normalizers(part: object) -> Iterator[dict[str, Any]]:
    """Yield this part and those in it, as far as they are normalizers."""
    match part:
        case dict():
            yield part
            yield from _normalizers(part.get("normalizers"))
        case list():
            for inner in part:
                yield from _normalizers(inner)


def _check_normalizer(normalizer: dict[str, Any]) -> None:
    match normalizer:
        case {"type": "Precompiled"}:
            longest_replacement(str(normalizer.get("precompiled_charsmap")))
        case {"type": "Replace", "pattern": {"Regex": str(pattern)}, "content": str(content)}:
            if content and not read_pattern(pattern).least:
                raise ValueError(f"its normalizer puts {content!r:.80} where nothing was")


def _patterns(part: object) -> Iterator[str]:
    """Yield all regular expressions in a part."""
    match part:
        case {"Regex": str(pattern)}:
            yield pattern
        case dict():
            yield from _patterns(list(part.values()))
        case list():
            for inner in part:
                yield from _patterns(inner)


def _check_added(tokens: object) -> None:
    """Refuse a token that is both special and not: the library would believe both."""
    is_special: dict[str, bool] = {}
    for token in tokens if isinstance(tokens, list) else ():
        match token:
            case {"content": str(text), "special": bool(special)}:
                if is_special.setdefault(text, special) != special:
                    raise ValueError(f"its added token {text!r:.80} is special, and is not")


def _check_merges(vocab: dict[str, Any], merges: list[Any], prefix: str) -> None:
    """Refuse merges that make no token: the library cuts and joins before it looks."""
    for merge in merges:
        first, second = merge.split(" ", 1) if isinstance(merge, str) else merge
        if not second.startswith(prefix) or first + second[len(prefix) :] not in vocab:
            raise ValueError(f"its merge {merge!r:.80} makes no token of the vocabulary")
    # When it writes itself down for a copy, it finds the halves by their ids.
    if merges and len(set(vocab.values())) < len(vocab):
        raise ValueError("two tokens of its vocabulary have the same id")
