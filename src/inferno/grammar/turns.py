"""Have what takes long done in pieces, so that a thread that asks needn't wait for it.

Such a thread asks `quickly` first: after some small steps NotQuick is raised. It then has the same
done as an `Aside`, in a thread that runs only while the other one lends it its turn. So of all
these threads one runs at a time, and what they share needs no locks. Turns only tell when something
is done: what comes of it is the same.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol

# Small steps (see Meter) that a thread waits for: about a millisecond.
_QUICK_STEPS = 1_000


class NotQuick(Exception):
    """Raised inside of `quickly` where more is to be done than somebody can wait for."""


class _Dropped(BaseException):
    """Raised in the thread of an Aside that nobody waits for any more, to end it."""


class Asker(Protocol):
    """A protocol of who asks in a thread, and is told now and then how much was done."""

    def note(self, num_steps: int) -> None:
        """Take in that so many more steps were made; it may wait for its turn, or raise."""

    def wait(self, is_held: Callable[[], bool]) -> None:
        """Let others go on as long as they hold what is asked for; it may return before, or raise.

        is_held     returns whether they hold it still.
        """

    def go_on(self) -> None:
        """Go on to the end, or until the turn isn't needed, where others wait for what is held."""

    def leave(self) -> None:
        """Give the turn back before a call that needs none; it may raise."""

    def come_back(self) -> None:
        """Wait for the turn after such a call; it may raise."""


class _Here(threading.local):
    asker: Asker | None = None


_here = _Here()


def asker() -> Asker | None:
    """Return who asks in this thread; None where it waits for all answers."""
    return _here.asker


@contextmanager
def quickly() -> Iterator[None]:
    """Raise NotQuick inside where an answer takes more than about a millisecond."""
    before = _here.asker
    _here.asker = _Quick()
    try:
        yield
    finally:
        _here.asker = before


@contextmanager
def away() -> Iterator[None]:
    """Let others go on during what lets go of Python's lock and uses nothing that they use.

    Raises NotQuick inside of `quickly`: what is done like this is known to take long.
    """
    here = _here.asker
    if here is None:
        yield
        return
    here.leave()
    try:
        yield
    finally:
        here.come_back()


def _never() -> bool:
    return False


class _Quick:
    """An Asker that waits for a few steps."""

    def __init__(self) -> None:
        self._num_left = _QUICK_STEPS

    def note(self, num_steps: int) -> None:
        self._num_left -= num_steps
        if self._num_left < 0:
            raise NotQuick

    def wait(self, is_held: Callable[[], bool]) -> None:
        raise NotQuick

    def go_on(self) -> None:
        """Do nothing: nobody else runs while it holds anything."""

    def leave(self) -> None:
        raise NotQuick

    def come_back(self) -> None:
        """Do nothing, as `leave` always raises."""


class Aside:
    """A task in a thread of its own, which runs only while `lend` waits, or is `away`.

    Where the system has no room for a thread, the task is done at once.

    problem     what it raised; None if it didn't.
    """

    def __init__(self, task: Callable[[], object]) -> None:
        self.problem: BaseException | None = None
        self._task = task
        self._turn, self._back = threading.Semaphore(0), threading.Semaphore(0)
        self._is_here = threading.Event()  # not away
        self._is_here.set()
        self._seconds = self._until = 0.0
        self._is_done = self._is_dropped = False
        self._is_held: Callable[[], bool] = _never  # by another one, what it waits for
        try:
            threading.Thread(target=self._run, name="inferno-aside", daemon=True).start()
        except RuntimeError:
            self._do()
        except BaseException:  # an interrupt, after which nobody gets to know of the thread
            self._is_dropped = True
            self._turn.release()
            raise

    @property
    def is_done(self) -> bool:
        """Return whether its task has come to an end."""
        return self._is_done

    @property
    def is_away(self) -> bool:
        """Return whether the task goes on without a turn."""
        return not self._is_here.is_set()

    def lend(self, seconds: float) -> bool:
        """Let the task run for about so long; return whether it ran.

        It doesn't if it is done, or away, or waits for what another one holds.

        seconds     of a processor's time: where others take that, the turn takes longer.
        """
        if self._is_done or self.is_away or self._is_held():
            return False
        self._seconds = seconds
        self._turn.release()
        self._back.acquire()
        return True

    def wait(self, is_held: Callable[[], bool]) -> None:
        self._is_held = is_held
        self._pass_on()
        self._is_held = _never

    def go_on(self) -> None:
        self.lend(float("inf"))

    def wait_until_here(self, seconds: float) -> None:
        """Wait until the task isn't away any more, so long at most."""
        self._is_here.wait(seconds)

    def drop(self) -> None:
        """End the task, as nobody waits for it any more; what is away ends when it comes back."""
        self._is_dropped, self._is_held = True, _never
        self.lend(0.0)
        if not self._is_done:
            self._turn.release()

    def note(self, num_steps: int) -> None:
        if time.thread_time() >= self._until:
            self._pass_on()

    def leave(self) -> None:
        self._is_here.clear()
        self._back.release()

    def come_back(self) -> None:
        self._is_here.set()
        self._await_turn()

    def _pass_on(self) -> None:
        self._back.release()
        self._await_turn()

    def _await_turn(self) -> None:
        self._turn.acquire()
        self._until = time.thread_time() + self._seconds
        if self._is_dropped:
            raise _Dropped

    def _run(self) -> None:
        _here.asker = self
        self._do()
        self._back.release()

    def _do(self) -> None:
        try:
            if _here.asker is self:
                self._await_turn()
            self._task()
        except _Dropped:
            pass
        except BaseException as problem:  # a library's panic is no Exception
            self.problem = problem
        self._is_done = True
