"""What is being done, on a terminal's standard error: in letters, whatever a name holds."""

from __future__ import annotations

import pytest

from inferno.cli import terminal
from inferno.cli.terminal import telling


def test_a_name_may_look_like_markup(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(terminal, "can_redraw", lambda _: True)
    with telling() as tell:
        tell("looking for [/x] and \x1b[2J[bold]")
    assert "\x1b[2J" not in capsys.readouterr().err


def test_nothing_is_told_where_nobody_looks_on(capsys: pytest.CaptureFixture[str]) -> None:
    with telling() as tell:
        tell("looking for demo")
    assert capsys.readouterr().err == ""
