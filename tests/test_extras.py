"""The command that installs an extra installs it where inferno runs, and from where it came."""

from __future__ import annotations

import json
import shlex
import sys
from importlib.metadata import Distribution
from pathlib import Path
from types import SimpleNamespace

import pytest

from inferno import extras

CLONE = Path(__file__).resolve().parents[1]


def test_a_clone_is_installed_from_its_folder() -> None:
    words = shlex.split(extras.install_command("serve"))
    assert words == [*(sys.executable, "-m", "pip", "install"), "--editable", f"{CLONE}[serve]"]


def installed_from(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, direct_url: str | None
) -> list[str]:
    monkeypatch.setattr(extras, "__file__", str(tmp_path / "site-packages" / "inferno" / "x.py"))
    found = SimpleNamespace(read_text=lambda _: direct_url)
    monkeypatch.setattr(Distribution, "from_name", lambda _: found)
    return shlex.split(extras.install_command("otel"))[4:]


def test_what_was_installed_from_a_folder_is_installed_from_there_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    folder = tmp_path / "a clone"
    folder.mkdir()
    (folder / "pyproject.toml").touch()
    url = json.dumps({"url": folder.as_uri(), "dir_info": {}})
    assert installed_from(monkeypatch, tmp_path, url) == [f"{folder}[otel]"]


@pytest.mark.parametrize(
    "direct_url",
    [None, "{}", "not JSON", "[]", '{"url": "file:///nowhere"}', '{"url": "https://a.example/x"}'],
)
def test_otherwise_it_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, direct_url: str | None
) -> None:
    assert installed_from(monkeypatch, tmp_path, direct_url) == ["inferno-engine[otel]"]
