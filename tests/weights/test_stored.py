"""What a checkpoint's tensors mean: floats, and weights that several tensors hold packed."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

from inferno.quantization import BFLOAT16, FLOAT32, MXFP4
from inferno.weights.checkpoint import StoredTensor
from inferno.weights.open import open_checkpoint
from tests.weights.files import SINGLE


def stored(folder: Path, tensors: dict[str, Tensor]) -> dict[str, StoredTensor]:
    save_file(tensors, folder / SINGLE)
    with open_checkpoint(folder) as opened:
        return dict(opened.stored)


def bits(*shape: int) -> Tensor:
    return torch.zeros(shape, dtype=torch.uint8)


def test_floats_have_the_format_of_their_type(tmp_path: Path) -> None:
    found = stored(tmp_path, {"a": torch.zeros(2, 3), "b": torch.zeros(4).bfloat16()})
    assert {name: (one.format, one.shape) for name, one in found.items()} == {
        "a": (FLOAT32, (2, 3)),
        "b": (BFLOAT16, (4,)),
    }


def test_the_tensors_of_a_packed_weight_are_one_of_its_shape(tmp_path: Path) -> None:
    found = stored(tmp_path, {"up_blocks": bits(5, 6, 2, 16), "up_scales": bits(5, 6, 2)})
    assert found.keys() == {"up"}
    assert (found["up"].format, found["up"].shape) == (MXFP4, (5, 6, 64))
    assert [part.name for part in found["up"].parts] == ["up_blocks", "up_scales"]
    rows = {part.stop - part.start for part in found["up"].parts}
    assert rows == {5 * 6 * 2 * 16, 5 * 6 * 2}


@pytest.mark.parametrize(
    "tensors",
    [
        {"up_blocks": bits(6, 2, 16)},
        {"up_scales": bits(6, 2)},
        {"up_blocks": bits(6, 2, 16), "up_scales": bits(6, 3)},
        {"up_blocks": bits(6, 2, 8), "up_scales": bits(6, 2)},
        {"up_blocks": bits(6, 2, 16), "up_scales": bits(6, 2).to(torch.int8)},
        {"_blocks": bits(1), "_scales": bits()},
        {"ids": torch.zeros(3, dtype=torch.int64)},
    ],
    ids=lambda tensors: ", ".join(f"{name} {list(one.shape)}" for name, one in tensors.items()),
)
def test_what_does_not_fit_together_is_no_weight(
    tmp_path: Path, tensors: dict[str, Tensor]
) -> None:
    assert not stored(tmp_path, tensors)
