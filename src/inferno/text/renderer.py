"""Render chat templates in child processes, within bounds of number, time and memory.

Renderings that take little and those that take long don't wait for each other: each has children
of its own. All begin among the short ones; one that takes longer than those may is ended there and
begun again among the long ones.
"""

from __future__ import annotations

import heapq
import itertools
import json
import os
import threading
import weakref
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from inferno.errors import InfernoError, InvalidRequest, Overloaded, TemplateError
from inferno.text.render_process import RenderProcess, TookTooMuch, Vanished

NUM_CHILDREN = 2  # for short renderings, and as many for long ones
CPU_SECONDS = 1.5
SHORT_CPU_SECONDS = 0.05
SHORT_UNKNOWN_CPU_SECONDS = 0.15  # with a template that comes with its messages and is compiled
SHORT_REQUEST_BYTES = 2**18
# Only for a machine too busy to give a child its time: the clock on the wall is unfair.
WALL_SECONDS = 10.0
LONG_WALL_SECONDS = 60.0
LONG_NICENESS = 2  # they compete with the engine for the processor
MAX_WAITING = 256
MAX_CHARS = 4 * 2**20
_KNOWN, _UNKNOWN = 0, 1
_BYTES_PER_CHAR = 12  # a character outside the basic plane is two \uXXXX in JSON
_FRAME_BYTES = 8192


class TemplateRenderer:
    """The children that render templates, started when first needed and again when one ends.

    known           the model's own templates: children have them compiled before they are asked.
    cpu_seconds     what one rendering may take; it may make max_chars characters.

    May be used from several threads, and goes on with children of its own after a fork.
    """

    def __init__(
        self,
        known: Iterable[str] = (),
        *,
        cpu_seconds: float = CPU_SECONDS,
        max_chars: int = MAX_CHARS,
    ) -> None:
        self._known = frozenset(known)
        self._cpu_seconds = cpu_seconds
        self._max_chars = max_chars
        self._numbers = itertools.count()
        self._lock = threading.Lock()
        self._pool: _Pool | None = None
        self._finalizer: weakref.finalize[..., TemplateRenderer] | None = None

    @property
    def pids(self) -> list[int]:
        """Return the process ids of the children that render."""
        return [] if self._pool is None else self._pool.pids

    @property
    def num_waiting(self) -> int:
        """Return how many renderings no child has begun."""
        return 0 if self._pool is None else self._pool.num_waiting

    def render(self, template: str, variables: Mapping[str, Any]) -> str:
        """Return the template's text; TemplateError if it fails or takes too much.

        InvalidRequest if the template itself refuses the messages, by raise_exception. Overloaded
        where too many wait already.
        """
        return self.submit(template, variables).result()

    def submit(self, template: str, variables: Mapping[str, Any]) -> Future[str]:
        """Begin a rendering as `render` does, and return its future; raises Overloaded at once."""
        return self.start(self.prepare(template, variables))

    def prepare(self, template: str, variables: Mapping[str, Any]) -> Job:
        """Prepare a rendering to be started, which takes as long as the variables are large."""
        is_known = template in self._known
        body = {
            "template": template,
            "variables": variables,
            "now": datetime.now().isoformat(),
            "max_chars": self._max_chars,
        }
        return Job(
            rank=_KNOWN if is_known else _UNKNOWN,
            number=next(self._numbers),
            body=json.dumps(body).encode(),
            cpu_seconds=SHORT_CPU_SECONDS if is_known else SHORT_UNKNOWN_CPU_SECONDS,
        )

    def start(self, job: Job) -> Future[str]:
        """Have a job rendered, and return its future; raises Overloaded at once.

        Cancelling it takes it off the queue; one that is under way goes on to its end.
        """
        self._running_pool().submit(job)
        return job.future

    def close(self) -> None:
        """End the children, and what is under way with them. The next rendering starts others."""
        if self._finalizer is not None:
            self._finalizer()
        self._pool = None

    def _running_pool(self) -> _Pool:
        if self._pool is not None and self._pool.is_of_another_process:
            self._lock, self._pool = threading.Lock(), None  # whoever held it stayed behind
        with self._lock:
            if self._pool is None:
                self._pool = _Pool(sorted(self._known), self._cpu_seconds, self._max_chars)
                self._finalizer = weakref.finalize(self, self._pool.close)
            return self._pool


