"""Turn the metadata of a GGUF file into the tokenizer files of a Hugging Face model.

A SentencePiece vocabulary becomes byte-pair encoding whose merges are ordered by the scores of
what they make: the rule by which llama.cpp merges, and Hugging Face's own conversion.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from math import isfinite

from inferno.gguf.pretokenizers import DEFAULT, PRE_TOKENIZERS, PreTokenizer
from inferno.gguf.vocabulary import (
    KEYS,
    NORMAL,
    USER_DEFINED,
    Vocabulary,
    read_flag,
    read_list,
    read_text,
    read_vocabulary,
    refusal,
)
from inferno.json_file import MAX_TEMPLATE_BYTES

# Each piece is looked up as two, cut at every character, which takes a second for two millions.
MAX_PIECE_LENGTH = 256
MAX_PIECE_CHARACTERS = 4_000_000
MAX_MERGES = 1_000_000

SPACE = "\u2581"  # SentencePiece's sign for a space
_logger = logging.getLogger("inferno")
_NAMES = {"bos": "bos_token", "eos": "eos_token", "unknown": "unk_token", "padding": "pad_token"}


def tokenizer_files(metadata: Mapping[str, object]) -> dict[str, dict[str, object]]:
    """Return tokenizer.json, tokenizer_config.json and generation_config.json, by their names.

    metadata    key -> int, float, bool, str, or a list of them, as the GGUF file has them. A text
                that is not UTF-8 there holds surrogates here.

    TokenizerError names the key whose value can't be used, or the kind of vocabulary that inferno
    does not know. Whether listed merges make tokens is left to `check_merges`.
    """
    match read_text(metadata, KEYS + "model"):
        case "llama":
            vocabulary = read_vocabulary(metadata, {"bos": 1, "eos": 2, "unknown": 0})
            parts = _sentence_piece(metadata, vocabulary)
            adds_bos = True
        case "gpt2":
            vocabulary = read_vocabulary(metadata, {})
            rule = _pre_tokenizer(metadata)
            parts = _byte_level(metadata, vocabulary, rule)
            adds_bos = rule.adds_bos
        case other:
            expected = "'llama' (SentencePiece) or 'gpt2' (byte-level BPE)"
            raise refusal(KEYS + "model", f"{other!r:.80}", expected, is_unknown=True)
    adds_bos = read_flag(metadata, "add_bos_token", default=adds_bos)
    adds_eos = read_flag(metadata, "add_eos_token", default=False)
    tokenizer = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": _added_tokens(vocabulary),
        "post_processor": _post_processor(vocabulary, adds_bos=adds_bos, adds_eos=adds_eos),
        **parts,
    }
    config: dict[str, object] = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "add_bos_token": adds_bos,
        "add_eos_token": adds_eos,
        "clean_up_tokenization_spaces": False,
        **_named_tokens(vocabulary),
        "chat_template": _chat_template(metadata),
    }
    return {
        "tokenizer.json": tokenizer,
        "tokenizer_config.json": config,
        "generation_config.json": {
            "bos_token_id": vocabulary.named.get("bos"),
            "eos_token_id": vocabulary.end_ids(),
        },
    }


def _sentence_piece(metadata: Mapping[str, object], vocabulary: Vocabulary) -> dict[str, object]:
    """Return the parts of tokenizer.json that differ by kind, for SentencePiece."""
    if read_flag(metadata, "remove_extra_whitespaces", default=False):
        expected = "false, as inferno keeps all spaces"
        raise refusal(KEYS + "remove_extra_whitespaces", "true", expected, is_unknown=True)
    normalizers: list[dict[str, object]] = [
        {"type": "Replace", "pattern": {"String": " "}, "content": SPACE}
    ]
    decoders: list[dict[str, object]] = [
        {"type": "Replace", "pattern": {"String": SPACE}, "content": " "},
        {"type": "ByteFallback"},
        {"type": "Fuse"},
    ]
    if read_flag(metadata, "add_space_prefix", default=True):
        normalizers.insert(0, {"type": "Prepend", "prepend": SPACE})
        decoders.append({"type": "Strip", "content": " ", "start": 1, "stop": 0})
    unknown = vocabulary.named.get("unknown")
    return {
        "normalizer": {"type": "Sequence", "normalizers": normalizers},
        "pre_tokenizer": None,
        "decoder": {"type": "Sequence", "decoders": decoders},
        "model": {
            "type": "BPE",
            "unk_token": None if unknown is None else vocabulary.tokens[unknown],
            "fuse_unk": True,
            "byte_fallback": True,
            "ignore_merges": False,
            "vocab": vocabulary.ids,
            "merges": _merges_by_score(metadata, vocabulary),
        },
    }


def _merges_by_score(
    metadata: Mapping[str, object], vocabulary: Vocabulary
) -> list[tuple[str, str]]:
    """Return all pairs of pieces that make a piece, those of the best score first.

    Pieces of equal score come in the order of their ids. llama.cpp merges the leftmost of them
    first, which no list of merges can say. No control token is ever made of a text.
    """
    num_listed = len(read_list(metadata, "tokens", str))
    scores = read_list(metadata, "scores", float, length=num_listed)
    if not all(map(isfinite, scores)):
        raise refusal(KEYS + "scores", "a score that is no finite number", "finite ones alone")
    tokens, types = vocabulary.tokens, vocabulary.types
    pieces = {
        token: token_id
        for token, token_id in vocabulary.ids.items()
        if types[token_id] in (NORMAL, USER_DEFINED)
    }
    longest, num_characters = max(map(len, pieces), default=0), sum(map(len, pieces))
    if longest > MAX_PIECE_LENGTH or num_characters > MAX_PIECE_CHARACTERS:
        found = f"pieces of up to {longest} characters, {num_characters:,} in all"
        expected = f"at most {MAX_PIECE_LENGTH}, and {MAX_PIECE_CHARACTERS:,} in all"
        raise refusal(KEYS + "tokens", found, expected)
    merges: list[tuple[str, str]] = []
    for piece in sorted(pieces, key=lambda piece: -scores[pieces[piece]]):
        halves = [
            (left, right)
            for cut in range(1, len(piece))
            if (left := pieces.get(piece[:cut])) is not None
            and (right := pieces.get(piece[cut:])) is not None
        ]
        merges += [(tokens[left], tokens[right]) for left, right in sorted(halves)]
        if len(merges) > MAX_MERGES:
            found = f"pieces that can be made of two in more than {MAX_MERGES:,} ways"
            raise refusal(KEYS + "tokens", found, "fewer")
    return merges


def _pre_tokenizer(metadata: Mapping[str, object]) -> PreTokenizer:
    """Return the rule that cuts a text into words: the file's, or llama.cpp's default."""
    if KEYS + "pre" not in metadata:
        _logger.warning(
            "the file has no %spre, as those from before May 2024: texts are cut by llama.cpp's "
            "default rule, and the model may answer worse; a newer file of it has its own rule",
            KEYS,
        )
        return PRE_TOKENIZERS[DEFAULT]
    name = read_text(metadata, KEYS + "pre")
    if name not in PRE_TOKENIZERS:
        expected = f"one of {', '.join(PRE_TOKENIZERS)}"
        raise refusal(KEYS + "pre", f"{name!r:.80}", expected, is_unknown=True)
    return PRE_TOKENIZERS[name]


def _byte_level(
    metadata: Mapping[str, object], vocabulary: Vocabulary, rule: PreTokenizer
) -> dict[str, object]:
    """Return the parts of tokenizer.json that differ by kind, for byte-level BPE.

    The flags on spaces are SentencePiece's; llama.cpp doesn't read them here either.
    """
    return {
        "normalizer": {"type": "NFC"} if rule.is_nfc else None,
        "pre_tokenizer": rule.spec(),
        "decoder": {
            "type": "ByteLevel",
            "add_prefix_space": False,
            "trim_offsets": False,
            "use_regex": False,
        },
        "model": {
            "type": "BPE",
            "unk_token": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": rule.ignore_merges,
            "vocab": vocabulary.ids,
            "merges": _listed_merges(metadata),
        },
    }


def check_merges(metadata: Mapping[str, object]) -> None:
    """Raise TokenizerError where a merge of the file's does not make a token of two others."""
    if read_text(metadata, KEYS + "model") != "gpt2":
        return  # they are made of the tokens
    ids = read_vocabulary(metadata, {}).ids
    for merge in read_list(metadata, "merges", str):
        first, _, second = merge.partition(" ")
        if first not in ids or second not in ids or first + second not in ids:
            expected = "two tokens with a space between, which make a third"
            raise refusal(KEYS + "merges", f"{merge!r:.80}", expected)


