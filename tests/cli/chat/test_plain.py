"""A conversation that is not drawn: an answer's letters, and nothing that steers a terminal."""

from __future__ import annotations

import io
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from inferno import SamplingParams
from inferno.cli import terminal
from inferno.cli.chat.plain import converse
from inferno.cli.chat.session import Turn
from inferno.text.completion import Chunk
from inferno.text.parsers.parser import Part, Piece

SAID = "a\x1b[2J\x9b1m\tb 👩\u200d👧\x07"


def speaker() -> Any:
    """A session whose model always says the same."""

    def ask(question: str) -> Iterator[Chunk]:
        yield Chunk(0, (Piece(Part.CONTENT, SAID),), ())

    turns = [Turn("hello")]
    return SimpleNamespace(params=SamplingParams(), turns=turns, num_trimmed=0, ask=ask)


@pytest.mark.parametrize(
    ("is_read", "shown"),
    [(True, "a\ufffd[2J\ufffd1m\tb 👩\u200d👧\ufffd\n"), (False, SAID + "\n")],
)
def test_a_model_steers_no_terminal(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    is_read: bool,
    shown: str,
) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"hello\n")))
    monkeypatch.setattr(terminal, "is_terminal", lambda: is_read)
    assert converse(speaker())
    assert capsys.readouterr().out == shown
