"""One child process that renders chat templates, as its parent sees it: asked, awaited, ended."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from inferno.errors import Overloaded, TemplateError

START_SECONDS = 60.0
_CHILD = Path(__file__).resolve().with_name("render_child.py")
_PIECE_BYTES = 1 << 16
# How a worker ends where it took too much: by its timer, and by MemoryError.
_LIMIT_STATUSES = (-signal.SIGPROF, 1)


class TookTooMuch(Exception):
    """Raised when a rendering was ended at its limit of time or memory."""


class Vanished(Exception):
    """Raised when the child ended, not because of what it rendered, or was ended by `kill`."""


class RenderProcess:
    """A child process, started when first asked and again once it has ended; for one thread.

    niceness        how much the child leaves the processor to others.
    templates       what it compiles when it starts, for which it has compile_seconds.
    """

    def __init__(self, niceness: int, templates: list[str], compile_seconds: float) -> None:
        self._niceness = niceness
        self._first_line = json.dumps(templates).encode() + b"\n"
        self._compile_seconds = compile_seconds
        self._lock = threading.Lock()
        self._is_killed = False
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int | None:
        """Return the process id of the child, while it runs."""
        process = self._process
        return None if process is None else process.pid

    def ask(self, request: bytes, *, seconds: float, max_bytes: int) -> dict[str, Any]:
        """Return the answer to a line; TookTooMuch, also after these seconds, or Vanished.

        TemplateError where no child can be started, Overloaded where the system has no room.
        """
        process = self._running()
        try:
            answer = _parsed(_exchange(process, request, seconds, max_bytes))
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
        numbers = (self._niceness, os.getpid(), self._compile_seconds)
        try:
            process = subprocess.Popen(
                # -I: no module is looked for beside the script or where the user is.
                [sys.executable, "-I", str(_CHILD), *map(str, numbers), *_module_folders()],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env={},  # keys, as a rule, are in the environment
                cwd="/",
                process_group=0,  # Ctrl+C in the terminal is the parent's business
            )
        except OSError as problem:
            raise Overloaded(
                f"the process that renders chat templates can't be started ({problem}); "
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
            raise TemplateError(
                "the process that renders chat templates ended at its start with status "
                f"{process.returncode}; see that {sys.executable} runs with an empty environment "
                "and finds jinja2"
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
    process: subprocess.Popen[bytes], request: bytes, seconds: float, max_bytes: int
) -> bytes:
    """Send a line to the child, and return the line that it answers."""
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


def _module_folders() -> list[str]:
    """Return where Jinja is, for the child to look when it finds none by itself."""
    specs = [find_spec(name) for name in ("jinja2", "markupsafe")]
    return [str(Path(spec.origin).parents[1]) for spec in specs if spec and spec.origin]
