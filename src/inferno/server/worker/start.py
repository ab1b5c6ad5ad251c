"""Start a worker from its options."""

from __future__ import annotations

from pathlib import Path

from fastapi import FastAPI

from inferno.client.spawned import Spawned
from inferno.options import EngineOptions
from inferno.server.app import build_app, make_engine
from inferno.server.http import serve
from inferno.server.model_service import ModelService
from inferno.server.routes import WORKER_ROUTES
from inferno.server.settings import ServerSettings
from inferno.server.worker.settings import WorkerSettings
from inferno.server.worker.worker import Worker
from inferno.text.model_text import ModelText


def start_worker(
    options: EngineOptions,
    settings: ServerSettings,
    about: WorkerSettings,
    script: Path | None,
    first: Spawned | None = None,
) -> int:
    """Take jobs until a signal ends the worker; return the exit code.

    script      a file of answers that replace the engine's; tokenizer and chat template are the
                model's own.
    first       a process that is already started, for the first engine.

    Raises InvalidRequest, and DeviceUnavailable or another error that keeps the engine from
    loading.
    """
    text = ModelText(
        options.model,
        needs_tokenizer=options.load_format != "dummy",
        chat_template=options.chat_template,
    )
    engine = make_engine(options, settings, script, first)
    service = ModelService(engine, text, settings)
    worker = Worker(service, about, [route.path for route in WORKER_ROUTES])
    app = create_worker_app(service, worker)
    return serve(app, WORKER_ROUTES, settings, engine, worker.on_ready)


def create_worker_app(service: ModelService, worker: Worker) -> FastAPI:
    """Return a worker's application, to which ServerMiddleware passes requests."""
    app = build_app(service, WORKER_ROUTES)
    app.state.worker = worker
    return app
