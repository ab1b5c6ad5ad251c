"""`inferno worker`: a model behind a fleet's jobs, and the three commands bound to a device."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import nullcontext
from typing import Annotated, Any

import typer
from typer.main import get_command

from inferno.cli.errors import one_line_errors, say
from inferno.cli.model_options import MODEL_HELP, Debug, Revision
from inferno.cli.numbers import reads_numbers
from inferno.cli.options import GroupedCommand, options_of, takes_options
from inferno.cli.server_options import ApiKeyFile, ApiKeys, FakeModel, model_name
from inferno.client.spawned import spawned
from inferno.errors import DeviceUnavailable
from inferno.hub.find import find_model_folder
from inferno.log_format import usual_format
from inferno.options import EngineOptions, ServerOptions, WorkerOptions

# A worker has no page that others' pages could read, and a fleet's router gives it a port.
_NOT_A_WORKERS = ("port", "uds", "cors_origins", "per_request_metrics")


@takes_options(ServerOptions, without=_NOT_A_WORKERS)
@takes_options(EngineOptions, without=("device",))
@takes_options(WorkerOptions)
def worker(
    model: Annotated[
        str,
        typer.Option("--model", "-m", help=MODEL_HELP),
    ],
    port: Annotated[int, typer.Option(help="Port to listen on; 0 takes a free one.")],
    api_key: ApiKeys = None,
    api_key_file: ApiKeyFile = None,
    revision: Revision = None,
    fake_model: FakeModel = None,
    debug: Debug = False,
    **given: Any,
) -> None:
    """Run a model as a worker of a fleet: it says when it is ready, and streams jobs' events."""
    with one_line_errors(debug=debug):
        # Imported now: together they take longer than `inferno --help` may.
        from inferno.server.api_keys import read_keys  # noqa: PLC0415
        from inferno.server.settings import ServerSettings  # noqa: PLC0415
        from inferno.server.worker.settings import worker_settings  # noqa: PLC0415

        asked = {
            "served_model_names": (model_name(model),),
            "log_format": usual_format(),
            **options_of(ServerOptions, given),
        }
        settings = ServerSettings(
            port=port, api_keys=read_keys(api_key or (), api_key_file, os.environ), **asked
        )
        about = worker_settings(settings, WorkerOptions(**options_of(WorkerOptions, given)))
        options = EngineOptions(
            model=find_model_folder(model, revision),
            **{**options_of(EngineOptions, given), "device": about.engine_device},
        )
        with spawned(settings.engine_log) if fake_model is None else nullcontext() as first:
            # Half a second of imports, while the engine's process has its own to do.
            from inferno.server.worker.start import start_worker  # noqa: PLC0415

            try:
                code = start_worker(options, settings, about, fake_model, first)
            except DeviceUnavailable as problem:
                if not str(problem).endswith("use --device cpu."):
                    raise
                raise DeviceUnavailable(f"{problem} That is `inferno-worker-cpu`.") from None
    raise typer.Exit(code)


def run_bound(kind: str, arguments: list[str]) -> None:
    """Run `inferno worker` with its kind of device given, as the command that is named for it.

    Of that kind a number may be named, as in --device cuda:1.
    """
    given = list(_devices(arguments))
    if any(device.partition(":")[0] != kind for device in given):
        say(
            f"error: inferno-worker-{kind} has its device; leave --device {given[-1]} out"
            + (", or name a number, such as --device cuda:1" if kind == "cuda" else "")
        )
        sys.exit(2)
    app = typer.Typer(pretty_exceptions_enable=False, add_completion=False, rich_markup_mode=None)
    settings = {"help_option_names": ["-h", "--help"]}
    app.command(cls=GroupedCommand, context_settings=settings)(reads_numbers(worker))
    command = get_command(app)
    command.main(["--device", kind, *arguments], prog_name=f"inferno-worker-{kind}")


def _devices(arguments: list[str]) -> Iterator[str]:
    """Yield what follows --device on a command line."""
    for place, argument in enumerate(arguments):
        name, equals, value = argument.partition("=")
        if name == "--device":
            yield value if equals else "".join(arguments[place + 1 : place + 2])
