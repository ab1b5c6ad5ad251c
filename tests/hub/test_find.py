"""What a model's name stands for."""

from __future__ import annotations

from pathlib import Path

import pytest

from inferno.errors import ModelNotFound
from inferno.hub.find import find_model_folder


def test_a_folder_of_one_gguf_model_stands_for_its_file(tmp_path: Path) -> None:
    for name in ("a-00001-of-00002.gguf", "a-00002-of-00002.gguf", "config.json"):
        (tmp_path / name).touch()
    assert find_model_folder(str(tmp_path)) == tmp_path / "a-00001-of-00002.gguf"
    (tmp_path / "b.gguf").touch()
    with pytest.raises(ModelNotFound, match=r"2 GGUF models; give the path of one, such as .*a-00"):
        find_model_folder(str(tmp_path))
    assert find_model_folder(str(tmp_path / "b.gguf")) == tmp_path / "b.gguf"
    (tmp_path / "model.safetensors").touch()
    assert find_model_folder(str(tmp_path)) == tmp_path
