"""Tiny models for the tests of the commands."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from safetensors.torch import load_file, save_file

from tests.tiny import save_tiny_model


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("model")
    save_tiny_model(path)
    return path


@pytest.fixture(scope="module")
def endless(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that writes letters and never comes to an end."""
    path = tmp_path_factory.mktemp("endless")
    # A context that takes a fast machine longer to fill than any test looks on.
    save_tiny_model(path, max_position_embeddings=131072)
    vocab = json.loads((path / "tokenizer.json").read_text())["model"]["vocab"]
    weights = load_file(path / "model.safetensors")
    for token, token_id in vocab.items():
        if not (len(token) == 1 and token.isascii() and token.isalnum()) and token != "Ġ":
            weights["lm_head.weight"][token_id] = 0.0  # never the largest of so many logits
    save_file(weights, path / "model.safetensors", {"format": "pt"})
    return path