def _listed_merges(metadata: Mapping[str, object]) -> list[tuple[str, str]]:
    """Return the file's merges as pairs; of one that is there twice, the first counts."""
    listed = dict.fromkeys(read_list(metadata, "merges", str))
    return [(first, second) for first, _, second in (merge.partition(" ") for merge in listed)]


def _added_tokens(vocabulary: Vocabulary) -> list[dict[str, object]]:
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    return [
        {
            "id": token_id,
            "content": vocabulary.tokens[token_id],
            "special": vocabulary.is_special(token_id),
            **flags,
        }
        for token_id in vocabulary.added_ids()
    ]


def _post_processor(
    vocabulary: Vocabulary, *, adds_bos: bool, adds_eos: bool
) -> dict[str, object] | None:
    """Return the part of tokenizer.json that puts BOS before a text, and EOS after it."""
    before = [vocabulary.token("bos", asked_by="add_bos_token")] if adds_bos else []
    after = [vocabulary.token("eos", asked_by="add_eos_token")] if adds_eos else []
    if not before and not after:
        return None

    def special(tokens: list[str], type_id: int) -> list[dict[str, object]]:
        return [{"SpecialToken": {"id": token, "type_id": type_id}} for token in tokens]

    def around(text: str, type_id: int) -> list[dict[str, object]]:
        whole: dict[str, object] = {"Sequence": {"id": text, "type_id": type_id}}
        return [*special(before, type_id), whole, *special(after, type_id)]

    return {
        "type": "TemplateProcessing",
        "single": around("A", 0),
        "pair": [*around("A", 0), *around("B", 1)],
        "special_tokens": {
            token: {"id": token, "ids": [vocabulary.ids[token]], "tokens": [token]}
            for token in (*before, *after)
        },
    }


