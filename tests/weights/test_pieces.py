"""Parameters that a checkpoint holds otherwise: stacked, laid out differently, or packed bits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from inferno import ops
from inferno.errors import NotEnoughMemory, WeightsMismatch
from inferno.quantization import FLOAT16, MXFP4, WeightFormat
from inferno.weights import allocate, checkpoint, loader
from inferno.weights.allocate import num_bytes
from inferno.weights.checkpoint import Checkpoint
from inferno.weights.loader import load_weights
from inferno.weights.open import open_checkpoint
from inferno.weights.pieces import FusedSpec, Piece, find_pieces, side_by_side, stacked
from tests.mxfp4 import decode
from tests.weights.files import SINGLE, parameters

CPU = torch.device("cpu")
COUNT, WIDTH, INNER, GROUPS = 3, 4, 5, 2


def alternating(parameter: Tensor) -> Tensor:
    """Rows 0, 1, 2, ... of the file are rows 0, F, 1, F + 1, ... of the parameter."""
    return parameter.view(len(parameter), 2, -1, *parameter.shape[2:]).transpose(1, 2)


FUSED: FusedSpec = {
    "mlp.gate_up": side_by_side(("mlp.gate", INNER), ("mlp.up", INNER)),
    "experts.gate_up.weight": stacked(
        COUNT, ("experts.{}.gate.weight", INNER), ("experts.{}.up.weight", INNER)
    ),
    "mixed.weight": (Piece("mixed", lambda p: alternating(p).permute(0, 3, 1, 2), joined=(2, 3)),),
    "packed.weight": (Piece("packed", alternating, joined=(1, 2), format=MXFP4),),
}


class Stacked(nn.Module):
    """A weight for each of three experts."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(COUNT, 2 * INNER, WIDTH))


class Packed(nn.Module):
    """A weight for each expert, of whole groups."""

    weight: Any

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(COUNT, 2 * INNER, 32 * GROUPS))


class Model(nn.Module):
    """One of each."""

    def __init__(self) -> None:
        super().__init__()
        self.experts = nn.ModuleDict({"gate_up": Stacked()})
        self.mlp = nn.ModuleDict({"gate_up": nn.Linear(WIDTH, 2 * INNER, bias=False)})
        self.mixed = Stacked()  # its rows alternate in the file
        self.packed = Packed()  # and so do these


def tensors() -> dict[str, Tensor]:
    """A checkpoint that fits Model."""
    generator = torch.Generator().manual_seed(0)

    def floats(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator)

    def bits(*shape: int) -> Tensor:
        return torch.randint(256, shape, generator=generator, dtype=torch.uint8)

    return {
        **{
            f"experts.{index}.{name}.weight": floats(INNER, WIDTH)
            for index in range(COUNT)
            for name in ("gate", "up")
        },
        "mlp.gate.weight": floats(INNER, WIDTH),
        "mlp.up.weight": floats(INNER, WIDTH),
        "mixed": floats(COUNT, WIDTH, 2 * INNER),
        "packed_blocks": bits(COUNT, 2 * INNER, GROUPS, 16),
        "packed_scales": bits(COUNT, 2 * INNER, GROUPS) % 200,
    }


def meta_model() -> Model:
    with torch.device("meta"):
        return Model()


def stored_format(name: str, parameter: Tensor, stored: WeightFormat) -> WeightFormat:
    """Keep what is packed, and floats in a type that no kernel has: as plain tensors."""
    return FLOAT16 if stored.is_float else stored


def load(
    folder: Path, stored: dict[str, Tensor], dtype: torch.dtype = torch.float32
) -> dict[str, Tensor]:
    save_file(stored, folder / SINGLE)
    model = meta_model()
    with open_checkpoint(folder) as opened:
        load_weights(model, opened, fused=FUSED, device=CPU, dtype=dtype, format_of=stored_format)
    experts = ops.matrices(model.packed.weight)
    return {
        **parameters(model),
        "packed.weight": torch.stack([one.unpack(torch.float32) for one in experts]),
    }


