"""Metadata of GGUF files: of real files, made of real tokenizers, and small to be changed."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from tokenizers import pre_tokenizers

from inferno.gguf.header import parse_header
from inferno.gguf.tokenizer import tokenizer_files
from inferno.model_files import FolderFiles, MadeFiles
from inferno.text.tokenizer import Tokenizer, load_tokenizer
from tests.data import data_path
from tests.text.made import MERGES

Metadata = dict[str, Any]
KEYS = "tokenizer.ggml."
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = range(1, 7)
BYTES = [f"<0x{byte:02X}>" for byte in range(256)]


@cache
def read_metadata(*parts: str) -> Metadata:
    """Return the tokenizer's keys of a real file.

    test_header.py compares all keys of the same files with what the format's own library reads,
    which takes it seconds.
    """
    content = data_path(*parts).read_bytes()
    header = parse_header(lambda start, size: content[start : start + size], len(content))
    return {key: header.metadata[key] for key in header.metadata if key.startswith("tokenizer.")}


def field_value(field: Any) -> Any:
    """Return the value of a field, as the format's own library reads it."""
    if [kind.name for kind in field.types] == ["ARRAY", "STRING"]:  # contents() is slow for these
        return [bytes(field.parts[at]).decode("utf-8", "surrogateescape") for at in field.data]
    return field.contents()


@cache
def byte_level_metadata(model: str, pre: str, bos: str, eos: str) -> Metadata:
    """Return what a converter writes for the byte-level tokenizer.json of a real model."""
    spec = json.loads(data_path(*model.split("/"), "tokenizer.json").read_text("utf-8"))
    kinds = {
        token["content"]: CONTROL if token["special"] else USER_DEFINED
        for token in spec["added_tokens"]
    }
    vocab = spec["model"]["vocab"] | {each["content"]: each["id"] for each in spec["added_tokens"]}
    num_rows = max(vocab.values()) + 100
    tokens = {token_id: token for token, token_id in vocab.items()}
    listed = [tokens.get(row, f"[PAD{row}]") for row in range(num_rows)]
    merges = spec["model"]["merges"]
    return {
        KEYS + "model": "gpt2",
        KEYS + "pre": pre,
        KEYS + "tokens": listed,
        KEYS + "token_type": [
            kinds.get(token, NORMAL) if row in tokens else UNUSED
            for row, token in enumerate(listed)
        ],
        KEYS + "merges": [each if isinstance(each, str) else " ".join(each) for each in merges],
        KEYS + "bos_token_id": vocab[bos],
        KEYS + "eos_token_id": vocab[eos],
        KEYS + "add_bos_token": False,
    }


@cache
def sentence_piece_metadata(model: str) -> Metadata:
    """Return what a converter writes for the tokenizer.model of a real model."""
    content = data_path(*model.split("/"), "tokenizer.model").read_bytes()
    pieces = [dict(_fields(piece)) for number, piece in _fields(content) if number == 1]
    return {
        KEYS + "model": "llama",
        KEYS + "pre": "default",
        KEYS + "tokens": [piece[1].decode("utf-8") for piece in pieces],
        KEYS + "scores": [piece.get(2, 0.0) for piece in pieces],
        KEYS + "token_type": [piece.get(3, NORMAL) for piece in pieces],
        KEYS + "bos_token_id": 1,
        KEYS + "eos_token_id": 2,
        KEYS + "unknown_token_id": 0,
    }


def _fields(message: bytes) -> Iterator[tuple[int, Any]]:
    """Yield the fields of a protobuf message, with their numbers."""
    at = 0

    def varint() -> int:
        nonlocal at
        value = shift = 0
        while True:
            byte = message[at]
            at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    while at < len(message):
        number, wire = divmod(varint(), 8)
        if wire == 0:
            yield number, varint()
        elif wire == 2:
            length = varint()
            yield number, message[at : at + length]
            at += length
        else:
            assert wire == 5
            yield number, struct.unpack("<f", message[at : at + 4])[0]
            at += 4


def small_sentence_piece(**changed: Any) -> Metadata:
    """Return metadata of a vocabulary with 3 special tokens, the bytes, and a few pieces."""
    pieces = ["▁", "a", "b", "c", "ab", "bc", "▁a", "abc"]
    metadata: Metadata = {
        "model": "llama",
        "tokens": ["<unk>", "<s>", "</s>", *BYTES, *pieces],
        "scores": [*[0.0] * (3 + 256 + 4), -1.0, -2.0, -3.0, -4.0],
        "token_type": [UNKNOWN, CONTROL, CONTROL, *[BYTE] * 256, *[NORMAL] * len(pieces)],
    }
    return {KEYS + key: value for key, value in (metadata | changed).items()}


def small_byte_level(**changed: Any) -> Metadata:
    """Return metadata of a vocabulary with the 256 bytes, 3 merges and 3 added tokens."""
    tokens = [*sorted(pre_tokenizers.ByteLevel.alphabet()), *map("".join, MERGES)]
    metadata: Metadata = {
        "model": "gpt2",
        "pre": "gpt-2",
        "tokens": [*tokens, "<|im_start|>", "<|im_end|>", "<think>"],
        "token_type": [*[NORMAL] * len(tokens), CONTROL, CONTROL, USER_DEFINED],
        "merges": list(map(" ".join, MERGES)),
        "eos_token_id": len(tokens) + 1,
    }
    return {KEYS + key: value for key, value in (metadata | changed).items()}


def write_files(folder: Path, metadata: Metadata) -> Path:
    for name, content in tokenizer_files(metadata).items():
        (folder / name).write_text(json.dumps(content), "utf-8")
    return folder


def tokenizer_of(folder: Path, metadata: Metadata) -> Tokenizer:
    """Return the tokenizer, once it is the same made of parts and of files."""
    written = load_tokenizer(FolderFiles(write_files(folder, metadata)))
    made = load_tokenizer(MadeFiles.of(folder, tokenizer_files(metadata)))
    assert made.spec() == written.spec()
    assert made.vocab_size == written.vocab_size
    return made
