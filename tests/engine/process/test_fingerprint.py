"""The fingerprint changes with what computes, and with nothing else."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from inferno.engine.process import fingerprint as module
from inferno.engine.process.fingerprint import fingerprint
from inferno.options import EngineOptions
from tests.tiny import save_tiny_model


@pytest.fixture
def options(tmp_path: Path) -> EngineOptions:
    folder = tmp_path / "model"
    folder.mkdir()
    save_tiny_model(folder)
    return EngineOptions(model=folder)


def test_a_copy_of_a_model_has_the_same(options: EngineOptions, tmp_path: Path) -> None:
    copy = shutil.copytree(options.model, tmp_path / "copy")
    assert fingerprint(options, "float32") == fingerprint(replace(options, model=copy), "float32")


@pytest.mark.parametrize("most_whole_bytes", [2**30, 0])
def test_changed_weights_have_another(
    options: EngineOptions, most_whole_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MOST_WHOLE_BYTES", most_whole_bytes)  # 0: the file is sampled
    before = fingerprint(options, "float32")
    weights = options.model / "model.safetensors"
    content = bytearray(weights.read_bytes())
    content[-1] ^= 1
    weights.write_bytes(content)
    assert fingerprint(options, "float32") != before


def test_another_arithmetic_version_or_config_has_another(
    options: EngineOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = {
        fingerprint(options, "float32"),
        fingerprint(options, "bfloat16"),
        fingerprint(replace(options, quantize="int4"), "float32"),
        fingerprint(replace(options, activations="bfloat16"), "float32"),
        fingerprint(replace(options, load_format="dummy"), "float32"),
    }
    config = options.model / "config.json"
    config.write_text(config.read_text() + " ")
    seen.add(fingerprint(options, "float32"))
    monkeypatch.setattr(module, "__version__", "9.9.9")
    seen.add(fingerprint(options, "float32"))
    assert len(seen) == 7
    assert all(int(each, 16) >= 0 and len(each) == 16 for each in seen)
