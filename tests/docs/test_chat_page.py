"""docs/chat.md names every command and setting of `inferno play`."""

from __future__ import annotations

import re
from types import SimpleNamespace
from typing import Any

from inferno.cli.chat.commands import Commands
from inferno.cli.chat.settings import SETTINGS
from tests.docs.pages import rows, section

PAGE = "docs/chat.md"


def test_it_has_every_command() -> None:
    session: Any = SimpleNamespace(params=None)
    documented = {
        name
        for row in rows(section(PAGE, "## Commands"))
        for name in re.findall(r"`(/\w+)", row[0])
    }
    assert documented == set(Commands(session).names)


def test_it_has_every_setting() -> None:
    after = section(PAGE, "## Commands").partition("The settings are")[2]
    assert set(re.findall(r"`(\w+)`", after)) == set(SETTINGS)
