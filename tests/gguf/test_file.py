"""GGUF files that are opened again and again: when their headers are parsed, and when not."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from inferno import LLM, SamplingParams
from inferno.file_identity import FileIdentity
from inferno.gguf import file
from inferno.gguf.file import held_headers, read_gguf, read_header
from inferno.gguf.header import GgufHeader, ReadBytes, parse_header
from tests.data import data_path
from tests.gguf.files import Parts, tensor, uint32

STORIES = data_path("stories260K-gguf", "stories260K-f32-v3.gguf")


@pytest.fixture
def parsed(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The sizes of the files whose headers are parsed, each time."""
    sizes: list[int] = []

    def count(read: ReadBytes, file_size: int) -> GgufHeader:
        sizes.append(file_size)
        return parse_header(read, file_size)

    monkeypatch.setattr(file, "parse_header", count)
    return sizes


@pytest.fixture
def all_settled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take new files for such as have not been changed for long."""
    monkeypatch.setattr(FileIdentity, "is_settled", lambda _identity, _now: True)


def write(path: Path, value: int) -> None:
    parts = Parts(entries=[uint32("a", value)], tensors=[tensor("t", [4])], data=bytes(16))
    path.write_bytes(parts.content())


@pytest.mark.usefixtures("all_settled")
def test_a_model_is_loaded_with_one_look_at_its_header(parsed: list[int]) -> None:
    with LLM(STORIES, dtype="float32", threads=1, num_blocks=32) as llm:
        llm.generate("Once", SamplingParams(max_tokens=1))
    assert len(parsed) == 1
    assert not file._held


@pytest.mark.usefixtures("all_settled")
def test_a_header_is_parsed_again_when_nobody_holds_it(tmp_path: Path, parsed: list[int]) -> None:
    path = tmp_path / "m.gguf"
    write(path, 1)
    with held_headers(path):
        assert read_header(path) is read_header(path)
        read_gguf(path)
    assert len(parsed) == 1
    read_header(path)
    assert len(parsed) == 2


@pytest.mark.usefixtures("all_settled")
@pytest.mark.parametrize("is_replaced", [False, True])
def test_a_file_that_changed_is_another(tmp_path: Path, is_replaced: bool) -> None:
    path = tmp_path / "m.gguf"
    write(path, 1)
    status = path.stat()
    with held_headers(path):
        while path.stat().st_ctime_ns == status.st_ctime_ns:  # until its clock has ticked
            write(tmp_path / "other.gguf" if is_replaced else path, 2)
            if is_replaced:
                os.replace(tmp_path / "other.gguf", path)
        os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
        assert read_header(path).metadata["a"] == 2


def test_what_was_written_just_now_is_parsed_each_time(tmp_path: Path, parsed: list[int]) -> None:
    path = tmp_path / "m.gguf"
    write(path, 1)
    os.utime(path, ns=(time.time_ns(), time.time_ns()))
    with held_headers(path):
        read_header(path)
    assert len(parsed) == 2


def test_no_model_is_held_quietly(tmp_path: Path) -> None:
    (tmp_path / "bad.gguf").write_bytes(b"GGUF")
    for path in (tmp_path, tmp_path / "none.gguf", tmp_path / "bad.gguf"):
        with held_headers(path):
            pass
