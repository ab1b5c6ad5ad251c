"""docs/cli.md is what the commands say of themselves."""

from __future__ import annotations

import re
import runpy

import pytest
from typer.testing import CliRunner

from inferno.cli.app import app
from tests.docs.pages import PAGES, ROOT, rows, section

COMMANDS = re.findall(r"^## inferno (\w+(?: \w+)?)$", PAGES["docs/cli.md"], re.MULTILINE)


def test_it_is_up_to_date() -> None:
    made = runpy.run_path(str(ROOT / "scripts" / "make_cli_reference.py"))["make_reference"]()
    assert PAGES["docs/cli.md"] == made, "run scripts/make_cli_reference.py"


@pytest.mark.parametrize("command", ["", *COMMANDS])
def test_it_has_the_options_that_help_shows(command: str) -> None:
    shown = CliRunner().invoke(app, [*command.split(), "--help"], terminal_width=200).stdout
    text = section("docs/cli.md", f"## inferno {command}".strip())
    options = {word for row in rows(text) for word in re.findall(r"`(-[\w-]+)`", row[0])}
    in_help = re.findall(r"^  +(-[\w-]+(?:, -[\w-]+)*)", shown, re.MULTILINE)
    named = {word for found in in_help for word in found.split(", ")}
    assert options | {"--help", "-h"} == named


def commands_in_help(*words: str) -> list[str]:
    shown = CliRunner().invoke(app, [*words, "--help"]).stdout
    return re.findall(r"^  (\w+) ", shown.partition("Commands:")[2], re.MULTILINE)


def test_it_has_every_command() -> None:
    names = commands_in_help()
    groups = {name: commands_in_help(name) for name in names}
    listed = [
        whole for name in names for whole in ([f"{name} {one}" for one in groups[name]] or [name])
    ]
    assert sorted(COMMANDS) == sorted(listed)
