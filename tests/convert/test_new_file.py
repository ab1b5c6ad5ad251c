"""Files that are there whole or not at all."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

import pytest

from inferno.convert.new_file import check_target, new_file
from inferno.errors import InvalidRequest


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_file_gets_its_name_when_it_is_whole(tmp_path: Path) -> None:
    with new_file(tmp_path / "a", 3, replace=False) as file:
        file.write(b"abc")
        assert names(tmp_path) == ["a.part"]
    assert names(tmp_path) == ["a"]
    assert (tmp_path / "a").read_bytes() == b"abc"


@pytest.mark.parametrize("problem", [ValueError, KeyboardInterrupt, OSError])
def test_a_failure_leaves_nothing_behind(problem: type[BaseException], tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"before")
    with pytest.raises(problem), new_file(tmp_path / "a", 3, replace=True) as file:  # noqa: PT012
        file.write(b"ab")
        raise problem
    assert names(tmp_path) == ["a"]
    assert (tmp_path / "a").read_bytes() == b"before"


def test_what_is_there_is_replaced_only_if_asked(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"before")
    with pytest.raises(InvalidRequest, match="--force"):
        check_target(tmp_path / "a", replace=False, source=tmp_path)
    check_target(tmp_path / "a", replace=True, source=tmp_path)
    with new_file(tmp_path / "a", 3, replace=True) as file:
        file.write(b"abc")
    assert (tmp_path / "a").read_bytes() == b"abc"


def test_a_file_that_was_made_meanwhile_stays(tmp_path: Path) -> None:
    with (
        pytest.raises(InvalidRequest, match="meanwhile"),
        new_file(tmp_path / "a", 3, replace=False),
    ):
        (tmp_path / "a").write_bytes(b"another's")
    assert (tmp_path / "a").read_bytes() == b"another's"
    assert names(tmp_path) == ["a"]


def test_a_full_disk_is_told_before_anything_is_written(tmp_path: Path) -> None:
    with (
        pytest.raises(InvalidRequest, match="free; make room"),
        new_file(tmp_path / "a", 1 << 60, replace=False),
    ):
        pytest.fail("it began to write")
    assert names(tmp_path) == []


def test_two_do_not_write_the_same_file(tmp_path: Path) -> None:
    with new_file(tmp_path / "a", 3, replace=False) as file:
        with (
            pytest.raises(InvalidRequest, match="another process"),
            new_file(tmp_path / "a", 3, replace=False),
        ):
            pytest.fail("both write")
        file.write(b"abc")
    assert (tmp_path / "a").read_bytes() == b"abc"


def test_what_a_killed_process_left_is_taken_over(tmp_path: Path) -> None:
    (tmp_path / "a.part").write_bytes(b"half of something longer")
    with new_file(tmp_path / "a", 3, replace=False) as file:
        file.write(b"abc")
    assert (tmp_path / "a").read_bytes() == b"abc"


def test_a_part_that_is_no_file_of_ours_is_left_alone(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_bytes(b"precious")
    (tmp_path / "a.part").symlink_to(victim)
    with pytest.raises(OSError, match=r"a\.part"), new_file(tmp_path / "a", 3, replace=False):
        pytest.fail("it followed the link")
    assert victim.read_bytes() == b"precious"
    os.mkfifo(tmp_path / "b.part")
    with (
        pytest.raises(InvalidRequest, match="no regular file"),
        new_file(tmp_path / "b", 3, replace=False),
    ):
        pytest.fail("it wrote into a pipe")


def test_a_name_that_changed_hands_is_not_written_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process gives the part its name between our opening it and locking it."""
    (tmp_path / "a.part").write_bytes(b"whole")
    flock = fcntl.flock

    def renamed_first(file: int, how: int) -> None:
        os.rename(tmp_path / "a.part", tmp_path / "a")
        (tmp_path / "a.part").touch()  # and a third process begins
        flock(file, how)

    monkeypatch.setattr(fcntl, "flock", renamed_first)
    with (
        pytest.raises(InvalidRequest, match="another process"),
        new_file(tmp_path / "a", 3, replace=True),
    ):
        pytest.fail("it wrote into another's file")
    assert (tmp_path / "a").read_bytes() == b"whole"


@pytest.mark.parametrize("target", ["no/file", "folder"])
def test_a_target_that_cannot_be_is_refused(target: str, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    with pytest.raises(InvalidRequest, match=r"no folder|is a folder"):
        check_target(tmp_path / target, replace=True, source=tmp_path / "folder")
