"""Which model is taken where none was named."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import typer

from inferno.cli.chat import start
from inferno.cli.chat.start import choose_model
from inferno.demo import MODEL_FOLDERS
from inferno.hub.local import LocalModel

DEMO = LocalModel("demo", MODEL_FOLDERS["demo"], 1000, "LlamaForCausalLM")
OTHER = LocalModel("me/other", MODEL_FOLDERS["demo"], 2000, "LlamaForCausalLM")
ODD = LocalModel("me/odd", Path("/nowhere"), 3000, "NopeForCausalLM")


def machine_has(monkeypatch: pytest.MonkeyPatch, *models: LocalModel) -> None:
    monkeypatch.setattr(start, "local_models", lambda: [*models])


def person_types(monkeypatch: pytest.MonkeyPatch, *answers: str) -> None:
    typed: Iterator[str] = iter(answers)

    def read(_: str) -> str:
        try:
            return next(typed)
        except StopIteration:
            raise EOFError from None

    monkeypatch.setattr("builtins.input", read)


def test_where_there_is_no_choice_none_is_asked(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    machine_has(monkeypatch, DEMO, ODD)
    assert choose_model(may_ask=True) == ("demo", None)
    assert "demo is the only model" in capsys.readouterr().err


def test_a_script_gets_demo_and_is_told(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    machine_has(monkeypatch, DEMO, OTHER)
    assert choose_model(may_ask=False)[0] == "demo"
    assert "demo" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("answers", "name"),
    [
        (["2"], "me/other"),
        ([""], "demo"),
        ([" me/other "], "me/other"),
        (["0", "3", "me/odd", "two", "1"], "demo"),
    ],
)
def test_a_number_or_a_name_is_chosen(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    answers: list[str],
    name: str,
) -> None:
    machine_has(monkeypatch, DEMO, OTHER, ODD)
    person_types(monkeypatch, *answers)
    assert choose_model(may_ask=True)[0] == name
    shown = capsys.readouterr().out
    assert "1 demo 1 kB embedded: stories" in " ".join(shown.split())
    assert "  2  me/other" in shown
    assert "1 more on this machine" in shown
    assert shown.count("give a number from 1 to 2") == len(answers) - 1


def test_ctrl_d_leaves(monkeypatch: pytest.MonkeyPatch) -> None:
    machine_has(monkeypatch, DEMO, OTHER)
    person_types(monkeypatch)
    with pytest.raises(typer.Exit):
        choose_model(may_ask=True)
