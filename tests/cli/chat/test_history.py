"""Typed messages from one conversation to the next, and where they can't be kept."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from inferno.cli.chat import editor
from inferno.cli.chat.editor import FileHistory, history_path


def newest_first(path: Path | None) -> list[str]:
    return list(FileHistory(path).load_history_strings())


def test_messages_of_many_lines_come_back(tmp_path: Path) -> None:
    path = tmp_path / "new" / "history"
    first = FileHistory(path)
    for text in ("one", "two\nlines", "drei – 三"):
        first.store_string(text)
    assert newest_first(path) == ["drei – 三", "two\nlines", "one"]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_damaged_line_is_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "history"
    path.write_bytes(b'"one"\n\xff\xfe\n{"a": 1}\n[[[[\n"two"\n' + b"[" * 100_000)
    assert newest_first(path) == ["two", "one"]


def test_a_huge_file_is_made_short(tmp_path: Path) -> None:
    path = tmp_path / "history"
    path.write_text("".join(f'"{"x" * 10_000}{number}"\n' for number in range(200)))
    found = newest_first(path)
    assert found[0].endswith("199")
    assert path.stat().st_size <= editor._MOST_BYTES
    assert newest_first(path) == found


def test_a_huge_message_does_not_drive_out_the_others(tmp_path: Path) -> None:
    kept = FileHistory(tmp_path / "history")
    kept.store_string("one")
    kept.store_string("x" * 10**6)
    assert newest_first(tmp_path / "history") == ["one"]


def test_the_file_does_not_grow_for_ever(tmp_path: Path) -> None:
    path = tmp_path / "history"
    kept = editor._MOST_ENTRIES
    path.write_text("".join(f'"{number}"\n' for number in range(kept + 50)))
    assert newest_first(path)[-1] == "50"
    assert len(path.read_text().splitlines()) == kept


@pytest.mark.parametrize("where", ["a file/history", "a folder", None])
def test_where_it_can_not_be_kept_nothing_fails(tmp_path: Path, where: str | None) -> None:
    (tmp_path / "a file").write_text("")
    (tmp_path / "a folder").mkdir()
    path = None if where is None else tmp_path / where
    FileHistory(path).store_string("one")
    assert newest_first(path) == []


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({"INFERNO_HOME": "/i", "XDG_STATE_HOME": "/s", "HOME": "/h"}, "/i/history"),
        ({"XDG_STATE_HOME": "/s", "HOME": "/h"}, "/s/inferno/history"),
        ({"HOME": "/h"}, "/h/.local/state/inferno/history"),
    ],
)
def test_where_it_is_kept(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], expected: str
) -> None:
    for name in ("INFERNO_HOME", "XDG_STATE_HOME", "HOME"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert history_path() == Path(expected)


def test_without_a_home_it_is_kept_nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_home() -> Path:
        raise RuntimeError("no home")

    for name in ("INFERNO_HOME", "XDG_STATE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(Path, "home", no_home)
    assert history_path() is None
