"""The name by which GGUF files say how a byte-level vocabulary cuts a text into words."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import tokenizers

from inferno.errors import TokenizerError
from inferno.gguf.pretokenizers import GPT_2, PRE_TOKENIZERS

_DIGIT = r"\p{N}"
_NFC = {"type": "NFC"}


def find_rule(spec: Mapping[str, Any]) -> str:
    """Return the name of the rule of a byte-level tokenizer.json.

    Raises TokenizerError where no name stands for it.
    """
    patterns = tuple(_patterns(spec["pre_tokenizer"]))
    is_nfc = spec["normalizer"] == _NFC
    if spec["normalizer"] is not None and not is_nfc:
        raise _no_name(f"the normalizer {json.dumps(spec['normalizer']):.200}")
    ignores_merges = bool(spec["model"]["ignore_merges"])
    found = {
        name: rule
        for name, rule in PRE_TOKENIZERS.items()
        if (rule.patterns, rule.is_nfc) == (patterns, is_nfc)
    }
    for name, rule in found.items():
        if rule.ignore_merges == ignores_merges:
            return name
    if found and _makes_all_tokens(spec):  # then it is no matter whether merges are ignored
        return next(iter(found))
    raise _no_name(f"the rule {patterns!s:.200}")


def _patterns(pre_tokenizer: Mapping[str, Any] | None) -> Iterator[str]:
    """Yield the regular expressions that cut a text, one after the other."""
    match pre_tokenizer:
        case {"type": "Sequence", "pretokenizers": list(parts)}:
            for part in parts:
                yield from _patterns(part)
        case {
            "type": "Split",
            "pattern": {"Regex": pattern},
            "behavior": "Isolated",
            "invert": False,
        }:
            yield pattern
        case {"type": "Digits", "individual_digits": True}:
            yield _DIGIT
        case {"type": "ByteLevel", "add_prefix_space": False, "use_regex": uses_own}:
            if uses_own:
                yield GPT_2
        case other:
            raise _no_name(f"the pre-tokenizer {json.dumps(other):.200}")


def _makes_all_tokens(spec: Mapping[str, Any]) -> bool:
    """Return whether merges make each token of its own text."""
    model = spec["model"]
    merges = [tuple(pair) for pair in model["merges"]]
    plain = tokenizers.Tokenizer(tokenizers.models.BPE(vocab=model["vocab"], merges=merges))
    return all(len(one.ids) == 1 for one in plain.encode_batch(list(model["vocab"])))


def _no_name(what: str) -> TokenizerError:
    return TokenizerError(
        f"the tokenizer has what a GGUF file can't say: {what}; use the model as it is, in the "
        "safetensors format"
    )
