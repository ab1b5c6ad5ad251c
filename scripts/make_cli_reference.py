"""Write docs/cli.md, the reference of the command line, from the commands' own signatures.

python scripts/make_cli_reference.py
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from enum import Enum, EnumMeta
from pathlib import Path
from types import UnionType
from typing import Any, get_args, get_origin

from typer import Typer
from typer.models import ArgumentInfo, OptionInfo
from typer.utils import get_params_from_function

from inferno.cli.app import app

DOCUMENT = Path(__file__).resolve().parents[1] / "docs" / "cli.md"
_HEAD = """# The command line

<!-- Written by scripts/make_cli_reference.py: change the commands, not this file. -->

`python -m inferno` is the same program as `inferno`. What a command makes goes to standard output,
all else to standard error. The exit code is 0, or 1 after an error, which is one line, or 2 after
a wrong option, with what was given and what was expected. Where a table names no default, the
option is off or the model decides.

[Getting started](getting-started.md) shows the commands at work and sets up shell completion,
[Troubleshooting](troubleshooting.md) explains the errors.
"""
_BUILT_IN = (
    ("`--install-completion`", "", "off", "Install completion for the current shell."),
    ("`--show-completion`", "", "off", "Print the current shell's completion script."),
    ("`--help`, `-h`", "", "off", "Show the help; each command has it."),
)
_KINDS = {bool: "", int: "integer", float: "number", str: "text", Path: "path"}
_Row = tuple[str, str, str, str]


def main() -> None:
    DOCUMENT.write_text(make_reference())


def make_reference() -> str:
    """The whole document."""
    assert app.registered_callback is not None
    general = app.registered_callback.callback
    assert general is not None
    sections = [_HEAD, "## inferno\n", f"{_first_line(general)}\n"]
    sections += [_table([*_rows(general, OptionInfo), *_BUILT_IN])]
    for name, function in _commands(app):
        sections += list(_command(name, function))
    return "\n".join(sections)


def _commands(commands: Typer) -> Iterator[tuple[str, Callable[..., Any]]]:
    """Each command by what is typed to run it, those of groups after the plain ones."""
    for command in commands.registered_commands:
        assert command.callback is not None
        yield command.name or command.callback.__name__.replace("_", "-"), command.callback
    for group in commands.registered_groups:
        assert group.typer_instance is not None
        group_name = group.typer_instance.info.name
        for name, function in _commands(group.typer_instance):
            yield f"{group_name} {name}", function


def _command(name: str, function: Callable[..., Any]) -> Iterator[str]:
    yield f"## inferno {name}\n"
    yield inspect.cleandoc(function.__doc__ or "") + "\n"
    if arguments := list(_rows(function, ArgumentInfo)):
        yield _table(arguments, heading="Argument")
    yield _table(list(_rows(function, OptionInfo)))


def _rows(
    function: Callable[..., Any], kind: type[OptionInfo] | type[ArgumentInfo]
) -> Iterator[_Row]:
    for name, parameter in get_params_from_function(function).items():
        info = parameter.default
        if isinstance(info, kind) and not info.hidden:
            auto = "`auto`, " if (info.metavar or "").startswith("auto|") else ""
            value = auto + _value(parameter.annotation, info.metavar or "") + _range(info)
            yield _spelling(name, info), value, _default(info), _help(info)


def _spelling(name: str, info: OptionInfo | ArgumentInfo) -> str:
    if isinstance(info, ArgumentInfo):
        return f"`{info.metavar or name.upper()}`"
    return ", ".join(f"`{one}`" for one in info.param_decls or [f"--{name.replace('_', '-')}"])


def _value(annotation: Any, metavar: str = "") -> str:
    """What is given with the option, in words."""
    if metavar.startswith("["):  # choices, but for former names
        return ", ".join(f"`{choice}`" for choice in metavar.strip("[]").split("|"))
    if isinstance(annotation, UnionType):  # optional
        [annotation] = [one for one in get_args(annotation) if one is not type(None)]
    if get_origin(annotation) is list:
        return f"{_value(get_args(annotation)[0])}, may be repeated"
    if isinstance(annotation, EnumMeta):
        choices: list[Enum] = list(annotation)
        return ", ".join(f"`{choice.value}`" for choice in choices)
    return _KINDS[annotation]


def _range(info: OptionInfo | ArgumentInfo) -> str:
    return "" if info.min is None else f", {info.min:.15g} to {info.max:.15g}"


def _default(info: OptionInfo | ArgumentInfo) -> str:
    if isinstance(info.show_default, str):
        return info.show_default
    if info.default is False:
        return "off"
    return "" if info.default in (None, ...) else f"`{info.default}`"


def _help(info: OptionInfo | ArgumentInfo) -> str:
    assert info.help, "an option without help"
    return info.help


def _first_line(function: Callable[..., Any]) -> str:
    return inspect.cleandoc(function.__doc__ or "").partition("\n")[0]


def _table(rows: list[_Row], heading: str = "Option") -> str:
    lines = [f"| {heading} | Value | Default | Meaning |", "|---|---|---|---|"]
    lines += ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
