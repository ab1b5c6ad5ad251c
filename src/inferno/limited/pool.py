"""Child processes that work under limits, and the queues of what waits for them.

What takes little and what takes long don't wait for each other: each has children of its own. All
begins among the short jobs; one that takes longer than those may is ended there and begun again
among the long ones.
"""

from __future__ import annotations

import heapq
import itertools
import os
import threading
import weakref
from collections.abc import Callable
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Protocol

from inferno.errors import InfernoError, Overloaded
from inferno.limited.process import LimitedProcess, OnPart, Program, TookTooMuch, Vanished

NUM_CHILDREN = 2  # for short jobs, and as many for long ones
FIRST, LATER = 0, 1  # ranks


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """The limits of a pool's jobs.

    cpu_seconds     what one job may take, and what preparing a child may.
    wall_seconds    what a short and a long one may take by the clock on the wall.
    short_bytes     of a request; larger ones are long from the beginning.
    max_bytes       of an answer.
    max_waiting     jobs in each of both queues.
    long_niceness   how much the children of long jobs leave the processor to others.
    """

    cpu_seconds: float
    wall_seconds: tuple[float, float]
    short_bytes: int
    max_bytes: int
    max_waiting: int
    long_niceness: int


class Outcomes(Protocol):
    """The words of those who ask: an answer as text, and the errors of jobs that have none."""

    def text_of(self, answer: dict[str, Any]) -> str:
        """Return an answer's text, or raise what it says."""

    def took_too_much(self) -> InfernoError:
        """Return the error for a job that was ended at its limits."""

    def busy(self, num_waiting: int) -> Overloaded:
        """Return the error for a job that has so many before it that it can't wait."""

    def closed(self) -> InfernoError:
        """Return the error for a job that was not done when the children were ended."""

    def failed(self, problem: Exception) -> InfernoError:
        """Return the error for a job for which a child could not be asked."""


class ChildProcesses:
    """Children that run a program, started when first needed and again when one ends.

    first       what each prepares when it starts.

    May be used from several threads, and goes on with children of its own after a fork.
    """

    def __init__(
        self, program: Program, outcomes: Outcomes, bounds: Callable[[], Bounds], first: Any = None
    ) -> None:
        self._program = program
        self._outcomes = outcomes
        self._bounds = bounds
        self._first = first
        self._numbers = itertools.count()
        self._lock = threading.Lock()
        self._pool: _Pool | None = None
        self._finalizer: weakref.finalize[..., ChildProcesses] | None = None

    @property
    def pids(self) -> list[int]:
        """Return the process ids of the children."""
        return [] if self._pool is None else self._pool.pids

    @property
    def num_waiting(self) -> int:
        """Return how many jobs no child has begun."""
        return 0 if self._pool is None else self._pool.num_waiting

    def job(
        self,
        body: bytes,
        cpu_seconds: float,
        rank: int = FIRST,
        *,
        on_part: OnPart | None = None,
    ) -> Job:
        """Return a job to be started: a JSON object, and what it may take among the short ones.

        on_part     gets what the child tells before its answer, in a thread of the pool's; it is
                    told again where the job begins again.
        """
        return Job(rank, next(self._numbers), body, cpu_seconds, on_part)

    def start(self, job: Job) -> Future[str]:
        """Have a job done, and return its future; raises Overloaded at once.

        Cancelling it takes it off the queue; one that is under way goes on to its end.
        """
        self._running_pool().submit(job)
        return job.future

    def close(self) -> None:
        """End the children, and what is under way with them. The next job starts others."""
        if self._finalizer is not None:
            self._finalizer()
        self._pool = None

    def _running_pool(self) -> _Pool:
        if self._pool is not None and self._pool.is_of_another_process:
            self._lock, self._pool = threading.Lock(), None  # whoever held it stayed behind
        with self._lock:
            if self._pool is None:
                self._pool = _Pool(self._program, self._outcomes, self._bounds(), self._first)
                self._finalizer = weakref.finalize(self, self._pool.close)
            return self._pool


@dataclass(order=True, slots=True)
class Job:
    """One piece of work that was asked for; those of a lower rank go first."""

    rank: int
    number: int
    body: bytes = field(compare=False)
    cpu_seconds: float = field(compare=False)
    on_part: OnPart | None = field(compare=False)
    future: Future[str] = field(compare=False, default_factory=Future)

    @property
    def line(self) -> bytes:
        """Return the request, as a child reads it."""
        return b'{"cpu_seconds": %a, ' % self.cpu_seconds + self.body[1:] + b"\n"

    def resolve(self, outcome: str | InfernoError) -> None:
        """Tell who asked, if that is wanted still."""
        with suppress(InvalidStateError):  # it was cancelled
            if isinstance(outcome, str):
                self.future.set_result(outcome)
            else:
                self.future.set_exception(outcome)


