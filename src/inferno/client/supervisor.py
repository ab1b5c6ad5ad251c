"""Keep an engine's process running: start it, watch its progress, replace it."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from inferno.client import EngineFacts, EngineState, Recovery
from inferno.client.child import Child
from inferno.client.spawned import EngineLog, Spawned, spawn
from inferno.client.wire import (
    Dying,
    Events,
    FromEngine,
    Loaded,
    Loading,
    NotLoaded,
    Ping,
    Pong,
    Problem,
    Shutdown,
    Start,
    ToEngine,
    problem_of,
)
from inferno.errors import EngineDied
from inferno.options import EngineOptions
from inferno.out_of_memory import out_of_memory

_EXIT_SECONDS = 0.5  # for a process whose socket has closed already

_logger = logging.getLogger("inferno")


# Bytes of weights a second that any machine computes with, while no step has been measured yet.
_LEAST_BYTES_PER_SECOND = 5e6
_MOST_FIRST_STEP = 600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """The seconds that an engine may take for each of its tasks.

    heartbeat       between two checks of the engine.
    start           to the engine's first message: while it imports PyTorch, it can't report
                    progress.
    load            without progress of loading.
    step            for a step, at the least; times: or so often as long as the step is expected
                    to take, if that is longer.
    close           to exit when told to.
    first_delay     before the engine is started again, doubled after each failure but the first, up
                    to most_delay. A failure is a death without a step, before loading ended or up
                    to `quick` seconds later; any other death resets the count.
    """

    heartbeat: float = 1.0
    start: float = 300.0
    load: float = 60.0
    step: float = 20.0
    times: float = 20.0
    close: float = 5.0
    first_delay: float = 0.1
    most_delay: float = 60.0
    quick: float = 5.0

    @classmethod
    def of(cls, engine_timeout: float | None) -> Patience:
        """Return the default patience, or one with the given seconds for a step or for loading."""
        if engine_timeout is None:
            return cls()
        heartbeat = min(cls().heartbeat, engine_timeout / 4)
        return cls(heartbeat=heartbeat, load=engine_timeout, step=engine_timeout, times=0.0)

    def of_step(self, expected_seconds: float | None, weight_bytes: int) -> float:
        """Return how long a step may take, by its expected time."""
        if not self.times:
            return self.step
        if expected_seconds is None:
            first = weight_bytes / _LEAST_BYTES_PER_SECOND
            return max(self.step, min(first, _MOST_FIRST_STEP))
        return max(self.step, self.times * expected_seconds)


class Supervisor:
    """The keeper of one engine at a time, which starts another whenever it dies, until `close`.

    It gives up only if the model could not be loaded even once.

    first           a process that is already started, for the first engine.
    log             how later engines' processes write their log.
    take            a function that gets the messages of a loaded engine.
    on_death        a function called at once when an engine died.
    """

    def __init__(
        self,
        options: EngineOptions,
        patience: Patience,
        first: Spawned | None,
        log: EngineLog | None,
        *,
        take: Callable[[FromEngine], None],
        on_death: Callable[[EngineDied], None],
    ) -> None:
        self._options = options
        self._patience = patience
        self._first = first
        self._log = log
        self._take_message = take
        self._on_death = on_death
        self.state = EngineState.LOADING
        self.facts: EngineFacts | None = None
        self.progress, self.stage = 0.0, "weights"
        self.problem: str | None = None
        self._num_starts = 0
        self._refusal: Problem | None = None  # why it can't be loaded, once that is certain
        self._num_failures = 0
        self._starts_at: float | None = None  # the next one, while it waits for that
        self._child: Child | None = None
        self._watch = _Watch(patience)
        self._settled = asyncio.Event()  # ready, failed or closed
        self._closing = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    @property
    def pid(self) -> int | None:
        """Return the process id of the engine that runs now."""
        return None if self._child is None else self._child.pid

    @property
    def num_restarts(self) -> int:
        """Return how many engines were started after the first one."""
        return max(0, self._num_starts - 1)

    @property
    def recovery(self) -> Recovery | None:
        """Return the progress of replacing the engine; None unless it is being replaced."""
        if self.state is not EngineState.RESTARTING:
            return None
        left = 0.0 if self._starts_at is None else self._starts_at - time.monotonic()
        return Recovery(self._num_failures, max(0.0, left))

    def start(self) -> None:
        """Start the first engine, unless it was started already."""
        if self._task is None:
            self._task = asyncio.create_task(self._supervise())

    async def wait_ready(self) -> None:
        """Wait until the engine takes requests; raise the error if it never will."""
        while self.state in (EngineState.LOADING, EngineState.RESTARTING):
            await self._settled.wait()
        self.check_ready()

    def check_ready(self) -> None:
        """Raise the reason why the engine takes no requests, if there is one."""
        match self.state:
            case EngineState.LOADING:
                raise EngineDied("the model is being loaded; try again soon")
            case EngineState.RESTARTING:
                raise EngineDied("the engine is being started again; try again soon")
            case EngineState.CLOSED:
                raise EngineDied("the engine is closed; make a new one")
            case EngineState.FAILED:
                assert self._refusal is not None, "nothing else makes it give up"
                raise self._refusal.error()

    def send(self, message: ToEngine) -> None:
        """Send to the engine that runs now; raise ValueError if the message can't be encoded."""
        if self._child is not None:
            self._child.send(message)

    async def close(self) -> None:
        """Let the engine exit, or kill it; start no other."""
        was_ready = self.state is EngineState.READY
        self._settle(EngineState.CLOSED)
        self._closing.set()
        if self._task is None:
            return
        if was_ready:
            self.send(Shutdown())
            await asyncio.wait({self._task}, timeout=self._patience.close)
        if self._child is not None:
            self._child.kill()
        await asyncio.wait({self._task})

    async def _supervise(self) -> None:
        while self.state not in (EngineState.CLOSED, EngineState.FAILED):
            try:
                await self._run_one()
            except Exception as problem:  # a mistake of ours: nobody must wait for ever
                _logger.exception("the engine's supervisor made a mistake")
                self._note_death()
                self._judge(repr(problem))
            if self.state is EngineState.RESTARTING:
                await self._pause()

    async def _pause(self) -> None:
        """Tell what happened, and wait before the next start."""
        delay = self._delay()
        times = "" if self._num_failures < 2 else f" {self._num_failures} times in a row"
        _logger.warning(
            "the engine died%s, %s; starting another one in %.1f seconds",
            *(times, self.problem, delay),
        )
        self._starts_at = time.monotonic() + delay
        with suppress(TimeoutError):
            await asyncio.wait_for(self._closing.wait(), delay)
        self._starts_at = None

    def _delay(self) -> float:
        """Return the seconds to the next start, drawn so that servers don't start together."""
        doubled = self._patience.first_delay * 2.0 ** min(max(0, self._num_failures - 1), 30)
        return min(doubled, self._patience.most_delay) * random.uniform(0.5, 1.0)

    async def _run_one(self) -> None:
        """Run one engine until it ends; afterwards the state says what comes next."""
        self._watch = watch = _Watch(self._patience)
        try:
            spawned, self._first = self._first or spawn(self._log), None
            self._child = child = await Child.start(spawned, self._take)
        except OSError as problem:
            self._note_death()
            self._judge(f"its process can't be started: {problem}")
            return
        try:
            child.send(Start(self._options, self._num_starts))
            self._num_starts += 1
            is_wanted = self.state is not EngineState.CLOSED  # it may be meanwhile
            while is_wanted and not await child.ended(self._patience.heartbeat):
                if watch.tick():
                    break
                child.send(Ping())
            self._note_death()
        finally:
            self._child = None
            words = await child.end(0.0 if watch.verdict else _EXIT_SECONDS)
        if self.facts is None and child.lacked_memory:
            self._refusal = problem_of(out_of_memory())
        self._judge(watch.verdict or words)

    def _note_death(self) -> None:
        """Tell those who wait, before anything that takes time."""
        if self.state in (EngineState.READY, EngineState.LOADING):
            self.state = EngineState.RESTARTING
            self._settled.clear()
        self._on_death(EngineDied("the engine died and is being started again; try again soon"))

    def _judge(self, reason: str) -> None:
        """Decide whether there is to be another engine, now that one died of this."""
        if self.state is not EngineState.RESTARTING:
            return
        self.problem = reason
        self._num_failures = self._num_failures + 1 if self._watch.was_quick else 0
        if self._refusal is not None:
            self.problem = self._refusal.message
            self._settle(EngineState.FAILED)

    def _settle(self, state: EngineState) -> None:
        self.state = state
        self._settled.set()

    def _take(self, message: FromEngine) -> None:
        if isinstance(message, Events):  # as nearly all are
            self._watch.note_step()
            self._take_message(message)
            return
        self._watch.note(message)
        match message:
            case Loading(done, total, stage):
                self.progress, self.stage = done / total if total else 0.0, stage
            case Loaded(facts) if self.state is not EngineState.CLOSED:
                self.facts, self.progress, self.problem = facts, 1.0, None
                self._settle(EngineState.READY)
            case NotLoaded(problem) if self.facts is None:
                self._refusal = problem  # what was loaded before may be there again
            case Pong() | Dying() | NotLoaded():
                pass
            case _:
                self._take_message(message)


