"""The mean of models: their weights' mean in bfloat16, and the last one's other files."""

from __future__ import annotations

from pathlib import Path

import torch
from average_demo import average
from safetensors.torch import load_file, save_file


def test_the_mean_of_models_is_that_of_their_weights(tmp_path: Path) -> None:
    for number, name in enumerate(("first", "second"), start=1):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.json").write_text(name)
        weights = {"w": torch.tensor([1.0 * number, 4.0], dtype=torch.bfloat16)}
        save_file(weights, tmp_path / name / "model.safetensors")
        save_file(weights, tmp_path / name / "unfinished.safetensors")
    average([tmp_path / "first", tmp_path / "second"], tmp_path / "out")
    mean = load_file(tmp_path / "out" / "model.safetensors")
    assert mean["w"].tolist() == [1.5, 4.0]
    assert mean["w"].dtype == torch.bfloat16
    assert (tmp_path / "out" / "config.json").read_text() == "second"
    assert not (tmp_path / "out" / "unfinished.safetensors").exists()
