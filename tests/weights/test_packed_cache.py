"""The cache of packed weights: equal to what was packed, never trusted when damaged, bounded."""

from __future__ import annotations

import os
import random
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from inferno.engine.assemble import build_engine
from inferno.ops.kernels import why_not
from inferno.options import EngineOptions
from inferno.weights import packed_cache
from tests.tiny import save_tiny

pytestmark = pytest.mark.skipif(why_not() is not None, reason=f"no kernels: {why_not()}")

TEXT = [5, 17, 40, 3, 3, 88]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("INFERNO_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


@pytest.fixture
def model(tmp_path: Path) -> Path:
    save_tiny(tmp_path / "model", "qwen3", head_dim=16, tie_word_embeddings=True)
    return tmp_path / "model"


def logits(model: Path, **options: Any) -> Tensor:
    wanted = {"quantize": "int4", **options}
    return build_engine(EngineOptions(model=model, num_blocks=16, threads=1, **wanted)).logits(TEXT)


def kept(home: Path) -> list[Path]:
    return sorted((home / "packed").glob("*"))


def test_a_second_start_reads_what_the_first_packed(
    home: Path, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = logits(model)
    (file,) = kept(home)
    monkeypatch.setattr("inferno.engine.loading.load_weights", refuse)
    assert torch.equal(logits(model), first)
    assert kept(home) == [file]


def refuse(*args: object, **kwargs: object) -> None:
    raise AssertionError("the checkpoint was packed again")


def test_other_choices_and_other_weights_are_packed_apart(home: Path, model: Path) -> None:
    first = logits(model)
    logits(model, quantize="int8")
    assert len(kept(home)) == 2
    save_tiny(model, "qwen3", head_dim=16, tie_word_embeddings=True, seed=1)
    assert not torch.equal(logits(model), first)
    assert len(kept(home)) == 3


@pytest.mark.parametrize("damage", ["a byte", "the end", "the header", "everything", "a folder"])
def test_a_damaged_file_is_packed_anew(home: Path, model: Path, damage: str) -> None:
    first = logits(model)
    (file,) = kept(home)
    content = bytearray(file.read_bytes())
    header = content.index(b"\n")
    if damage == "a byte":
        content[random.Random(1).randrange(header + 1, header + 2000)] ^= 1
    elif damage == "the end":
        del content[-100:]
    elif damage == "the header":
        content[:header] = content[:header].replace(b"INT4", b"INT8")
    elif damage == "everything":
        content = bytearray(b"\xff" * 1000)
    file.unlink()
    if damage == "a folder":
        file.mkdir()
    else:
        file.write_bytes(content)
    assert torch.equal(logits(model), first)
    if damage != "a folder":
        assert torch.equal(logits(model), first)
        assert len(kept(home)) == 1


def test_a_cache_that_cannot_be_written_does_no_harm(
    home: Path, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = logits(model)
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("INFERNO_HOME", str(tmp_path / "file"))
    assert torch.equal(logits(model), first)


def test_the_longest_unused_files_make_room(
    home: Path, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    logits(model, quantize="int8")
    (oldest,) = kept(home)
    os.utime(oldest, (1, 1))
    monkeypatch.setattr(packed_cache, "MOST_BYTES", oldest.stat().st_size)
    logits(model)
    assert oldest not in kept(home)
    assert len(kept(home)) == 1


def test_floats_are_not_kept(home: Path, model: Path) -> None:
    logits(model, quantize="none")
    assert not (home / "packed").exists()
