"""Keep a worker's state: its jobs, its log of memory, and its message once it is ready."""

from __future__ import annotations

import asyncio
import logging
import random
import secrets
import time
from collections.abc import Awaitable, Callable, Sequence

import msgspec
from starlette.requests import Request as HttpRequest

import inferno
from inferno.client import EngineStats
from inferno.http_post import post
from inferno.server.http import ApiError, Lease, RequestContext
from inferno.server.model_service import ModelService
from inferno.server.worker.messages import Capabilities, Device, Memory, Model, Ready
from inferno.server.worker.settings import Callback, WorkerSettings

_FIRST_STATS_SECONDS = 3.0  # a loaded engine reports its memory sooner
_POLL_SECONDS = 0.02
_SLACK_BYTES = 64 << 20  # what libraries keep for themselves once they have worked
_MAX_ANSWER = 64 << 10
# A GPU's memory that PyTorch keeps for the next steps, bounded by --gpu-memory-utilization.
_MAY_GROW = frozenset({"reserved"})

_log = logging.getLogger("inferno.worker")


class Worker:
    """The owner of the running jobs and of the log of memory.

    paths           the paths of the worker's routes, which the ready message names.
    """

    def __init__(
        self, service: ModelService, settings: WorkerSettings, paths: Sequence[str]
    ) -> None:
        self._service = service
        self._settings = settings
        self._paths = paths
        self._jobs = RunningJobs()
        self._memory_log: MemoryLog | None = None

    async def on_ready(self, urls: list[str]) -> None:
        """Log what was loaded, and post the ready message, with the first of the server's URLs."""
        stats = await self._first_stats()
        self._memory_log = MemoryLog(stats)
        message = _ready_message(self._service, stats, self._settings, self._paths, urls[0])
        await deliver(self._settings.callback, msgspec.json.encode(message))

    def begin(self, job_id: str, context: RequestContext) -> RunningJob:
        """Return a new job; raise ApiError (409) where a job of that id is running."""
        job = self._jobs.begin(job_id, context)
        context.on_end(lambda: self._note(job_id, context))
        return job

    def cancel(self, job_id: str) -> None:
        """End the job of that id; raise ApiError (404) where there is none."""
        self._jobs.cancel(job_id)

    async def _first_stats(self) -> EngineStats:
        until = time.monotonic() + _FIRST_STATS_SECONDS
        while not (stats := self._service.engine.stats()).device_bytes:
            if time.monotonic() > until:
                break
            await asyncio.sleep(_POLL_SECONDS)
        return stats

    def _note(self, job_id: str, context: RequestContext) -> None:
        if self._memory_log is not None:
            self._memory_log.note(
                self._service.engine.stats(),
                job_id=job_id,
                request_id=context.request_id,
                finish_reasons=context.finish_reasons,
            )


def worker_of(request: HttpRequest) -> Worker:
    """Return the worker that a request came to."""
    worker = request.app.state.worker
    assert isinstance(worker, Worker)
    return worker


def _ready_message(
    service: ModelService,
    stats: EngineStats,
    settings: WorkerSettings,
    paths: Sequence[str],
    listening_at: str,
) -> Ready:
    """Return the message that announces this worker to the fleet.

    paths           of the worker's routes.
    listening_at    the URL that others reach where nothing else was said.
    """
    facts = service.facts
    return Ready(
        message_id=secrets.token_hex(16),
        worker_id=settings.worker_id,
        uri=settings.uri or listening_at,
        version=inferno.__version__,
        model=Model(
            name=service.names[0],
            fingerprint=service.fingerprint,
            dtype=facts.dtype,
            vocab_size=facts.vocab_size,
            max_model_len=facts.max_model_len,
        ),
        device=Device(kind=settings.device, index=settings.device_index),
        memory=Memory(device_bytes=dict(stats.device_bytes), rss_bytes=stats.rss_bytes),
        capabilities=Capabilities(
            routes=list(paths),
            chat=service.text.has_chat_template,
            max_running_jobs=facts.max_num_seqs,
            max_waiting_jobs=service.settings.max_queue,
            kv_cache_tokens=facts.num_blocks * facts.block_size,
        ),
    )


