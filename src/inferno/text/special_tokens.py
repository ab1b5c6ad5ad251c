"""Which special tokens a model's files name: its bos_token, eos_token and the like."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from inferno.errors import TokenizerError
from inferno.json_file import read_json

NAMES = (
    "bos_token",
    "eos_token",
    "unk_token",
    "sep_token",
    "pad_token",
    "cls_token",
    "mask_token",
)


def read_tokenizer_config(folder: Path) -> dict[str, Any]:
    """tokenizer_config.json, or nothing where the folder has none."""
    path = folder / "tokenizer_config.json"
    return read_json(path, error=TokenizerError) if path.exists() else {}


def named_tokens(folder: Path) -> dict[str, str]:
    """Name -> text of each special token named in tokenizer_config.json or special_tokens_map.json.

    Files that list `added_tokens_decoder` are of the newer kind and complete; beside older ones
    special_tokens_map.json has the last word, as in transformers.
    """
    path = folder / "tokenizer_config.json"
    config = read_tokenizer_config(folder)
    tokens = _named(config, path)
    older = folder / "special_tokens_map.json"
    if "added_tokens_decoder" not in config and older.exists():
        tokens |= _named(read_json(older, error=TokenizerError), older)
    return tokens


def _named(config: dict[str, Any], path: Path) -> dict[str, str]:
    return {
        name: _text(config[name], f"{name} in {path}")
        for name in NAMES
        if config.get(name) is not None
    }


def _text(token: object, where: str) -> str:
    text = token.get("content") if isinstance(token, dict) else token
    if not isinstance(text, str):
        raise TokenizerError(f'{where} must be a text or {{"content": text}}, not {token!r:.80}')
    return text
