"""Commands in a text, and whether inferno's own command line would take them.

A text may name a command ("what inferno doctor says") or show one whole, at its end after a colon:
"type: inferno play demo". Options and routes may stand anywhere. In what the model is taught,
"inferno" in small letters before a word always begins a command.
"""

from __future__ import annotations

import re
import shlex
from functools import cache
from typing import Any

from demo_reference import command_line, command_names, slash_commands
from typer.core import TyperGroup

from inferno.server.routes import ROUTES, WORKER_ROUTES

_WHOLE = re.compile(r": (inferno .+)$")
_NAMED = re.compile(r"(?<!from )\binferno ([a-z]+)(?: ([a-z]+))?")
_OPTION = re.compile(r"(?<![\w-])--[a-z][a-z-]*")
_ROUTE = re.compile(r"\b(?:GET|POST) (/[\w/.]*)")
_SLASH = re.compile(r"(?:^|[ (])(/[a-z][\w./]*\w)")


def problems(text: str) -> list[str]:
    """What in a text does not exist: commands, options, routes, commands of a chat."""
    found = [_problem(whole[1]) for whole in _WHOLE.finditer(text)]
    known = {name.split()[0] for name in command_names()}
    found += [f"no command {name}" for name, _ in _NAMED.findall(text) if name not in known]
    found += [f"no option {flag}" for flag in _OPTION.findall(text) if flag not in _flags()]
    paths = {route.path for route in (*ROUTES, *WORKER_ROUTES)}
    found += [f"no route {path}" for path in _ROUTE.findall(text) if path not in paths]
    slashes = {*slash_commands(), *paths, "/v1"}
    found += [f"no command {name}" for name in _SLASH.findall(text) if name not in slashes]
    return [each for each in found if each]


def commands_in(text: str) -> list[str]:
    """The commands that a text shows whole or names."""
    return [whole[1] for whole in _WHOLE.finditer(text)] or [
        " ".join(filter(None, names)) for names in _NAMED.findall(text)
    ]


def _problem(line: str) -> str:
    """Why the command line would refuse this line, or nothing."""
    try:
        _, *words = shlex.split(line)
    except ValueError as error:
        return f"{line!r}: {error}"
    command: Any = command_line()
    while isinstance(command, TyperGroup) and words and not words[0].startswith("-"):
        name, *words = words
        if name not in command.commands:
            return f"{line!r}: no command {name}"
        command = command.commands[name]
    if any(word in ("--help", "--version", "--install-completion") for word in words):
        words = [word for word in words if word.split("=")[0] not in _flags()]
        return f"{line!r}: {words} is too much" if words else ""
    try:
        command.make_context(command.name, words).close()
    except Exception as error:  # whatever the parser raises is the answer here
        return f"{line!r}: {error}"
    return ""


@cache
def _flags() -> frozenset[str]:
    """Every spelling of every option of every command."""
    commands = [command_line(), *command_names().values()]
    spelled = {opt for each in commands for param in each.params for opt in param.opts}
    return frozenset({*spelled, "--help", "--version"})
