"""Perplexity against its definition, and thresholds."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch

from inferno.engine.engine import Engine
from inferno.errors import InvalidRequest
from inferno.model_files import FolderFiles
from inferno.text.tokenizer import load_tokenizer
from inferno.verify.outcome import Row
from tests.tiny import expected_logits, save_tiny_model
from tests.verify.faults import in_layers, set_on
from tests.verify.tiny_models import verified

TEXT = "The sun is up. A little dog runs to the river, and it is happy."


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any]:
    folder = tmp_path_factory.mktemp("model")
    return folder, save_tiny_model(folder)


@pytest.fixture
def text(tmp_path: Path) -> Path:
    path = tmp_path / "text.txt"
    path.write_text(TEXT)
    return path


def row_of(number: str, folder: Path, **options: Any) -> Row:
    return next(row for row in verified(folder, **options).rows if row.number == number)


def test_perplexity_is_that_of_transformers(model: tuple[Path, Any], text: Path) -> None:
    folder, oracle = model
    ids = load_tokenizer(FolderFiles(folder)).encode(TEXT)
    loss = torch.nn.functional.cross_entropy(
        expected_logits(oracle, ids)[:-1], torch.tensor(ids[1:])
    )
    row = row_of("Q", folder, quality=text)
    said = json.dumps(row.findings)
    assert f"perplexity {math.exp(float(loss)):.2f}" in said
    assert "100.00 %" in said
    assert row.passed
    assert row_of("Q", folder, quality=text, threshold=1e-6).passed


def test_a_threshold_fails_what_predicts_otherwise(
    model: tuple[Path, Any], text: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_layers(set_on("self_attn.scale", 0.01))(monkeypatch)
    row = row_of("Q", model[0], quality=text, threshold=1e-6)
    assert not row.passed
    assert row.measures[0].mean_error > 1e-3
    assert row_of("Q", model[0], quality=text).passed  # without a threshold it is a report


def test_predictions_that_are_no_numbers_fail_without_a_threshold_too(
    model: tuple[Path, Any], text: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = Engine.logits

    def overflowing(*arguments: Any) -> torch.Tensor:
        logits = right(*arguments)
        logits[3, 5] = math.nan
        return logits

    monkeypatch.setattr(Engine, "logits", overflowing)
    row = row_of("Q", model[0], quality=text)
    assert not row.passed
    assert row.what.startswith("1 of ")


@pytest.mark.parametrize("content", [b"", None])
def test_a_text_that_says_nothing_is_refused(
    model: tuple[Path, Any], tmp_path: Path, content: bytes | None
) -> None:
    path = tmp_path / "text.txt"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(InvalidRequest, match="--quality"):
        verified(model[0], quality=path)