class _Pool:
    """The children for short jobs and those for long ones."""

    def __init__(self, program: Program, outcomes: Outcomes, bounds: Bounds, first: Any) -> None:
        self._process = os.getpid()
        self._bounds = bounds
        self._outcomes = outcomes

        def child(niceness: int) -> LimitedProcess:
            return LimitedProcess(program, niceness, first, bounds.cpu_seconds)

        short_seconds, long_seconds = bounds.wall_seconds
        self._short = _Children(
            lambda: child(0), short_seconds, bounds, outcomes, self._begin_again
        )
        self._long = _Children(
            lambda: child(bounds.long_niceness), long_seconds, bounds, outcomes, self._give_up
        )

    @property
    def is_of_another_process(self) -> bool:
        """Return whether this is a copy that a fork has made: the children are its parent's."""
        return self._process != os.getpid()

    @property
    def pids(self) -> list[int]:
        """Return the process ids of all children."""
        return self._short.pids + self._long.pids

    @property
    def num_waiting(self) -> int:
        """Return how many jobs no child has begun and somebody still wants."""
        return self._short.num_waiting + self._long.num_waiting

    def submit(self, job: Job) -> None:
        """Queue a job; raises Overloaded."""
        is_small = len(job.body) <= self._bounds.short_bytes
        if is_small and job.cpu_seconds < self._bounds.cpu_seconds:
            self._short.add(job)
        else:
            self._add_to_long(job)

    def close(self) -> None:
        """End all children."""
        if not self.is_of_another_process:
            self._short.close()
            self._long.close()

    def _add_to_long(self, job: Job) -> None:
        job.rank, job.cpu_seconds = FIRST, self._bounds.cpu_seconds
        self._long.add(job)

    def _begin_again(self, job: Job) -> None:
        try:
            self._add_to_long(job)
        except InfernoError as problem:
            job.resolve(problem)

    def _give_up(self, job: Job) -> None:
        job.resolve(self._outcomes.took_too_much())


class _Children:
    """A queue of jobs, and up to NUM_CHILDREN children that take from it, each by its own thread.

    One child is always left to those of the first rank.

    on_limit        gets the jobs that took too much, or lost their child.
    """

    def __init__(
        self,
        make_child: Callable[[], LimitedProcess],
        wall_seconds: float,
        bounds: Bounds,
        outcomes: Outcomes,
        on_limit: Callable[[Job], None],
    ) -> None:
        self._make_child = make_child
        self._wall_seconds = wall_seconds
        self._bounds = bounds
        self._outcomes = outcomes
        self._on_limit = on_limit
        self._changed = threading.Condition()
        self._jobs: list[Job] = []
        self._children: list[LimitedProcess] = []
        self._num_idle = 0
        self._num_later = 0  # of that rank, under way
        self._is_closed = False

    @property
    def pids(self) -> list[int]:
        """Return the process ids of the children that run."""
        return [child.pid for child in self._children if child.pid is not None]

    @property
    def num_waiting(self) -> int:
        """Return how many jobs in the queue somebody wants."""
        with self._changed:
            return sum(not job.future.cancelled() for job in self._jobs)

    def add(self, job: Job) -> None:
        """Have a child do it; Overloaded where too many wait, `failed` where there can be none."""
        with self._changed:
            if self._is_closed:
                raise self._outcomes.closed()
            if len(self._jobs) >= self._bounds.max_waiting:
                self._jobs = [each for each in self._jobs if not each.future.cancelled()]
                heapq.heapify(self._jobs)
            if len(self._jobs) >= self._bounds.max_waiting:
                raise self._outcomes.busy(self._bounds.max_waiting)
            if self._num_idle <= len(self._jobs) and len(self._children) < NUM_CHILDREN:
                self._start_thread()
            heapq.heappush(self._jobs, job)
            self._changed.notify()

    def close(self) -> None:
        """End the children, and refuse what waits."""
        with self._changed:
            self._is_closed = True
            jobs, self._jobs = self._jobs, []
            self._changed.notify_all()
        for job in jobs:
            job.resolve(self._outcomes.closed())
        for child in self._children:
            child.kill()

    def _start_thread(self) -> None:
        child = self._make_child()
        # A daemon: the interpreter's end doesn't wait for a job.
        thread = threading.Thread(
            target=self._work, args=(child,), name="inferno-limited", daemon=True
        )
        try:
            thread.start()
        except RuntimeError as problem:  # the system has no room for another
            if not self._children:
                raise self._outcomes.failed(problem) from None
        else:
            self._children.append(child)

    def _work(self, child: LimitedProcess) -> None:
        while (job := self._take()) is not None:
            is_later = job.rank == LATER
            if not job.future.cancelled():
                self._do(job, child)
            if is_later:
                with self._changed:
                    self._num_later -= 1
                    self._changed.notify()
        child.close()

    def _take(self) -> Job | None:
        """Return the next job, once there is one; None at the end."""
        with self._changed:
            self._num_idle += 1
            self._changed.wait_for(lambda: self._is_closed or self._has_next())
            self._num_idle -= 1
            if self._is_closed:
                return None
            job = heapq.heappop(self._jobs)
            self._num_later += job.rank == LATER
            return job

    def _has_next(self) -> bool:
        if not self._jobs:
            return False
        return self._jobs[0].rank == FIRST or self._num_later < NUM_CHILDREN - 1

    def _do(self, job: Job, child: LimitedProcess) -> None:
        try:
            job.resolve(self._ask(job, child))
        except (TookTooMuch, Vanished):
            if self._is_closed:
                job.resolve(self._outcomes.closed())
            else:
                self._on_limit(job)
                with suppress(Exception):  # the next job is told, if it needs to be
                    child.start()  # where the clock on the wall has ended it as well
        except InfernoError as problem:
            job.resolve(problem)
        except Exception as problem:  # ours: nobody may wait for ever
            job.resolve(self._outcomes.failed(problem))

    def _ask(self, job: Job, child: LimitedProcess) -> str:
        """Return the text; a second time where the child ended for no fault of the job's."""
        try:
            answer = self._ask_once(job, child)
        except Vanished:
            if self._is_closed:
                raise
            answer = self._ask_once(job, child)
        return self._outcomes.text_of(answer)

    def _ask_once(self, job: Job, child: LimitedProcess) -> dict[str, Any]:
        seconds, max_bytes = self._wall_seconds, self._bounds.max_bytes
        return child.ask(job.line, seconds=seconds, max_bytes=max_bytes, on_part=job.on_part)
