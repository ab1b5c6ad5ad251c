"""List the commands, and build the application of one or all."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from importlib import import_module
from typing import Annotated, Any

import typer

from inferno import __version__
from inferno.cli.numbers import reads_numbers
from inferno.cli.options import GroupedCommand

# Where each command is, in this folder: MODULE:FUNCTION. A group of commands is a Typer.
_COMMANDS = {
    "generate": "generate:generate",
    "plan": "plan:plan",
    "play": "play:play",
    "serve": "serve:serve",
    "worker": "worker:worker",
    "warmup": "warmup:warmup",
    "doctor": "doctor:doctor",
    "verify": "verify:verify",
    "download": "download:download",
    "convert": "convert:convert",
    "list": "models:list_models",
    "show": "models:show",
    "rm": "models:rm",
    "prune": "models:prune",
    "bench": "bench:app",
}


def app_for(arguments: Sequence[str]) -> typer.Typer:
    """Return the application for a command line's arguments.

    It has only the command that the arguments begin with, which takes half the time; all commands
    if they begin with something else.
    """
    return _app([name for name in arguments[:1] if name in _COMMANDS] or _COMMANDS)


def __getattr__(name: str) -> Any:
    """Return `app`, which has all commands, made when it is first asked for."""
    if name != "app":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = app = _app(_COMMANDS)
    return app


def _app(names: Iterable[str]) -> typer.Typer:
    app = typer.Typer(
        name="inferno",
        help="Run large language models: on a laptop's CPU or a data-centre GPU, from one package.",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(inferno)
    for name in names:
        module, _, attribute = _COMMANDS[name].partition(":")
        command = getattr(import_module(f"inferno.cli.{module}"), attribute)
        if isinstance(command, typer.Typer):
            app.add_typer(command)
        else:
            app.command(name, cls=GroupedCommand)(reads_numbers(command))
    return app


def _show_version(is_asked: bool) -> None:
    if is_asked:
        typer.echo(f"inferno {__version__}")
        raise typer.Exit


def inferno(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version."),
    ] = False,
) -> None:
    """Run large language models: on a laptop's CPU or a data-centre GPU, from one package."""
