"""A model's tokenizer in the metadata of a GGUF file: vocabulary, special tokens, chat templates.

GGUF says less than tokenizer.json: what it can't say is refused. So that nothing is lost unseen,
the metadata is read back, and must make the same tokens of a page of text.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from inferno.convert.pre_tokenizer import find_rule
from inferno.errors import TokenizerError
from inferno.gguf.config import SAMPLING_KEYS
from inferno.gguf.header import MAX_VALUES, Value
from inferno.gguf.tokenizer import SPACE, tokenizer_files
from inferno.gguf.vocabulary import (
    BYTE,
    CONTROL,
    KEYS,
    NORMAL,
    UNKNOWN,
    UNUSED,
    USER_DEFINED,
    read_vocabulary,
)
from inferno.model_files import TOKENIZER, MadeFiles, ModelFiles
from inferno.text.chat import read_templates
from inferno.text.generation_config import default_params, eos_token_ids
from inferno.text.special_tokens import read_named_tokens
from inferno.text.tokenizer import Tokenizer, load_tokenizer

_logger = logging.getLogger("inferno")

_MOST_TOKENS = MAX_VALUES // 4  # tokens, types, and scores or merges, are read again
_REPLACE_SPACES = {"type": "Replace", "pattern": {"String": " "}, "content": SPACE}
_PREPEND_SPACE = {"type": "Prepend", "prepend": SPACE}
_WHOLE_MODEL = "use the model as it is, in the safetensors format"

# Scripts, spaces, digits, words with apostrophes, signs, and what is no character of any language.
_PROBES = (
    "Hello, world! It's 12345 o'clock; we'LL see they've   3.14159 left.\n\n\tdef f():\r\n  return",
    " leading, trailing  ",
    "Füße naïve ΑΒΓ αβγ Привет мир مرحبا שלום नमस्ते 你好世界 こんにちは 안녕하세요 ไทย",
    "😀👍🏽 e\u0301 \u00a0\u3000\u200d ﬁ ½ ² Ⅷ \x00\x7f <0x41> \u2581 </x> {}()[]//\\$€",
    "CamelCaseHTTPServer snake_case_99 a1b2c3 'quoted' \"double\" --flag=1e-5 #include <x.h>",
)


def tokenizer_metadata(files: ModelFiles, vocab_size: int) -> dict[str, Value]:
    """Return all keys of a model's tokenizer and of how it is sampled.

    vocab_size  the rows of the embedding; those without a token get one that is never used.

    Raises TokenizerError where GGUF can't say the same.
    """
    tokenizer = load_tokenizer(files)
    spec = tokenizer.spec()
    metadata = {
        **_vocabulary(spec, vocab_size),
        **_kind(spec, vocab_size),
        **_named_ids(files, tokenizer, spec),
        **_templates(files),
    }
    _name_other_ends(metadata, files, tokenizer)
    _check(metadata, tokenizer, spec)
    return {**metadata, **_sampling(files)}


def _vocabulary(spec: Mapping[str, Any], vocab_size: int) -> dict[str, Value]:
    """Return the tokens in the order of their ids, and the type of each."""
    if vocab_size > _MOST_TOKENS:
        raise _cannot_say(
            f"an embedding of {vocab_size:,} rows, and at most {_MOST_TOKENS:,} are read"
        )
    added = {token["id"]: token for token in spec["added_tokens"]}
    tokens = {token_id: token for token, token_id in spec["model"]["vocab"].items()}
    tokens |= {token_id: token["content"] for token_id, token in added.items()}
    if max(tokens, default=0) >= vocab_size:
        raise _cannot_say(f"token {max(tokens)}, and the model's embedding has {vocab_size} rows")
    for token in added.values():
        if any(token[flag] for flag in ("single_word", "lstrip", "rstrip")):
            raise _cannot_say(
                f"the token {token['content']!r:.80}, which takes spaces along, or stands alone"
            )
    has_bytes = bool(spec["model"]["byte_fallback"])
    unknown = spec["model"]["unk_token"]

    def type_of(token_id: int) -> int:
        if token_id not in tokens:
            return UNUSED
        if tokens[token_id] == unknown:
            return UNKNOWN
        if token_id in added:
            return CONTROL if added[token_id]["special"] else USER_DEFINED
        return BYTE if has_bytes and _is_byte(tokens[token_id]) else NORMAL

    rows = range(vocab_size)
    return {
        KEYS + "tokens": [tokens.get(row, f"[PAD{row}]") for row in rows],
        KEYS + "token_type": [type_of(row) for row in rows],
    }


def _is_byte(token: str) -> bool:
    return len(token) == 6 and token.startswith("<0x") and token.endswith(">")


def _kind(spec: Mapping[str, Any], vocab_size: int) -> dict[str, Value]:
    """Return what differs by the kind of vocabulary."""
    model = spec["model"]
    if model["type"] != "BPE":
        raise _cannot_say(f"a model of type {model['type']!r:.40}; GGUF files hold BPE")
    if any(
        model.get(key) for key in ("dropout", "continuing_subword_prefix", "end_of_word_suffix")
    ):
        raise _cannot_say("BPE with dropout, or with marks inside of words")
    return _sentence_piece(spec, vocab_size) if model["byte_fallback"] else _byte_level(spec)


def _byte_level(spec: Mapping[str, Any]) -> dict[str, Value]:
    model = spec["model"]
    rule = find_rule(spec)
    return {
        KEYS + "model": "gpt2",
        KEYS + "pre": rule,
        KEYS + "merges": [" ".join(pair) for pair in model["merges"]],
    }


def _sentence_piece(spec: Mapping[str, Any], vocab_size: int) -> dict[str, Value]:
    """Return scores by which the pieces merge in the order of the merges, one for each row.

    Added tokens, and rows without a token, are never merged.
    """
    made = dict.fromkeys("".join(pair) for pair in spec["model"]["merges"])
    ranks = {piece: rank for rank, piece in enumerate(made)}
    others = len(ranks)
    scores = [0.0] * vocab_size
    added = {token["id"] for token in spec["added_tokens"]}
    for token, token_id in sorted(spec["model"]["vocab"].items(), key=lambda each: each[1]):
        if token_id in added or _is_byte(token):
            continue
        if token in ranks:
            scores[token_id] = -float(ranks[token])
        else:
            scores[token_id] = -float(others)
            others += 1
    return {
        KEYS + "model": "llama",
        KEYS + "pre": "default",
        KEYS + "scores": scores,
        KEYS + "add_space_prefix": _adds_space(spec),
    }


def _adds_space(spec: Mapping[str, Any]) -> bool:
    """Return whether a text begins with a space more than it has."""
    match spec["normalizer"], spec["pre_tokenizer"]:
        case None, {
            "type": "Metaspace",
            "replacement": "\u2581",
            "split": False,
            "prepend_scheme": how,
        }:
            return bool(how != "never")
        case {"type": "Sequence", "normalizers": [first, second]}, None if (
            first == _PREPEND_SPACE and second == _REPLACE_SPACES
        ):
            return True
        case normalizer, None if normalizer in (
            _REPLACE_SPACES,
            {"type": "Sequence", "normalizers": [_REPLACE_SPACES]},
        ):
            return False
    shown = json.dumps([spec["normalizer"], spec["pre_tokenizer"]])
    raise _cannot_say(f"the rule for spaces {shown:.300}")


def _named_ids(
    files: ModelFiles, tokenizer: Tokenizer, spec: Mapping[str, Any]
) -> dict[str, Value]:
    """Return the ids of BOS, EOS and their like, and whether texts begin and end with them."""
    named = read_named_tokens(files)
    names = {"bos": "bos_token", "eos": "eos_token", "unknown": "unk_token", "padding": "pad_token"}
    texts = {name: named.text(theirs) for name, theirs in names.items()}
    if texts["unknown"] is None:
        texts["unknown"] = spec["model"]["unk_token"]
    ids = {
        name: token_id
        for name, text in texts.items()
        if text is not None and (token_id := tokenizer.token_to_id(text)) is not None
    }
    plain, whole = (tokenizer.encode("a", add_special_tokens=flag) for flag in (False, True))
    before, after = _around(plain, whole)
    ids |= {name: found[0] for name, found in (("bos", before), ("eos", after)) if found}
    return {
        **{f"{KEYS}{name}_token_id": token_id for name, token_id in ids.items()},
        KEYS + "add_bos_token": bool(before),
        KEYS + "add_eos_token": bool(after),
    }


def _around(plain: Sequence[int], whole: Sequence[int]) -> tuple[Sequence[int], Sequence[int]]:
    """Return what stands before and after a text's own tokens: one each, or none."""
    for start in (0, 1):
        before, inner, after = (
            whole[:start],
            whole[start : start + len(plain)],
            whole[start + len(plain) :],
        )
        if list(inner) == list(plain) and len(after) <= 1:
            return before, after
    raise _cannot_say("more than one token before or after a text")