@pytest.mark.parametrize("chunk_bytes", [1, 100, 1 << 20])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_each_tensor_fills_its_part(
    tmp_path: Path, dtype: torch.dtype, chunk_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (loader, checkpoint):
        monkeypatch.setattr(module, "CHUNK_BYTES", max(chunk_bytes, 4))
    stored = tensors()
    loaded = load(tmp_path, stored, dtype)
    for index in range(COUNT):
        parts = [stored[f"experts.{index}.{name}.weight"] for name in ("gate", "up")]
        assert torch.equal(loaded["experts.gate_up.weight"][index], torch.cat(parts).to(dtype))
    mixed = stored["mixed"].transpose(1, 2)
    expected = torch.cat((mixed[:, 0::2], mixed[:, 1::2]), dim=1)
    assert torch.equal(loaded["mixed.weight"], expected.to(dtype))
    rows = torch.from_numpy(decode(stored["packed_blocks"], stored["packed_scales"]))
    expected = torch.cat((rows[:, 0::2], rows[:, 1::2]), dim=1)
    assert torch.equal(loaded["packed.weight"], expected.float())
    assert all(tensor.is_contiguous() for tensor in loaded.values())


def test_stacked_tensors_are_read_straight_into_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    targets: dict[str, int] = {}
    read_rows_into = Checkpoint.read_rows_into

    def watch(self: Checkpoint, name: str, first: int, out: Tensor) -> None:
        assert first == 0 or name.startswith("packed")
        targets[name] = out.data_ptr()
        read_rows_into(self, name, first, out)

    monkeypatch.setattr(Checkpoint, "read_rows_into", watch)
    loaded = load(tmp_path, tensors())
    whole_weight = loaded["experts.gate_up.weight"]
    for index in range(COUNT):
        assert targets[f"experts.{index}.gate.weight"] == whole_weight[index].data_ptr()
        assert targets[f"experts.{index}.up.weight"] == whole_weight[index, INNER].data_ptr()


def test_packed_bits_are_never_converted_nor_floats_made_of_bits(tmp_path: Path) -> None:
    stored = tensors()
    stored["packed_blocks"] = stored["packed_blocks"].float()
    stored["packed_scales"] = stored["packed_scales"].to(torch.int8)
    stored["mlp.up.weight"] = stored["mlp.up.weight"].to(torch.uint8)
    with pytest.raises(WeightsMismatch) as error:
        load(tmp_path, stored)
    for line in (
        "3 of a type that isn't read:\n",
        "'packed_blocks': expected uint8, found torch.float32\n",
        "'packed_scales': expected uint8, found torch.int8\n",
        "'mlp.up.weight': expected float32, float16 or bfloat16, found torch.uint8\n",
    ):
        assert line in str(error.value)


def test_differences_are_told_in_the_checkpoints_names_and_shapes(tmp_path: Path) -> None:
    stored = tensors()
    del stored["experts.1.up.weight"], stored["packed_scales"]
    stored["mixed"] = torch.zeros(COUNT, 2 * INNER, WIDTH)
    stored["experts.3.gate.weight"] = torch.zeros(INNER, WIDTH)
    with pytest.raises(WeightsMismatch) as error:
        load(tmp_path, stored)
    for line in (
        "2 missing:\n  'experts.1.up.weight': expected [5, 4]\n",
        "  'packed_scales': expected [3, 10, 2]\n",
        "1 misshapen:\n  'mixed': expected [3, 4, 10], found [3, 10, 4]\n",
        "1 unused:\n  'experts.3.gate.weight': found [5, 4]\n",
    ):
        assert line in str(error.value)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_size_counts_floats_in_the_dtype_and_progress_what_files_hold(
    tmp_path: Path, dtype: torch.dtype
) -> None:
    stored = tensors()
    save_file(stored, tmp_path / SINGLE)
    reports: list[tuple[int, int]] = []
    with open_checkpoint(tmp_path) as opened:
        load_weights(
            meta_model(),
            opened,
            fused=FUSED,
            device=CPU,
            dtype=dtype,
            format_of=stored_format,
            progress=lambda done, total: reports.append((done, total)),
        )
    expected = sum(
        tensor.numel() * (dtype.itemsize if tensor.is_floating_point() else 1)
        for tensor in stored.values()
    )
    assert num_bytes(meta_model(), dtype, fused=FUSED) == expected
    in_file = sum(tensor.nbytes for tensor in stored.values())
    assert reports[-1] == (in_file, in_file)
    assert reports == sorted(reports)
    assert len(reports) == len(stored) + 2 * (COUNT - 1), "packed ones by expert"


def test_bits_that_do_not_fit_are_refused_by_their_own_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    needed = num_bytes(meta_model(), torch.float32, fused=FUSED)
    monkeypatch.setattr(allocate, "available_bytes", lambda device: needed)
    assert load(tmp_path, tensors())
    monkeypatch.setattr(allocate, "available_bytes", lambda device: needed - 1)
    with pytest.raises(NotEnoughMemory):
        load(tmp_path, tensors())


def test_names_are_found_by_whole_segments() -> None:
    fused = {"mlp.gate_up": side_by_side(("mlp.gate", 1), ("mlp.up", 1))}

    def names(parameter: str) -> list[str]:
        return [piece.name for piece in find_pieces(parameter, fused)]

    assert names("layers.0.mlp.gate_up.weight") == [
        "layers.0.mlp.gate.weight",
        "layers.0.mlp.up.weight",
    ]
    assert names("mlp.gate_up") == ["mlp.gate", "mlp.up"]
    for other in (
        "layers.0.mlp.gate_up_proj.weight",
        "mlp.experts.gate_up.weight",
        "x_mlp.gate_up",
    ):
        assert names(other) == [other]
