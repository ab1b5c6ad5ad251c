"""Reading tensors: equal to the safetensors library, and safe when files change or aren't files."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.torch import load as library_load
from safetensors.torch import save, save_file
from torch import Tensor

from inferno.errors import CheckpointError, ModelNotFound
from inferno.weights import checkpoint as checkpoint_module
from inferno.weights.checkpoint import Checkpoint
from inferno.weights.open import open_checkpoint
from tests.data import data_path
from tests.weights.files import SINGLE, entry, one_tensor, tensor_file, write_index, write_single

FLOATS = [torch.float32, torch.float16, torch.bfloat16]


def read(checkpoint: Checkpoint, name: str, dtype: torch.dtype | None = None) -> Tensor:
    info = checkpoint.tensors[name]
    stored = info.dtype if isinstance(info.dtype, torch.dtype) else torch.uint8
    out = torch.empty(info.shape, dtype=dtype or stored)
    checkpoint.read_into(name, out)
    return out


def read_all(folder: Path) -> dict[str, Tensor]:
    with open_checkpoint(folder) as checkpoint:
        return {name: read(checkpoint, name) for name in checkpoint.tensors}


def some_tensors() -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(0)
    tensors = {
        f"{dtype}.{shape}": torch.randn(shape, generator=generator).to(dtype)
        for dtype in FLOATS
        for shape in [(), (1,), (3, 5), (0, 4), (2, 3, 4)]
    }
    return {**tensors, "ids": torch.arange(7), "packed": torch.arange(9, dtype=torch.uint8)}


def assert_same(left: dict[str, Tensor], right: dict[str, Tensor]) -> None:
    assert left.keys() == right.keys()
    for name, tensor in left.items():
        assert tensor.dtype == right[name].dtype
        assert tensor.shape == right[name].shape
        # Bytes, since NaN is not equal to itself.
        assert torch.equal(as_bytes(tensor), as_bytes(right[name]))


def as_bytes(tensor: Tensor) -> Tensor:
    return tensor.reshape(-1).view(torch.uint8)


def test_tensors_equal_those_that_the_safetensors_library_reads(tmp_path: Path) -> None:
    save_file(some_tensors(), tmp_path / SINGLE)
    assert_same(read_all(tmp_path), library_load((tmp_path / SINGLE).read_bytes()))


def test_a_published_checkpoint_equals_the_safetensors_library() -> None:
    folder = data_path("stories260K")
    assert_same(read_all(folder), library_load((folder / SINGLE).read_bytes()))


def test_shards_are_read_as_one_checkpoint(tmp_path: Path) -> None:
    tensors = some_tensors()
    shards = [dict(list(tensors.items())[i::3]) for i in range(3)]
    for i, shard in enumerate(shards):
        save_file(shard, tmp_path / f"model-{i}.safetensors")
    places = {name: f"model-{i}.safetensors" for i, shard in enumerate(shards) for name in shard}
    assert_same(read_all(write_index(tmp_path, places)), tensors)


@pytest.mark.parametrize("target", FLOATS, ids=str)
@pytest.mark.parametrize("stored", [*FLOATS, torch.float64], ids=str)
def test_floats_are_converted_as_torch_converts_them(
    stored: torch.dtype, target: torch.dtype, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoint_module, "CHUNK_BYTES", 24)  # several chunks, the last one short
    values = [0.0, -0.0, 1e-40, 1e-7, 1 / 3, -1e5, 3e38, float("inf"), float("nan")]
    tensor = torch.tensor(values, dtype=torch.float64).to(stored).repeat(3, 1)
    save_file({"w": tensor}, tmp_path / SINGLE)
    with open_checkpoint(tmp_path) as checkpoint:
        converted = read(checkpoint, "w", target)
    torch.testing.assert_close(converted, tensor.to(target), rtol=0, atol=0, equal_nan=True)


def test_a_part_of_a_larger_tensor_is_filled_and_nothing_else(tmp_path: Path) -> None:
    save_file({"w": torch.ones(2, 3)}, tmp_path / SINGLE)
    whole = torch.zeros(4, 3)
    with open_checkpoint(tmp_path) as checkpoint:
        checkpoint.read_into("w", whole[1:3])
    assert whole.sum(1).tolist() == [0, 3, 3, 0]


@pytest.mark.parametrize("target", [torch.float32, torch.bfloat16], ids=str)
def test_some_rows_are_read_and_no_others(
    target: torch.dtype, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoint_module, "CHUNK_BYTES", 8)
    tensor = torch.arange(42, dtype=torch.float32).view(7, 2, 3)
    save_file({"before": torch.ones(5), "w": tensor}, tmp_path / SINGLE)
    with open_checkpoint(tmp_path) as checkpoint:
        for first, stop in [(0, 7), (0, 1), (3, 5), (6, 7), (7, 7)]:
            out = torch.empty(stop - first, 2, 3, dtype=target)
            checkpoint.read_rows_into("w", first, out)
            assert torch.equal(out, tensor[first:stop].to(target))


@pytest.mark.parametrize("stored", ["F8_E4M3", "BOOL", "I8"])
def test_a_type_that_does_not_convert_is_refused(stored: str, tmp_path: Path) -> None:
    content = tensor_file({"w": entry(stored, [2], [0, 2])}, bytes(2))
    with (
        open_checkpoint(write_single(tmp_path, content)) as checkpoint,
        pytest.raises(CheckpointError, match=r"can't be read as torch\.float32"),
    ):
        read(checkpoint, "w", torch.float32)


@pytest.mark.parametrize("target", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("size", [0, 20, -1])
def test_a_file_cut_after_opening_is_noticed(
    size: int, target: torch.dtype, tmp_path: Path
) -> None:
    content = one_tensor()
    with open_checkpoint(write_single(tmp_path, content)) as checkpoint:
        os.truncate(tmp_path / SINGLE, size % len(content))
        with pytest.raises(CheckpointError, match="changed while it was being read"):
            read(checkpoint, "w", target)


def test_a_file_changed_in_place_is_noticed(tmp_path: Path) -> None:
    with open_checkpoint(write_single(tmp_path, one_tensor())) as checkpoint:
        with (tmp_path / SINGLE).open("r+b") as file:
            file.write(b"x")
        os.utime(tmp_path / SINGLE, ns=(0, 0))  # clocks of file systems are coarse
        with pytest.raises(CheckpointError, match="changed while it was being read"):
            read(checkpoint, "w")


def test_a_file_replaced_or_deleted_after_opening_does_no_harm(tmp_path: Path) -> None:
    save_file({"w": torch.ones(2)}, tmp_path / SINGLE)
    save_file({"w": torch.zeros(2)}, tmp_path / "other")
    with open_checkpoint(tmp_path) as checkpoint:
        os.replace(tmp_path / "other", tmp_path / SINGLE)
        assert read(checkpoint, "w").tolist() == [1, 1]
        (tmp_path / SINGLE).unlink()
        assert read(checkpoint, "w").tolist() == [1, 1]


def test_a_closed_checkpoint_is_not_read(tmp_path: Path) -> None:
    with open_checkpoint(write_single(tmp_path, one_tensor())) as checkpoint:
        pass
    with pytest.raises(ValueError, match="closed"):
        read(checkpoint, "w")


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        ("pipe", "is not a regular file"),
        ("device", "is not a regular file"),
        ("folder", "can't be opened: Is a directory"),
        ("loop", "can't be opened: Too many levels of symbolic links"),
        ("dangling", "is missing"),
    ],
)
def test_what_is_not_a_regular_file_is_refused_at_once(
    kind: str, reason: str, tmp_path: Path
) -> None:
    path = tmp_path / SINGLE
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    else:
        path.symlink_to({"device": "/dev/zero", "loop": SINGLE, "dangling": "nowhere"}[kind])
    with pytest.raises(CheckpointError, match=f"{SINGLE}: {reason}"):
        open_checkpoint(tmp_path)


def test_a_link_to_a_file_elsewhere_is_followed_as_in_the_hub_cache(tmp_path: Path) -> None:
    (tmp_path / "blob").write_bytes(one_tensor())
    (tmp_path / "snapshot").mkdir()
    (tmp_path / "snapshot" / SINGLE).symlink_to("../blob")
    assert read_all(tmp_path / "snapshot").keys() == {"w"}


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_without_permission_is_refused(tmp_path: Path) -> None:
    (write_single(tmp_path, one_tensor()) / SINGLE).chmod(0)
    with pytest.raises(CheckpointError, match="can't be opened: Permission denied"):
        open_checkpoint(tmp_path)


@pytest.mark.parametrize("name", ["pytorch_model.bin", "consolidated.00.pth", "w.PT", "w.ckpt"])
def test_pickled_weights_are_never_read(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(b"")
    with pytest.raises(CheckpointError, match="never read; convert"):
        open_checkpoint(tmp_path)


def test_a_folder_without_weights_is_no_model(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    for folder in (tmp_path, tmp_path / "config.json", tmp_path / "absent", Path("a\0b")):
        with pytest.raises(ModelNotFound):
            open_checkpoint(folder)
    with pytest.raises(ModelNotFound):
        open_checkpoint(Path("a" * 5000))


VALID = save(
    {
        "model.a": torch.arange(6, dtype=torch.float32).view(2, 3),
        "model.b": torch.arange(4).to(torch.bfloat16),
        "model.c": torch.tensor(1.5, dtype=torch.float16),
    },
    metadata={"format": "pt"},
)
POSITION = st.integers(0, len(VALID))
FRAGMENTS = [b'"', b"{", b"}", b"[", b"]", b",", b":", b"0", b"-1", b"\\", b"\0", b"\xff"]
SPLICE = st.one_of(
    st.sampled_from([*FRAGMENTS, b"F64", b"BF16", b"U8", b"1e9", b"true", b"model.a"]),
    st.binary(max_size=4),
)


@settings(
    max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(edits=st.lists(st.tuples(POSITION, st.integers(0, 8), SPLICE), max_size=3), cut=POSITION)
def test_a_damaged_file_is_refused_or_read_as_the_safetensors_library_does(
    edits: list[tuple[int, int, bytes]], cut: int, tmp_path: Path
) -> None:
    content = VALID if cut % 4 else VALID[:cut]
    for position, length, splice in edits:
        content = content[:position] + splice + content[position + length :]
    header = content[8:].rpartition(b"}}")[0]
    for candidate in (content, (len(header) + 2).to_bytes(8, "little") + content[8:]):
        try:
            tensors = read_all(write_single(tmp_path, candidate))
        except CheckpointError:
            continue
        assert_same(tensors, library_load(candidate))