def _templates(files: ModelFiles) -> dict[str, Value]:
    templates = read_templates(files)
    found: dict[str, Value] = {
        f"tokenizer.chat_template.{name}": text
        for name, text in templates.items()
        if name != "default"
    }
    if found:
        found["tokenizer.chat_templates"] = [name for name in templates if name != "default"]
    if "default" in templates:
        found["tokenizer.chat_template"] = templates["default"]
    return found


def _sampling(files: ModelFiles) -> dict[str, Value]:
    """Return the authors' recommendations; probabilities and their like are floats."""
    params = default_params(files)
    return {
        f"general.sampling.{name}": params[theirs] if name == "top_k" else float(params[theirs])
        for name, theirs in SAMPLING_KEYS.items()
        if theirs in params
    }


def _name_other_ends(metadata: dict[str, Value], files: ModelFiles, tokenizer: Tokenizer) -> None:
    """Name the tokens that end an output and that readers of GGUF don't know by their texts."""
    due = eos_token_ids(files, tokenizer)
    if due and KEYS + "eos_token_id" not in metadata:
        metadata[KEYS + "eos_token_id"] = min(due)
    for name in ("eot", "eom", None):
        missing = sorted(due.difference(read_vocabulary(metadata, {}).end_ids()))
        if not missing:
            return
        if name is None:
            raise _cannot_say(f"that token {missing[0]} ends an output, beside three others")
        metadata[f"{KEYS}{name}_token_id"] = missing[0]


