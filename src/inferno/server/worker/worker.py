"""A worker's state: its jobs, its account of memory, and its message once it is ready."""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import Sequence

import msgspec
from starlette.requests import Request as HttpRequest

import inferno
from inferno.client import EngineStats
from inferno.server.edge import Record
from inferno.server.served import Served
from inferno.server.worker.callback import deliver
from inferno.server.worker.messages import Capabilities, Device, Memory, Model, Ready
from inferno.server.worker.settings import WorkerSettings
from inferno.server.worker.under_way import JobsUnderWay, JobUnderWay

_FIRST_STATS_SECONDS = 3.0  # an engine that is loaded tells of its memory sooner
_POLL_SECONDS = 0.02
_SLACK_BYTES = 64 << 20  # what libraries keep for themselves once they have worked

_log = logging.getLogger("inferno.worker")


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
        message = _ready_message(self._served, stats, self._settings, self._paths, urls[0])
        await deliver(self._settings.callback, msgspec.json.encode(message))

    def begin(self, job_id: str, record: Record) -> JobUnderWay:
        """Return a new job; raise Refusal (409) where one of that id is under way."""
        job = self._jobs.begin(job_id, record)
        record.on_end(lambda: self._note(job_id, record))
        return job

    def cancel(self, job_id: str) -> None:
        """End that job; raise Refusal (404) where there is none."""
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
    """Return the worker that this request came to."""
    worker = request.app.state.worker
    assert isinstance(worker, Worker)
    return worker


def _ready_message(
    served: Served,
    stats: EngineStats,
    settings: WorkerSettings,
    paths: Sequence[str],
    listening_at: str,
) -> Ready:
    """Return the message that tells the fleet of this worker.

    paths           of the worker's routes.
    listening_at    the URL that others reach where nothing else was said.
    """
    facts = served.facts
    return Ready(
        message_id=secrets.token_hex(16),
        worker_id=settings.worker_id,
        uri=settings.uri or listening_at,
        version=inferno.__version__,
        model=Model(
            name=served.names[0],
            fingerprint=served.fingerprint,
            dtype=facts.dtype,
            vocab_size=facts.vocab_size,
            max_model_len=facts.max_model_len,
        ),
        device=Device(kind=settings.device, index=settings.device_index),
        memory=Memory(device_bytes=dict(stats.device_bytes), rss_bytes=stats.rss_bytes),
        capabilities=Capabilities(
            routes=list(paths),
            chat=served.text.has_chat_template,
            max_running_jobs=facts.max_num_seqs,
            max_waiting_jobs=served.settings.max_queue,
            kv_cache_tokens=facts.num_blocks * facts.block_size,
        ),
    )


class Residency:
    """The level of each use of memory: what it was at load, or when growth was last told.

    The process may grow by the KV cache, which an operating system hands out as it fills.
    """

    def __init__(self, stats: EngineStats) -> None:
        uses = _uses(stats)
        room = stats.device_bytes.get("kv_cache", 0)
        self._levels = {use: num_bytes for use, num_bytes in uses.items() if use != "process"}
        self._levels["process"] = uses["process"] + room
        _log.info("residency at load", extra={"fields": _fields(uses)})

    def note(self, stats: EngineStats, **facts: object) -> None:
        """Log it beside these facts of a job, and what grew."""
        uses = _uses(stats)
        _log.info("job over", extra={"fields": facts | _fields(uses)})
        for use, num_bytes in uses.items():
            level = self._levels.setdefault(use, num_bytes)
            if num_bytes > level + _SLACK_BYTES:
                self._levels[use] = num_bytes
                grown = {"use": use, "bytes": num_bytes, "expected_bytes": level}
                _log.warning("memory grew", extra={"fields": facts | grown})


def _uses(stats: EngineStats) -> dict[str, int]:
    return {**stats.device_bytes, "process": stats.rss_bytes}


def _fields(uses: dict[str, int]) -> dict[str, object]:
    return {f"{use}_bytes": num_bytes for use, num_bytes in uses.items()}