def _named_tokens(vocabulary: Vocabulary) -> dict[str, str]:
    """Return bos_token, eos_token and their like, as tokenizer_config.json names them.

    Plain text, such as a `!` that some files declare as their padding, gets no name: it would
    count as special, and vanish from what the model says.
    """
    return {
        _NAMES[name]: vocabulary.tokens[token_id]
        for name, token_id in vocabulary.named.items()
        if name in _NAMES and vocabulary.is_added(token_id)
    }


def _chat_template(metadata: Mapping[str, object]) -> str | list[dict[str, str]] | None:
    """Return the file's chat template, or all that it has by their names; None without one."""
    default, named = "tokenizer.chat_template", "tokenizer.chat_template."
    templates = [
        {"name": key.removeprefix(named), "template": _template(metadata, key)}
        for key in metadata
        if key.startswith(named)
    ]
    if default not in metadata:
        return templates or None
    if not templates:
        return _template(metadata, default)
    return [{"name": "default", "template": _template(metadata, default)}, *templates]


def _template(metadata: Mapping[str, object], key: str) -> str:
    template = read_text(metadata, key)
    if len(template) > MAX_TEMPLATE_BYTES:
        expected = f"at most {MAX_TEMPLATE_BYTES:,}"
        raise refusal(key, f"a template of {len(template):,} characters", expected)
    return template