@dataclass(order=True, slots=True)
class Job:
    """One rendering that was asked for; those with the model's own templates go first."""

    rank: int
    number: int
    body: bytes = field(compare=False)
    cpu_seconds: float = field(compare=False)
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
    """The children for short renderings and those for long ones."""

    def __init__(self, templates: list[str], cpu_seconds: float, max_chars: int) -> None:
        self._process = os.getpid()
        self._cpu_seconds = cpu_seconds
        max_bytes = max_chars * _BYTES_PER_CHAR + _FRAME_BYTES

        def child(niceness: int) -> RenderProcess:
            return RenderProcess(niceness, templates, cpu_seconds)

        self._short = _Children(
            lambda: child(0), lambda: WALL_SECONDS, max_bytes, self._begin_again
        )
        self._long = _Children(
            lambda: child(LONG_NICENESS), lambda: LONG_WALL_SECONDS, max_bytes, self._give_up
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
        if len(job.body) <= SHORT_REQUEST_BYTES and job.cpu_seconds < self._cpu_seconds:
            self._short.add(job)
        else:
            self._add_to_long(job)

    def close(self) -> None:
        """End all children."""
        if not self.is_of_another_process:
            self._short.close()
            self._long.close()

    def _add_to_long(self, job: Job) -> None:
        job.rank, job.cpu_seconds = _KNOWN, self._cpu_seconds
        self._long.add(job)

    def _begin_again(self, job: Job) -> None:
        try:
            self._add_to_long(job)
        except InfernoError as problem:
            job.resolve(problem)

    def _give_up(self, job: Job) -> None:
        job.resolve(
            TemplateError(
                f"the model's chat template takes more than {self._cpu_seconds:g} seconds or too "
                "much memory and was stopped; give the model another chat_template.jinja"
            )
        )


class _Children:
    """A queue of jobs, and up to NUM_CHILDREN children that take from it, each by its own thread.

    One child is always left to the model's own templates, which nobody who asks has written.

    on_limit        gets the jobs that took too much, or lost their child.
    """

    def __init__(
        self,
        make_child: Callable[[], RenderProcess],
        wall_seconds: Callable[[], float],
        max_bytes: int,
        on_limit: Callable[[Job], None],
    ) -> None:
        self._make_child = make_child
        self._wall_seconds = wall_seconds
        self._max_bytes = max_bytes
        self._on_limit = on_limit
        self._changed = threading.Condition()
        self._jobs: list[Job] = []
        self._children: list[RenderProcess] = []
        self._num_idle = 0
        self._num_unknown = 0  # under way
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
        """Have a child render; Overloaded where too many wait."""
        with self._changed:
            if self._is_closed:
                raise _closed()
            if len(self._jobs) >= MAX_WAITING:
                raise Overloaded(
                    f"{MAX_WAITING} conversations wait for the chat template already; try again"
                )
            heapq.heappush(self._jobs, job)
            if self._num_idle < len(self._jobs) and len(self._children) < NUM_CHILDREN:
                self._start_thread()
            self._changed.notify()

    def close(self) -> None:
        """End the children, and refuse what waits."""
        with self._changed:
            self._is_closed = True
            jobs, self._jobs = self._jobs, []
            self._changed.notify_all()
        for job in jobs:
            job.resolve(_closed())
        for child in self._children:
            child.kill()

    def _start_thread(self) -> None:
        child = self._make_child()
        self._children.append(child)
        # A daemon: the interpreter's end doesn't wait for a rendering.
        thread = threading.Thread(
            target=self._work, args=(child,), name="inferno-templates", daemon=True
        )
        thread.start()

    def _work(self, child: RenderProcess) -> None:
        while (job := self._take()) is not None:
            is_unknown = job.rank == _UNKNOWN
            if not job.future.cancelled():
                self._do(job, child)
            if is_unknown:
                with self._changed:
                    self._num_unknown -= 1
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
            self._num_unknown += job.rank == _UNKNOWN
            return job

    def _has_next(self) -> bool:
        if not self._jobs:
            return False
        return self._jobs[0].rank == _KNOWN or self._num_unknown < NUM_CHILDREN - 1

    def _do(self, job: Job, child: RenderProcess) -> None:
        try:
            job.resolve(self._ask(job, child))
        except (TookTooMuch, Vanished):
            if self._is_closed:
                job.resolve(_closed())
            else:
                self._on_limit(job)
        except InfernoError as problem:
            job.resolve(problem)
        except Exception as problem:  # ours: nobody may wait for ever
            job.resolve(TemplateError(f"the chat template's process could not be asked: {problem}"))

    def _ask(self, job: Job, child: RenderProcess) -> str:
        """Return the text; a second time where the child ended for no fault of the job's."""
        try:
            answer = self._ask_once(job, child)
        except Vanished:
            if self._is_closed:
                raise
            answer = self._ask_once(job, child)
        return _text_of(answer)

    def _ask_once(self, job: Job, child: RenderProcess) -> dict[str, Any]:
        return child.ask(job.line, seconds=self._wall_seconds(), max_bytes=self._max_bytes)


def _text_of(answer: dict[str, Any]) -> str:
    match answer:
        case {"text": str(text)}:
            return text
        case {"refused": str(words)}:
            raise InvalidRequest(
                f"the model's chat template refuses these messages: {words}", param="messages"
            )
        case {"error": str(words)}:
            raise TemplateError(f"the model's chat template failed on these messages: {words}")
    raise TemplateError("the chat template's process gave no sensible answer")


def _closed() -> TemplateError:
    return TemplateError("the model was closed while its chat template was being rendered")