def _check(metadata: Mapping[str, Value], tokenizer: Tokenizer, spec: Mapping[str, Any]) -> None:
    """Refuse a tokenizer that would make other tokens of a text once it is read back."""
    files = tokenizer_files(metadata)
    found = load_tokenizer(MadeFiles.of(Path("the GGUF file"), files))
    _check_merges(files[TOKENIZER], spec)
    special = "".join(tokenizer.special_tokens.values())[:2000]
    probes = [*_PROBES, special]
    if _is_metaspace(spec):
        # It spares texts with a space of their own, and those after a special token, the space that
        # SentencePiece itself and llama.cpp put before them.
        _logger.warning(
            "the tokenizer's rule for spaces can't be said in a GGUF file: before a text that "
            "begins with a space, or follows a special token, readers put one more"
        )
        probes = [probe for probe in _PROBES if not probe.startswith(" ")]
    for text in probes:
        ours, theirs = tokenizer.encode(text), found.encode(text)
        if ours != theirs:
            raise _cannot_say(f"how {text!r:.60} is cut: {ours!s:.80} would become {theirs!s:.80}")
        if tokenizer.decode(ours) != found.decode(ours):
            raise _cannot_say(f"how the tokens of {text!r:.60} become text again")


def _is_metaspace(spec: Mapping[str, Any]) -> bool:
    match spec["pre_tokenizer"]:
        case {"type": "Metaspace", "prepend_scheme": how}:
            return bool(how != "never")
    return False


def _check_merges(found: Mapping[str, Any], spec: Mapping[str, Any]) -> None:
    """Refuse merges that scores can't order; of added tokens nothing is ever merged."""
    added = {token["content"] for token in spec["added_tokens"]}
    ours, theirs = (
        [tuple(pair) for pair in one["model"]["merges"] if "".join(pair) not in added]
        for one in (spec, found)
    )
    if ours == theirs:
        return
    orders = [list(dict.fromkeys("".join(pair) for pair in one)) for one in (ours, theirs)]
    if set(ours) != set(theirs) or orders[0] != orders[1]:
        odd = next(iter(set(ours) ^ set(theirs)), None)
        raise _cannot_say(f"its merges, such as {odd!r:.80}")


def _cannot_say(what: str) -> TokenizerError:
    return TokenizerError(f"the tokenizer has what a GGUF file can't say: {what}; {_WHOLE_MODEL}")
