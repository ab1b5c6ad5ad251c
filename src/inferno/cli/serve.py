"""`inferno serve`: a model behind an OpenAI-compatible HTTP server.

Its options and their defaults are the tables EngineOptions and ServerOptions in options.py.
"""

from __future__ import annotations

import os
from contextlib import nullcontext
from typing import Annotated, Any

import typer

from inferno.cli.download import fetch_draft_if_absent, fetch_if_absent
from inferno.cli.errors import one_line_errors
from inferno.cli.model_options import MODEL_HELP, Debug, Revision, Yes
from inferno.cli.options import options_of, takes_options
from inferno.cli.server_options import ApiKeyFile, ApiKeys, FakeModel, model_name
from inferno.client.spawned import spawned
from inferno.hub.find import find_model_folder
from inferno.log_format import usual_format
from inferno.options import EngineOptions, ServerOptions


@takes_options(ServerOptions)
@takes_options(EngineOptions)
def serve(
    model: Annotated[str, typer.Argument(help=MODEL_HELP)],
    api_key: ApiKeys = None,
    api_key_file: ApiKeyFile = None,
    revision: Revision = None,
    yes: Yes = False,
    fake_model: FakeModel = None,
    debug: Debug = False,
    **given: Any,
) -> None:
    """Serve a model over HTTP, as OpenAI's API does."""
    with one_line_errors(debug=debug):
        # Imported now: together they take longer than `inferno --help` may.
        from inferno.server.api_keys import read_keys  # noqa: PLC0415
        from inferno.server.settings import ServerSettings  # noqa: PLC0415

        asked = {
            "served_model_names": (model_name(model),),
            "log_format": usual_format(),
            **options_of(ServerOptions, given),
        }
        settings = ServerSettings(
            api_keys=read_keys(api_key or (), api_key_file, os.environ), **asked
        )
        asked_engine = options_of(EngineOptions, given)
        fetch_if_absent(model, revision, yes=yes, options=asked_engine)
        fetch_draft_if_absent(given, yes=yes)
        options = EngineOptions(model=find_model_folder(model, revision), **asked_engine)
        with spawned(settings.engine_log) if fake_model is None else nullcontext() as first:
            # Half a second of imports, while the engine's process has its own to do.
            from inferno.server.app import start  # noqa: PLC0415

            code = start(options, settings, fake_model, first)
    raise typer.Exit(code)