class _Watch:
    """The watch that tells whether one engine makes progress.

    Time is counted in heartbeats, so that a parent that was itself suspended accuses nobody.
    """

    def __init__(self, patience: Patience) -> None:
        self._patience = patience
        self._num_quiet = 0  # heartbeats since the last sign of progress
        self._num_turns = 0
        self._expected_seconds: float | None = None
        self._has_spoken = False
        self._has_stepped = False
        self._facts: EngineFacts | None = None
        self._loaded_at = 0.0
        self.verdict: str | None = None  # what is wrong with it

    @property
    def was_quick(self) -> bool:
        """Return whether the engine died without having been of use."""
        if self._facts is None:
            return True
        return not self._has_stepped and time.monotonic() - self._loaded_at < self._patience.quick

    def note_step(self) -> None:
        """Record that the engine made a step, which counts as progress."""
        self._has_stepped = True
        self._num_quiet = 0

    def note(self, message: FromEngine) -> None:
        """Note a message: all but a pong come from the engine's own loop, and so show progress."""
        has_spoken, self._has_spoken = self._has_spoken, True
        match message:
            case Pong(num_turns, is_idle, expected_seconds):
                if is_idle or not has_spoken or num_turns != self._num_turns:
                    self._num_quiet = 0
                self._num_turns = num_turns
                self._expected_seconds = expected_seconds
                return
            case Loaded(facts):
                self._facts, self._loaded_at = facts, time.monotonic()
            case NotLoaded(problem):
                self.verdict = problem.message
            case Dying(reason):
                self.verdict = f"it said: {reason}"
        self._num_quiet = 0

    def tick(self) -> bool:
        """Count a heartbeat, and return whether that was one too many."""
        self._num_quiet += 1
        seconds = self._num_quiet * self._patience.heartbeat
        if seconds >= self._limit:
            doing = "starting" if not self._has_spoken else "loading" if self._facts is None else ""
            where = f" while it was {doing}" if doing else ""
            self.verdict = f"it made no progress for {seconds:g} seconds{where} and was killed"
        return self.verdict is not None

    @property
    def _limit(self) -> float:
        patience = self._patience
        if not self._has_spoken:
            return patience.start
        if self._facts is None:
            return patience.load
        return patience.of_step(self._expected_seconds, self._facts.weight_bytes)
