"""One child process that works under limits, as its parent sees it: asked, awaited, ended."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from inferno.errors import InfernoError, Overloaded

START_SECONDS = 60.0
_PIECE_BYTES = 1 << 16
_SO_FAR = b'{"so_far"'  # how a line begins that comes before the answer
# How a worker ends that took too much: by its timer, by MemoryError, or as libraries in C and Rust
# do without memory or stack.
_LIMIT_STATUSES = (
    *(-signal.SIGPROF, 1),
    *(-signal.SIGABRT, -signal.SIGSEGV, -signal.SIGBUS, -signal.SIGILL, -signal.SIGTRAP),
)

OnPart = Callable[[dict[str, Any]], None]


class TookTooMuch(Exception):
    """Raised when a request was ended at its limit of time or memory."""


class Vanished(Exception):
    """Raised when the child ended, not because of what it did, or was ended by `kill`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """A script that works under limits; `child.py` says how it is run.

    modules     that it imports: the child looks for them where this process found them.
    purpose     why there is such a process, as in "renders chat templates".
    error       what is raised where it can't be run.
    """

    script: Path
    modules: tuple[str, ...]
    purpose: str
    error: type[InfernoError]


class LimitedProcess:
    """A child process, started when first asked and again once it has ended; for one thread.

    niceness        how much the child leaves the processor to others.
    first           what it prepares when it starts, for which it has so many seconds.
    """

    def __init__(self, program: Program, niceness: int, first: Any, seconds: float) -> None:
        self._program = program
        self._niceness = niceness
        self._first_line = json.dumps(first).encode() + b"\n"
        self._prepare_seconds = seconds
        self._lock = threading.Lock()
        self._is_killed = False
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int | None:
        """Return the process id of the child, while it runs."""
        process = self._process
        return None if process is None else process.pid

    def ask(
        self, request: bytes, *, seconds: float, max_bytes: int, on_part: OnPart | None = None
    ) -> dict[str, Any]:
        """Return the answer to a line; TookTooMuch, also after these seconds, or Vanished.

        on_part     gets what the child tells before it, if it does.

        The program's error where no child can be started, Overloaded where the system has no room.
        """
        process = self._running()
        try:
            answer = _parsed(_exchange(process, request, seconds, max_bytes, on_part))
        except (TookTooMuch, Vanished):
            self._end()
            raise
        status = answer.get("died")
        if status is None:
            return answer
        if status in _LIMIT_STATUSES:
            raise TookTooMuch
        self._end()  # half of the request may be left in the pipe
        raise Vanished

    def start(self) -> None:
        """Start the process, to be ready for the next request; errors as with `ask`."""
        self._running()

    def kill(self) -> None:
        """End the process for good; from any thread."""
        with self._lock:
            self._is_killed = True
            if self._process is not None:
                _kill(self._process)

    def close(self) -> None:
        """Let the process go; from the thread that asks."""
        self._end()

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is not None and _has_news(self._process):
            self._end()  # nobody asked: it has ended, or its worker has
        if self._process is None:
            with self._lock:
                if self._is_killed:
                    raise Vanished
                self._process = self._launch()
            self._await_ready(self._process)
        return self._process

    def _launch(self) -> subprocess.Popen[bytes]:
        program = self._program
        numbers = (self._niceness, os.getpid(), self._prepare_seconds)
        folders = _folders_of(program.modules)
        try:
            process = subprocess.Popen(
                # -I: no module is looked for beside the script or where the user is.
                [sys.executable, "-I", str(program.script), *map(str, numbers), *folders],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env={},  # keys, as a rule, are in the environment
                cwd="/",
                process_group=0,  # Ctrl+C in the terminal is the parent's business
            )
        except OSError as problem:
            raise Overloaded(
                f"the process that {program.purpose} can't be started ({problem}); "
                "try again, and give the server more processes, files or memory"
            ) from None
        for pipe in (process.stdin, process.stdout):
            assert pipe is not None
            os.set_blocking(pipe.fileno(), False)
        return process

    def _await_ready(self, process: subprocess.Popen[bytes]) -> None:
        try:
            answer = _parsed(_exchange(process, self._first_line, START_SECONDS, _PIECE_BYTES))
        except TookTooMuch:
            self._end()
            raise
        except Vanished:
            with suppress(subprocess.TimeoutExpired):
                process.wait(1)  # for its own status
            self._end()
            if process.returncode == -signal.SIGPROF:
                raise TookTooMuch from None
            if process.returncode < 0:  # killed, by others or by `kill`
                raise
            program = self._program
            raise program.error(
                f"the process that {program.purpose} ended at its start with status "
                f"{process.returncode}; see that {sys.executable} runs with an empty environment "
                f"and finds {program.modules[0]}"
            ) from None
        assert answer == {"ready": True}

    def _end(self) -> None:
        with self._lock:
            process, self._process = self._process, None
            if process is not None:
                _kill(process)
        if process is not None:
            for pipe in (process.stdin, process.stdout):
                assert pipe is not None
                with suppress(BrokenPipeError):  # what is left of a request has no reader
                    pipe.close()


def _exchange(
    process: subprocess.Popen[bytes],
    request: bytes,
    seconds: float,
    max_bytes: int,
    on_part: OnPart | None = None,
) -> bytes:
    """Send a line to the child, and return the line that it answers; parts go to who wants them."""
    assert process.stdin is not None
    assert process.stdout is not None
    to_child, from_child = process.stdin.fileno(), process.stdout.fileno()
    poll = select.poll()
    poll.register(from_child, select.POLLIN)
    poll.register(to_child, select.POLLOUT)
    until = time.monotonic() + seconds
    unsent, answer = memoryview(request), bytearray()
    while not answer.endswith(b"\n"):
        ready = poll.poll(max(0.0, until - time.monotonic()) * 1000)
        if not ready:
            raise TookTooMuch
        for descriptor, _ in ready:
            if descriptor == from_child:
                piece = os.read(from_child, _PIECE_BYTES)
                answer += piece
                if not piece or len(answer) > max_bytes:
                    raise Vanished
                while answer.startswith(_SO_FAR) and (end := answer.find(b"\n") + 1):
                    part = _parsed(bytes(answer[:end])).get("so_far")
                    del answer[:end]
                    if on_part is not None and isinstance(part, dict):
                        on_part(part)
                continue
            try:
                unsent = unsent[os.write(to_child, unsent) :]
            except BrokenPipeError:
                raise Vanished from None
            if not unsent:
                poll.unregister(to_child)
    return bytes(answer)


def _has_news(process: subprocess.Popen[bytes]) -> bool:
    assert process.stdout is not None
    poll = select.poll()
    poll.register(process.stdout.fileno(), select.POLLIN)
    return bool(poll.poll(0))


def _parsed(answer: bytes) -> dict[str, Any]:
    try:
        parsed = json.loads(answer)
    except (ValueError, RecursionError):
        parsed = None
    return parsed if isinstance(parsed, dict) else {}


def _kill(process: subprocess.Popen[bytes]) -> None:
    """End the child and its worker; its number is its own until it has been waited for."""
    if process.returncode is None:
        with suppress(ProcessLookupError, PermissionError):  # macOS: of those that have ended
            os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _folders_of(modules: tuple[str, ...]) -> list[str]:
    """Return where modules are, for the child to look when it finds them not by itself."""
    specs = [find_spec(name) for name in modules]
    folders = [str(Path(spec.origin).parents[1]) for spec in specs if spec and spec.origin]
    return list(dict.fromkeys(folders))
