"""Hold the model behind the routes, and what a call needs of the model."""

from __future__ import annotations

import asyncio
import itertools
import secrets
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from starlette.requests import Request as HttpRequest

from inferno.client import EngineFacts, ServedEngine
from inferno.server.http import DeadlineExceeded, RequestContext, Unavailable, unknown_model
from inferno.server.settings import ServerSettings
from inferno.text.model_text import ModelText

T = TypeVar("T")

# Tokenizers work outside the interpreter. Long texts have threads of their own, so that short ones
# don't wait for them; and so have bodies and token ids, which need no tokenizer.
_NUM_THREADS = 2  # of each kind
_SHORT_CHARS = 1 << 16


class ModelService:
    """The served model: its engine, its text and its names; answers carry the first name."""

    def __init__(self, engine: ServedEngine, text: ModelText, settings: ServerSettings) -> None:
        self.engine = engine
        self.text = text
        self.settings = settings
        self.names = settings.served_model_names
        self.created = int(time.time())
        self._numbers = itertools.count()
        self._start = secrets.token_hex(4)
        self._short_texts, self._long_texts, self._bodies = (
            ThreadPoolExecutor(_NUM_THREADS, thread_name_prefix=f"inferno-{kind}")
            for kind in ("short-texts", "long-texts", "bodies")
        )

    @property
    def facts(self) -> EngineFacts:
        """Return the facts of the loaded engine; raise Unavailable before it is loaded."""
        if (facts := self.engine.facts) is None:
            message = "The model is still being loaded; try again soon."
            raise Unavailable("loading", message, retry_after=5)
        return facts

    @property
    def fingerprint(self) -> str:
        """Return the fingerprint, which changes with the weights and with inferno's version."""
        return "fp_" + self.facts.fingerprint[:16]

    def check_model(self, name: str | None) -> None:
        """Raise ApiError (404) where a request names a model that isn't served here."""
        if name is not None and name not in self.names:
            raise unknown_model(name, self.names[0])

    def engine_id(self, request_id: str, index: int) -> str:
        """Return an id for the engine that no other request has, whatever ids clients choose."""
        return f"{request_id}-{self._start}-{next(self._numbers)}-{index}"

    async def on_text(self, num_chars: int, work: Callable[[], T]) -> T:
        """Run work in a thread, as long as for a text of num_chars characters."""
        threads = self._short_texts if num_chars <= _SHORT_CHARS else self._long_texts
        return await asyncio.get_running_loop().run_in_executor(threads, work)

    async def on_body(self, work: Callable[[], T]) -> T:
        """Do work on a large body in a thread of its own, apart from texts."""
        return await asyncio.get_running_loop().run_in_executor(self._bodies, work)

    async def in_time(
        self, work: Awaitable[T], context: RequestContext, timeout: float | None = None
    ) -> T:
        """Return the work's result; raise DeadlineExceeded when the request's time is over.

        timeout     the request's own timeout; it can only shorten the server's.
        """
        most = self.settings.request_timeout
        seconds = most if timeout is None else min(timeout, most)
        try:
            async with asyncio.timeout(context.left(seconds)) as limit:
                return await work
        except TimeoutError:
            if not limit.expired():
                raise
        raise DeadlineExceeded(seconds)

    def close(self) -> None:
        """Let go of threads and of the template's processes."""
        for threads in (self._short_texts, self._long_texts, self._bodies):
            threads.shutdown(wait=False, cancel_futures=True)
        self.text.close()


def service_of(request: HttpRequest) -> ModelService:
    """Return the served model of the application that a request came to."""
    service = request.app.state.service
    assert isinstance(service, ModelService)
    return service
