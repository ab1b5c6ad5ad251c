"""The cache of packed weights: equal to what was packed, never trusted when damaged, bounded."""

from __future__ import annotations

import errno
import fcntl
import os
import random
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from inferno import file_identity
from inferno.compiled_kernels import why_not
from inferno.engine.build import build_engine
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
    monkeypatch.setattr("inferno.engine.execution.loading.load_weights", refuse)
    assert torch.equal(logits(model), first)
    assert kept(home) == [file]


def test_packing_keeping_and_reading_again_all_tell_how_far_they_are(
    home: Path, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A load that goes on must never look like one that hangs."""
    monkeypatch.setattr(packed_cache, "CHUNK_BYTES", 256)
    options = EngineOptions(model=model, num_blocks=16, threads=1, quantize="int4")
    for first in (True, False):
        reports: list[tuple[int, int]] = []
        build_engine(options, lambda done, total: reports.append((done, total)))  # noqa: B023
        (file,) = kept(home)
        num_chunks = file.stat().st_size // 256
        assert len(reports) > num_chunks / 2
        assert reports[-1][0] == reports[-1][1]
        is_done_at_once = [done == total for done, total in reports].index(True) == 0
        assert not is_done_at_once, f"first: {first}"


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


def test_a_file_that_goes_meanwhile_keeps_no_room(
    home: Path, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    logits(model, quantize="int8")
    (oldest,) = kept(home)
    (home / "packed" / "gone.packed").symlink_to("nowhere")  # as what another process removes
    monkeypatch.setattr(packed_cache, "MOST_BYTES", 1)
    logits(model)
    assert oldest not in kept(home)


def test_what_a_killed_process_has_left_is_removed_and_what_one_writes_is_not(
    home: Path, model: Path
) -> None:
    (home / "packed").mkdir(parents=True)
    left, written = (home / "packed" / f".packed-{name}" for name in ("left", "written"))
    left.write_bytes(b"x" * 100)
    with written.open("wb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        logits(model)
        assert written.exists()
    assert not left.exists()
    assert len(kept(home)) == 2


def test_floats_are_not_kept(home: Path, model: Path) -> None:
    logits(model, quantize="none")
    assert not (home / "packed").exists()


WEIGHTS = "model.safetensors"


def put_in_place(folder: Path, content: bytes) -> None:
    """Other bytes in the same file, with the modification time of the old ones."""
    path = folder / WEIGHTS
    before = path.stat()
    with path.open("r+b") as file:
        file.write(content)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    after = path.stat()
    assert (after.st_ino, after.st_size, after.st_mtime_ns) == (
        before.st_ino,
        before.st_size,
        before.st_mtime_ns,
    )


@pytest.fixture
def other(tmp_path: Path) -> bytes:
    """The weights of another model of equal shapes."""
    save_tiny(tmp_path / "other", "qwen3", head_dim=16, tie_word_embeddings=True, seed=1)
    return (tmp_path / "other" / WEIGHTS).read_bytes()


@pytest.fixture
def settled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files are believed at once, as if they had been there for some seconds."""
    monkeypatch.setattr(file_identity, "_SETTLED", 0)


def read_bytes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """What is read of weights from now on: sizes."""
    sizes, read = [], os.preadv

    def count(fd: int, buffers: Any, offset: int) -> int:
        sizes.append(got := read(fd, buffers, offset))
        return got

    monkeypatch.setattr(os, "preadv", count)
    return sizes


@pytest.mark.parametrize("is_settled", [False, True])
def test_weights_replaced_in_place_with_the_old_time_are_packed_anew(
    home: Path,
    model: Path,
    other: bytes,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    is_settled: bool,
) -> None:
    if is_settled:
        monkeypatch.setattr(file_identity, "_SETTLED", 0)
    first = logits(model)
    put_in_place(model, other)
    second = logits(model)
    assert not torch.equal(second, first)
    assert torch.equal(second, logits(tmp_path / "other"))
    assert len(kept(home)) == 2


@pytest.mark.usefixtures("settled")
def test_a_start_that_knows_its_files_reads_only_their_headers(
    home: Path, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    logits(model)
    sizes = read_bytes(monkeypatch)
    logits(model)
    assert 0 < sum(sizes) < (model / WEIGHTS).stat().st_size / 4


def test_the_first_start_reads_next_to_nothing_twice(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = tmp_path / "larger"
    save_tiny(model, "qwen3", head_dim=16, intermediate_size=4000)
    sizes = read_bytes(monkeypatch)
    logits(model, quantize="none")
    plain = sum(sizes)
    sizes.clear()
    logits(model)
    samples_and_headers = 32 * 4096 + (20 << 10)
    assert plain > 5 * samples_and_headers
    assert sum(sizes) < plain + samples_and_headers


@pytest.mark.parametrize("is_left", [False, True])
def test_a_copy_finds_what_was_packed_of_the_original(
    home: Path, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_left: bool
) -> None:
    first = logits(model)
    shutil.copytree(model, tmp_path / "copy")
    if not is_left:
        shutil.rmtree(model)
    monkeypatch.setattr("inferno.engine.execution.loading.load_weights", refuse)
    assert torch.equal(logits(tmp_path / "copy"), first)
    assert len(kept(home)) == 1


@pytest.mark.usefixtures("settled")
@pytest.mark.parametrize("link", [os.link, os.symlink])
def test_links_to_known_weights_are_known(
    home: Path, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, link: Any
) -> None:
    folder = tmp_path / "linked"
    folder.mkdir()
    shutil.copy(model / "config.json", folder)
    link(model / WEIGHTS, folder / WEIGHTS)
    first = logits(model)
    sizes = read_bytes(monkeypatch)
    assert torch.equal(logits(folder), first)
    assert sum(sizes) < (model / WEIGHTS).stat().st_size / 4


def test_nothing_is_written_into_the_models_folder(home: Path, model: Path) -> None:
    before = {path.name: path.stat().st_mtime_ns for path in model.iterdir()}
    os.chmod(model, 0o555)
    try:
        logits(model)
    finally:
        os.chmod(model, 0o755)
    assert {path.name: path.stat().st_mtime_ns for path in model.iterdir()} == before
    assert len(kept(home)) == 1


def test_a_file_that_has_just_changed_is_not_believed(home: Path, model: Path) -> None:
    logits(model)
    assert not (home / "known_weights" / "files.json").exists()


@pytest.mark.usefixtures("settled")
def test_weights_that_change_while_they_are_read_are_not_kept(
    home: Path, model: Path, other: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    load = packed_cache.PackedCache.load

    def change_and_load(self: Any, *args: Any) -> bool:
        put_in_place(model, other)
        return load(self, *args)

    with monkeypatch.context() as patch:
        patch.setattr(packed_cache.PackedCache, "load", change_and_load)
        logits(model)
    assert kept(home) == []
    assert not (home / "known_weights" / "files.json").exists()
    assert torch.equal(logits(model), logits(tmp_path / "other"))


@pytest.mark.usefixtures("settled")
@pytest.mark.parametrize("name", ["key", "files.json"])
@pytest.mark.parametrize("damage", ["nothing", "garbage", "nested", "long", "a folder", "a pipe"])
def test_a_damaged_table_does_no_harm(home: Path, model: Path, name: str, damage: str) -> None:
    first = logits(model)
    path = home / "known_weights" / name
    path.unlink()
    match damage:
        case "nothing":
            path.write_bytes(b"")
        case "garbage":
            path.write_bytes(random.Random(0).randbytes(1000))
        case "nested":
            path.write_bytes(b'{"version": 1, "files": ' + b"[" * 100_000)
        case "long":
            path.write_bytes(b" " * (4 << 20))
        case "a folder":
            path.mkdir()
        case "a pipe":
            os.mkfifo(path)
    assert torch.equal(logits(model), first)
    assert torch.equal(logits(model), first)


def test_a_full_disk_does_no_harm(home: Path, model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any, **__: Any) -> None:
        raise OSError(errno.ENOSPC, "no space left on device")

    first = logits(model)
    shutil.rmtree(home)
    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", full)
        assert torch.equal(logits(model), first)
    assert list(home.rglob("*.packed")) == []
    assert not [path for path in home.rglob("*") if path.is_file()]


@pytest.mark.parametrize("damage", ["a pipe", "nested", "huge shapes"])
def test_a_hostile_file_is_packed_anew(home: Path, model: Path, damage: str) -> None:
    first = logits(model)
    (file,) = kept(home)
    content = file.read_bytes()
    file.unlink()
    match damage:
        case "a pipe":
            os.mkfifo(file)
        case "nested":
            file.write_bytes(b"[" * 200_000 + b"\n")
        case "huge shapes":
            header, _, body = content.partition(b"\n")
            wrong = header.replace(b'"shape": [48]', b'"shape": [9223372036854775807, 4]')
            file.write_bytes(wrong + b"\n" + body)
    assert torch.equal(logits(model), first)
    assert torch.equal(logits(model), first)
