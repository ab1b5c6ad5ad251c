"""Which model is taken where none was named."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from inferno.cli.app import app
from inferno.cli.chat import start
from inferno.cli.chat.start import choose_model
from inferno.demo import MODEL_FOLDERS
from inferno.hub.local import LocalModel
from inferno.machine import readable_size
from tests.tiny import save_tiny_model

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


def test_ctrl_d_leaves_and_ends_the_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    machine_has(monkeypatch, DEMO, OTHER)
    person_types(monkeypatch)
    with pytest.raises(typer.Exit):
        choose_model(may_ask=True)
    assert capsys.readouterr().out.endswith("\n\n")


def test_models_that_can_not_chat_are_not_offered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    save_tiny_model(tmp_path)
    path = tmp_path / "tokenizer_config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "chat_template": None}))
    mute = LocalModel("me/mute", tmp_path, 2000, "LlamaForCausalLM")
    machine_has(monkeypatch, DEMO, OTHER, mute)
    person_types(monkeypatch, "me/other")
    assert choose_model(may_ask=True)[0] == "me/other"
    shown = capsys.readouterr().out
    assert "me/mute" not in shown
    assert "(1 more on this machine: no chat template)" in shown
    person_types(monkeypatch, "me/mute")  # a template is given on the command line
    assert choose_model(may_ask=True, needs_template=False)[0] == "me/mute"
    assert "no chat template" not in capsys.readouterr().out


def test_a_model_has_the_size_that_list_shows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("INFERNO_HOME", str(tmp_path / "home"))
    monkeypatch.setattr("inferno.hub.local._cached", lambda: iter(()))
    save_tiny_model(tmp_path / "tiny")
    assert CliRunner().invoke(app, ["download", str(tmp_path / "tiny")]).exit_code == 0
    rows = json.loads(CliRunner().invoke(app, ["list", "--json"]).stdout)["models"]
    [size] = [row["size_bytes"] for row in rows if row["name"] == "local/tiny"]
    assert size > (tmp_path / "tiny" / "model.safetensors").stat().st_size
    person_types(monkeypatch, "local/tiny")
    assert choose_model(may_ask=True)[0] == "local/tiny"
    [line] = [one for one in capsys.readouterr().out.splitlines() if "local/tiny" in one]
    assert readable_size(size) in line
