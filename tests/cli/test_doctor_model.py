"""`inferno doctor MODEL` as a person or a script would use it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from inferno.cli import doctor_model, terminal
from inferno.cli.app import app
from inferno.demo import MODEL_FOLDERS
from inferno.lint.checks import CHECKS, Finding
from tests.gguf.convert import write_gguf
from tests.tiny import edit_config, save_tiny, save_tiny_model


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["doctor", *arguments])


def test_the_embedded_model_has_nothing_but_notes() -> None:
    result = run("demo")
    assert result.exit_code == 0
    assert result.stderr == ""
    first, *_, last = result.stdout.splitlines()
    assert first.startswith("demo: LlamaForCausalLM, ")
    assert last == f"{len(CHECKS)} checks: 2 note"
    assert max(map(len, result.stdout.splitlines())) <= 80


def test_json_is_one_object_of_findings(tmp_path: Path) -> None:
    save_tiny_model(tmp_path)
    result = run(str(tmp_path), "--json")
    assert result.exit_code == 0
    found = json.loads(result.stdout)
    assert found.keys() == {"model", "path", "num_checks", "findings"}
    assert {one["check"] for one in found["findings"]} == {"no BOS", "tools are lost"}
    assert all(one.keys() == {"check", "level", "what", "why", "cure"} for one in found["findings"])


@pytest.mark.parametrize(("is_read", "shown"), [(True, "\ufffd[2J"), (False, "\x1b[2J")])
def test_what_a_template_says_steers_no_terminal(
    monkeypatch: pytest.MonkeyPatch, is_read: bool, shown: str
) -> None:
    found = [Finding("tools are refused", "I say \x1b[2J")]
    monkeypatch.setattr(doctor_model, "lint_model", lambda *_, **__: found)
    monkeypatch.setattr(doctor_model, "_refusal", lambda _: None)
    monkeypatch.setattr(terminal, "is_terminal", lambda: is_read)
    assert f"tools are refused: I say {shown}\n" in run("demo").stdout


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        ({"brand_new_key": 1}, "brand_new_key"),
        ({"num_hidden_layers": 9}, "model.layers.3."),
        ({"dtype": "int3"}, "'int3'"),
    ],
)
def test_what_the_engine_refuses_is_fatal(
    damage: dict[str, object], said: str, tmp_path: Path
) -> None:
    save_tiny_model(tmp_path)
    edit_config(tmp_path, **damage)
    result = run(str(tmp_path))
    assert result.exit_code == 1
    assert "FATAL, model:" in result.stdout
    assert said in result.stdout


def test_a_gguf_file_and_another_template_are_looked_at(tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "m.gguf", save_tiny(tmp_path / "hf", "llama"))
    assert run(str(path)).exit_code == 0
    template = tmp_path / "t.jinja"
    template.write_text("{% for")
    result = run(str(path), "--chat-template", str(template))
    assert result.exit_code == 1
    assert "FATAL, template:" in result.stdout


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["Some-Body/absent-model"], 1, "is not on this machine"),
        (["no such folder"], 1, "there is no folder"),
        (["demo", "--chat-template", "no such file"], 2, "is no file; give a Jinja file"),
        (["--chat-template", "x.jinja"], 2, "go with a MODEL"),
        (["--revision", "main"], 2, "go with a MODEL"),
    ],
)
def test_a_mistake_on_the_command_line_is_told(arguments: list[str], code: int, said: str) -> None:
    result = run(*arguments)
    assert result.exit_code == code
    assert said in " ".join(result.stderr.split())


def test_it_brings_no_torch() -> None:
    program = (
        "import sys; from pathlib import Path; from inferno.cli import doctor_model\n"
        f"doctor_model.lint_model(Path({str(MODEL_FOLDERS['demo'])!r}))\n"
        "sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
