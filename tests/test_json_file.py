"""Tests of inferno.json_file: what is read, and what is refused with the file's name."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from inferno.errors import CheckpointError, ConfigError
from inferno.hub.facts import _header
from inferno.hub.names import RemoteFile
from inferno.hub.transfer import has_content
from inferno.json_file import read_file, read_json


def write(folder: Path, content: bytes) -> Path:
    path = folder / "config.json"
    path.write_bytes(content)
    return path


def test_an_object_is_read(tmp_path: Path) -> None:
    path = write(tmp_path, '{"a": [1, 2.5, null], "ü": "\\n"}'.encode())
    assert read_json(path, error=ConfigError) == {"a": [1, 2.5, None], "ü": "\n"}


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"null",
        b"[]",
        b'"text"',
        b'{"a": 1} trailing',
        b'\xef\xbb\xbf{"a": 1}',
        '{"a": 1}'.encode("utf-16"),
        b'{"a": "\xff"}',
        b'{"a": ' + b"9" * 5000 + b"}",
        b"[" * 200_000,
        b'{"a":' * 200_000,
        b'{"a": 1, "a": 2}',
        b'{"b": {"a": 1, "a": [1]}}',
    ],
)
def test_a_damaged_file_is_refused_by_name(tmp_path: Path, content: bytes) -> None:
    path = write(tmp_path, content)
    with pytest.raises(ConfigError, match=r"config\.json"):
        read_json(path, error=ConfigError)


def test_a_key_repeated_with_one_value_is_read(tmp_path: Path) -> None:
    path = write(tmp_path, b'{"a": 1, "a": 1}')
    assert read_json(path, error=ConfigError) == {"a": 1}


def test_a_missing_file_a_folder_and_an_impossible_name_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="missing"):
        read_json(tmp_path / "config.json", error=ConfigError)
    with pytest.raises(ConfigError):
        read_json(tmp_path, error=ConfigError)
    with pytest.raises(ConfigError):
        read_json(tmp_path / "nul\0", error=ConfigError)


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="there is no /proc")
def test_a_folder_in_a_files_place_is_left_closed(tmp_path: Path) -> None:
    def num_open() -> int:
        return len(os.listdir("/proc/self/fd"))

    file = RemoteFile(name="model.safetensors", size=0, sha256="0" * 64, git_oid=None)
    before = num_open()
    for _ in range(3):
        with pytest.raises(ConfigError, match="directory"):
            read_json(tmp_path, error=ConfigError)
        with pytest.raises(CheckpointError, match="directory"):
            _header(tmp_path)
        assert has_content(tmp_path, file) is None
    assert num_open() == before


def test_a_pipe_is_refused_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "config.json")
    with pytest.raises(ConfigError, match="regular file"):
        read_json(tmp_path / "config.json", error=ConfigError)


def test_a_folder_is_refused_and_leaves_nothing_open(tmp_path: Path) -> None:
    (tmp_path / "config.json").mkdir()
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(3):
        with pytest.raises(ConfigError, match="Is a directory"):
            read_json(tmp_path / "config.json", error=ConfigError)
    assert len(os.listdir("/proc/self/fd")) == before


def test_an_endless_device_is_refused(tmp_path: Path) -> None:
    (tmp_path / "config.json").symlink_to("/dev/zero")
    with pytest.raises(ConfigError, match="regular file"):
        read_json(tmp_path / "config.json", error=ConfigError)


def test_a_file_is_read_up_to_the_bound_and_refused_above_it(tmp_path: Path) -> None:
    path = write(tmp_path, b'{"a":1}')
    assert read_file(path, error=ConfigError, max_bytes=7) == b'{"a":1}'
    with pytest.raises(ConfigError, match="larger than"):
        read_file(path, error=ConfigError, max_bytes=6)
