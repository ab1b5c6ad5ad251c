"""The whole server in a thread, on a free port: the real routes before any engine."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import httpx
import uvloop
from openai import OpenAI

from inferno.client import ServedEngine
from inferno.demo import MODEL_FOLDERS
from inferno.server.app import create_app
from inferno.server.http.run import ShutdownRequests, run
from inferno.server.http.sockets import listening
from inferno.server.routes import ROUTES
from inferno.server.settings import ServerSettings
from inferno.text.model_text import ModelText
from tests.patience import PATIENCE
from tests.server.http.serving import wait_until


@dataclass(frozen=True)
class Host:
    """A server under test, and clients for it."""

    engine: ServedEngine
    text: ModelText
    http: httpx.Client
    openai: OpenAI

    def chat(self, content: str = "Hello", /, **fields: Any) -> httpx.Response:
        messages = [{"role": "user", "content": content}]
        return self.http.post("/v1/chat/completions", json={"messages": messages, **fields})

    def complete(self, **fields: Any) -> httpx.Response:
        return self.http.post("/v1/completions", json=fields)


@contextlib.contextmanager
def hosting(
    make_engine: Callable[[], ServedEngine], text: ModelText | None = None, /, **settings: Any
) -> Iterator[Host]:
    """A server, ready; it is stopped in the end, at once."""
    wanted = ServerSettings(port=0, served_model_names=("demo",), log_level="error", **settings)
    text = text or ModelText(MODEL_FOLDERS["demo"])
    shutdown = ShutdownRequests()
    engines: list[ServedEngine] = []

    with listening(wanted) as sockets:
        url = f"http://127.0.0.1:{sockets[0].getsockname()[1]}"

        async def serve() -> None:
            engines.append(make_engine())
            app = create_app(engines[0], text, wanted)
            await run(app, ROUTES, wanted, engines[0], sockets, shutdown)

        def in_thread() -> None:
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                runner.run(serve())

        thread = threading.Thread(target=in_thread)
        thread.start()
        try:
            with httpx.Client(base_url=url, timeout=PATIENCE) as http:
                wait_until(lambda: http.get("/ready").status_code == 200)
                openai = OpenAI(
                    base_url=url + "/v1", api_key="none", max_retries=0, timeout=PATIENCE
                )
                yield Host(engines[0], text, http, openai)
        finally:
            shutdown.add()
            shutdown.add()
            thread.join(PATIENCE)
            assert not thread.is_alive(), "the server didn't stop"
