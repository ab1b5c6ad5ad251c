"""What the routes of a worker share, and what is done once it is ready."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

import msgspec
from starlette.requests import Request as HttpRequest

from inferno.client import EngineStats
from inferno.server.edge import Record
from inferno.server.served import Served
from inferno.server.worker.callback import deliver
from inferno.server.worker.ready import ready_message
from inferno.server.worker.residency import Residency
from inferno.server.worker.settings import WorkerSettings
from inferno.server.worker.under_way import JobsUnderWay, JobUnderWay

_FIRST_STATS_SECONDS = 3.0  # an engine that is loaded tells of its memory sooner
_POLL_SECONDS = 0.02


class Worker:
    """The owner of the jobs under way and of the account of memory.

    paths           of its routes, which it tells the fleet.
    """

    def __init__(self, served: Served, settings: WorkerSettings, paths: Sequence[str]) -> None:
        self._served = served
        self._settings = settings
        self._paths = paths
        self._jobs = JobsUnderWay()
        self._residency: Residency | None = None

    async def on_ready(self, urls: list[str]) -> None:
        """Tell the log what was loaded, and the fleet that jobs are taken at the first URL."""
        stats = await self._first_stats()
        self._residency = Residency(stats)
        message = ready_message(self._served, stats, self._settings, self._paths, urls[0])
        await deliver(self._settings.callback, msgspec.json.encode(message))

    def begin(self, job_id: str, record: Record) -> JobUnderWay:
        """A new job; Refusal (409) where one of that id is under way."""
        job = self._jobs.begin(job_id, record)
        record.on_end(lambda: self._note(job_id, record))
        return job

    def cancel(self, job_id: str) -> None:
        """End that job; Refusal (404) where there is none."""
        self._jobs.cancel(job_id)

    async def _first_stats(self) -> EngineStats:
        until = time.monotonic() + _FIRST_STATS_SECONDS
        while not (stats := self._served.engine.stats()).device_bytes:
            if time.monotonic() > until:
                break
            await asyncio.sleep(_POLL_SECONDS)
        return stats

    def _note(self, job_id: str, record: Record) -> None:
        if self._residency is not None:
            self._residency.note(
                self._served.engine.stats(),
                job_id=job_id,
                request_id=record.request_id,
                finish_reasons=record.finish_reasons,
            )


def worker_of(request: HttpRequest) -> Worker:
    """The worker that this request came to."""
    worker = request.app.state.worker
    assert isinstance(worker, Worker)
    return worker
