"""What README.md tells a reader to run does run."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner

from inferno.cli.app import app

README = (Path(__file__).resolve().parents[1] / "README.md").read_text()
COMMANDS = re.findall(r"^inferno (generate .+)$", README, re.MULTILINE)
PROGRAMS = re.findall(r"```python\n(.*?)```", README, re.DOTALL)


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_of_the_readme_works(command: str) -> None:
    result = CliRunner().invoke(app, shlex.split(command))
    assert result.exit_code == 0, result.stderr
    assert result.stdout.strip()


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_program_of_the_readme_works(program: str, capsys: pytest.CaptureFixture[str]) -> None:
    exec(compile(program, "README.md", "exec"), {})
    assert capsys.readouterr().out.strip()


def test_the_readme_names_the_two_commands() -> None:
    assert len(COMMANDS) >= 4
    assert len(PROGRAMS) == 1
    assert {"make demo", "make test"} <= set(re.findall(r"^make \w+", README, re.MULTILINE))
