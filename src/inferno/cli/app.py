"""The table of commands."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

import typer

from inferno import __version__
from inferno.cli import bench
from inferno.cli.convert import convert
from inferno.cli.doctor import doctor
from inferno.cli.download import download
from inferno.cli.generate import generate
from inferno.cli.models import list_models, prune, rm, show
from inferno.cli.numbers import reads_numbers
from inferno.cli.options import GroupedCommand
from inferno.cli.plan import plan
from inferno.cli.play import play
from inferno.cli.serve import serve
from inferno.cli.verify import verify
from inferno.cli.worker import worker

app = typer.Typer(
    name="inferno",
    help="Run large language models: on a laptop's CPU or a data-centre GPU, from one package.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
_COMMANDS: dict[str, Callable[..., None]] = {
    "generate": generate,
    "plan": plan,
    "play": play,
    "serve": serve,
    "worker": worker,
    "doctor": doctor,
    "verify": verify,
    "download": download,
    "convert": convert,
    "list": list_models,
    "show": show,
    "rm": rm,
    "prune": prune,
}
for _name, _command in _COMMANDS.items():
    app.command(_name, cls=GroupedCommand)(reads_numbers(_command))
app.add_typer(bench.app)


def _show_version(is_asked: bool) -> None:
    if is_asked:
        typer.echo(f"inferno {__version__}")
        raise typer.Exit


@app.callback()
def inferno(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version."),
    ] = False,
) -> None:
    """Run large language models: on a laptop's CPU or a data-centre GPU, from one package."""
