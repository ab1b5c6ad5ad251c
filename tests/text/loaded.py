"""The real tokenizers of the test data, each loaded once, and small ones made of the smallest."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

from inferno.model_files import FolderFiles
from inferno.text.tokenizer import Tokenizer, load_tokenizer
from tests.data import data_path

MODELS = (
    "stories260K",
    "hf/TinyLlama-1.1B-Chat-v1.0",
    "hf/Mistral-7B-Instruct-v0.3",
    "hf/Qwen3-0.6B",
    "hf/gpt-oss-20b",
)


@cache
def real_tokenizer(model: str) -> Tokenizer:
    return load_tokenizer(FolderFiles(data_path(*model.split("/"))))


def small_spec() -> dict[str, Any]:
    """The smallest real tokenizer.json, to be changed."""
    spec: dict[str, Any] = json.loads(data_path("stories260K", "tokenizer.json").read_text("utf-8"))
    return spec


def write_tokenizer(folder: Path, spec: dict[str, Any], **config: Any) -> Path:
    (folder / "tokenizer.json").write_text(json.dumps(spec), "utf-8")
    (folder / "tokenizer_config.json").write_text(json.dumps(config), "utf-8")
    return folder


def added_token(token_id: int, content: str, **flags: bool) -> dict[str, Any]:
    token: dict[str, Any] = {"id": token_id, "content": content, "special": True}
    for flag in ("lstrip", "rstrip", "normalized", "single_word"):
        token[flag] = False
    return token | flags
