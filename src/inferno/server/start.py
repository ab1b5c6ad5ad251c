"""A server from its options: text here, the engine in a process of its own."""

from __future__ import annotations

import logging
from pathlib import Path

from inferno.client import ServedEngine
from inferno.client.process import ProcessClient
from inferno.client.scripted import ScriptedClient, load_script
from inferno.client.spawned import Spawned
from inferno.client.supervisor import Patience
from inferno.log_format import LogFormat
from inferno.options import EngineOptions
from inferno.server.app import create_app
from inferno.server.edge import serve
from inferno.server.routes import ROUTES
from inferno.server.settings import ServerSettings
from inferno.text.model_text import ModelText

_log = logging.getLogger("inferno.server")


def start(
    options: EngineOptions,
    settings: ServerSettings,
    script: Path | None,
    first: Spawned | None = None,
) -> int:
    """Serve until a signal ends it; returns the exit code.

    script      a file of answers that take the model's place, its text aside.
    first       a process that was started already, to be the first engine's.

    Raises ModelError and what else keeps the engine from loading, InvalidRequest.
    """
    text = ModelText(options.model, needs_tokenizer=options.load_format != "dummy")
    engine = make_engine(options, settings, script, first)
    is_read = settings.log_format == LogFormat.TEXT
    on_ready = _tell_where_the_page_is if is_read else None
    return serve(create_app(engine, text, settings), ROUTES, settings, engine, on_ready)


async def _tell_where_the_page_is(urls: list[str]) -> None:
    """Log an address that a browser takes: one that means all of the machine's is none."""
    url = urls[0].replace("//0.0.0.0:", "//127.0.0.1:").replace("//[::]:", "//[::1]:")
    if not url.startswith("unix:"):
        _log.info("Open %s (Ctrl+C stops the server)", url)


def make_engine(
    options: EngineOptions,
    settings: ServerSettings,
    script: Path | None,
    first: Spawned | None,
) -> ServedEngine:
    """Return an engine in a process of its own, or one that plays this script."""
    if script is not None:
        return ScriptedClient(load_script(script))
    patience = Patience.of(settings.engine_timeout)
    return ProcessClient(options, patience=patience, first=first, log=settings.engine_log)