class MemoryLog:
    """The level of each use of memory, at load or when growth was last logged.

    The process may grow by the KV cache, which an operating system hands out as it fills.
    """

    def __init__(self, stats: EngineStats) -> None:
        uses = _uses(stats)
        room = stats.device_bytes.get("kv_cache", 0)
        self._levels = {use: num_bytes for use, num_bytes in uses.items() if use != "process"}
        self._levels["process"] = uses["process"] + room
        _log.info("memory at load", extra={"fields": _fields(uses)})

    def note(self, stats: EngineStats, **facts: object) -> None:
        """Log the memory beside some facts of a job, and which uses grew."""
        uses = _uses(stats)
        _log.info("job over", extra={"fields": facts | _fields(uses)})
        for use, num_bytes in uses.items():
            if use in _MAY_GROW:
                continue
            level = self._levels.setdefault(use, num_bytes)
            if num_bytes > level + _SLACK_BYTES:
                self._levels[use] = num_bytes
                grown = {"use": use, "bytes": num_bytes, "expected_bytes": level}
                _log.warning("memory grew", extra={"fields": facts | grown})


def _uses(stats: EngineStats) -> dict[str, int]:
    return {**stats.device_bytes, "process": stats.rss_bytes}


def _fields(uses: dict[str, int]) -> dict[str, object]:
    return {f"{use}_bytes": num_bytes for use, num_bytes in uses.items()}


class JobCancelled(ApiError):
    """The error of a job that is cancelled; the last event of the job's stream says so."""

    def __init__(self) -> None:
        super().__init__(409, "cancelled", "The job was cancelled.")


class RunningJob:
    """One job, from its request to its end.

    end             removes the job from the table; may be called several times.
    """

    def __init__(self, end: Callable[[RunningJob], None]) -> None:
        self._end = end
        self._is_cancelled = False
        self._lease: Lease | None = None
        self._abort: Callable[[], None] | None = None

    def run_in(self, lease: Lease, abort: Callable[[], None]) -> None:
        """Note the lease that the job runs in, and end the job if it was cancelled before.

        abort       makes the engine let go of the job.
        """
        self._lease, self._abort = lease, abort
        if self._is_cancelled:
            self.cancel()

    def cancel(self) -> None:
        """End the job, wherever it stands."""
        self._is_cancelled = True
        if self._lease is not None and self._abort is not None:
            self._lease.end(JobCancelled())
            self._abort()  # now, though the stream's reader may be slow

    def end(self) -> None:
        """Remove the job from the table: another may have its id now."""
        self._end(self)


class RunningJobs:
    """The table of running jobs, which a job leaves with its HTTP request if it didn't before."""

    def __init__(self) -> None:
        self._jobs: dict[str, RunningJob] = {}

    def begin(self, job_id: str, context: RequestContext) -> RunningJob:
        """Return a new job; raise ApiError (409) where a job of that id is running."""
        if job_id in self._jobs:
            message = f"The job '{job_id}' is under way already; every job needs an id of its own."
            raise ApiError(409, "duplicate_job", message, param="job_id")
        job = self._jobs[job_id] = RunningJob(lambda job: self._forget(job_id, job))
        context.on_end(job.end)
        return job

    def cancel(self, job_id: str) -> None:
        """End the job of that id; raise ApiError (404) where there is none."""
        if job_id not in self._jobs:
            message = f"No job '{job_id}' is under way here."
            raise ApiError(404, "job_not_found", message, param="job_id")
        self._jobs[job_id].cancel()

    def _forget(self, job_id: str, job: RunningJob) -> None:
        if self._jobs.get(job_id) is job:
            del self._jobs[job_id]


async def deliver(
    callback: Callback,
    message: bytes,
    *,
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> bool:
    """Post the message until a status of 200 to 299 takes it; return False if none does."""
    for attempt in range(1, callback.num_attempts + 1):
        problem = await _attempt(callback, message)
        if problem is None:
            _log.info("callback taken", extra={"fields": {"attempt": attempt}})
            return True
        _log.warning("callback failed", extra={"fields": {"attempt": attempt, "why": problem}})
        if attempt < callback.num_attempts:
            await sleep(_delay(callback, attempt))
    _log.error("callback given up: the worker serves, but its receiver may not know of it")
    return False


async def _attempt(callback: Callback, message: bytes) -> str | None:
    """Post the message once; return why it was not taken, if so."""
    status, problem = None, None
    try:
        async with asyncio.timeout(callback.timeout), post(callback.target, message, {}) as answer:
            status = answer.status
            await answer.read(_MAX_ANSWER)  # so that the receiver can say all of it
    except TimeoutError:
        problem = f"no answer within {callback.timeout:g} seconds"
    except OSError as error:
        problem = str(error)
    if status is None:
        return problem
    if 200 <= status < 300:
        return None
    return f"status {status}" + (", and redirects are not followed" if status // 100 == 3 else "")


def _delay(callback: Callback, num_failures: int) -> float:
    """Return seconds to the next attempt, drawn so that many workers don't come at once."""
    doubled = callback.first_delay * 2.0 ** (num_failures - 1)
    return random.uniform(0.5, 1.0) * min(callback.most_delay, doubled)
