"""Python programs that start at once: forked from a process that has imported what they would.

A start of `inferno` imports PyTorch and more, which takes seconds. Tests of a start itself, of
imports and of what the interpreter reads from the environment run a Python of their own instead.
"""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import gc
import io
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, TextIO

from tests.patience import PATIENCE

_ROOT = Path(__file__).resolve().parents[1]
# What `generate`, `play`, `verify`, `doctor` and `bench` import, besides what these bring.
_MODULES = (
    *("inferno.cli.app", "inferno.cli.errors", "inferno.cli.generate", "inferno.cli.play"),
    *("inferno.cli.verify", "inferno.cli.doctor", "inferno.cli.bench", "inferno.llm"),
    *("inferno.cli.chat.start", "inferno.cli.chat.interactive", "inferno.cli.chat.plain"),
    *("inferno.engine.build", "inferno.models.common", "inferno.bench.measured_process"),
    "inferno.verify.run",
)


class Program:
    """A program that runs; `pid` is its process."""

    def __init__(self, talk: socket.socket) -> None:
        self._talk = talk.makefile("r")
        talk.close()
        self.pid = int(self._talk.readline())
        self._code: int | None = None

    def wait(self, timeout: float = PATIENCE) -> int:
        """Return the exit code, negative for a signal, once it has ended."""
        if self._code is None:
            ready, _, _ = select.select([self._talk], [], [], timeout)
            assert ready, "it goes on"
            self._code = os.waitstatus_to_exitcode(int(self._talk.readline()))
            self._talk.close()
        return self._code

    def kill(self) -> None:
        """End it at once, if it hasn't ended yet."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)
        self.wait()


class Forker:
    """A process that has imported what programs of `inferno` import, and forks them.

    variables   change its environment, and so what the imports find.
    """

    def __init__(self, variables: Mapping[str, str] | None = None) -> None:
        ours, theirs = socket.socketpair()
        environment = {**os.environ, "OMP_NUM_THREADS": "1", **(variables or {})}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.forked", str(theirs.fileno())],
            stdin=subprocess.DEVNULL,
            cwd=_ROOT,
            env=environment,
            pass_fds=[theirs.fileno()],
            start_new_session=True,  # Ctrl+C is for the tests
        )
        theirs.close()
        self._socket = ours

    def start(
        self,
        arguments: Sequence[str],
        files: Sequence[int],
        *,
        variables: Mapping[str, str | None] | None = None,
        is_terminal: bool = False,
    ) -> Program:
        """Start what `python` would with arguments that begin with -c or -m.

        files           are its standard input, output and error.
        variables       change its environment; None takes one away.
        is_terminal     whether the first file is a terminal that shall be its own.
        """
        environment: dict[str, str | None] = {**os.environ, **(variables or {})}
        request = {
            "arguments": list(arguments),
            "environment": {k: v for k, v in environment.items() if v is not None},
            "folder": os.getcwd(),
            "is_terminal": is_terminal,
        }
        ours, theirs = socket.socketpair()
        with theirs:
            socket.send_fds(self._socket, [b"."], [theirs.fileno(), *files])
        ours.sendall(json.dumps(request).encode() + b"\n")
        return Program(ours)

    def run(
        self,
        *arguments: str,
        stdin: str | bytes = "",
        variables: Mapping[str, str | None] | None = None,
    ) -> subprocess.CompletedProcess[str]:
        """Return how it ended and what it wrote."""
        with contextlib.ExitStack() as stack:
            files = [stack.enter_context(tempfile.TemporaryFile()) for _ in range(3)]
            files[0].write(stdin.encode() if isinstance(stdin, str) else stdin)
            files[0].seek(0)
            program = self.start(arguments, [f.fileno() for f in files], variables=variables)
            try:
                code = program.wait()
            finally:
                program.kill()
            for file in files:
                file.seek(0)
            _, out, err = (file.read().decode() for file in files)
        return subprocess.CompletedProcess(list(arguments), code, out, err)

    def close(self) -> None:
        """End the process that forks."""
        self._socket.close()
        self._process.wait(PATIENCE)


@cache
def forker() -> Forker:
    """Return the one of this session, which ends with it."""
    made = Forker()
    atexit.register(made.close)
    return made


def small_pipe() -> tuple[int, int]:
    """Return a pipe whose writer, where the system allows it, soon waits for its reader.

    What writes more can't have ended when the reader leaves, however late that is.
    """
    ends = os.pipe()
    if sys.platform == "linux":
        fcntl.fcntl(ends[1], fcntl.F_SETPIPE_SZ, 4096)
    return ends


def _serve(requests: socket.socket) -> dict[str, Any]:
    """Fork a program for each request; return in the program with what was asked for."""
    while True:
        with contextlib.suppress(ChildProcessError):  # there is none
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        message, files, _, _ = socket.recv_fds(requests, 1, 4)
        if not message:
            with contextlib.suppress(ChildProcessError):
                while os.waitpid(-1, 0):
                    pass
            os._exit(0)  # whoever asked is gone
        if not os.fork():
            requests.close()
            request = _watch(*files)
            _take(request, files[1:])
            return request
        for file in files:
            os.close(file)


def _watch(talk: int, *files: int) -> dict[str, Any]:
    """Fork the program, and tell of its process and its end; return in the program."""
    asker = socket.socket(fileno=talk)
    with asker.makefile("r") as lines:
        request: dict[str, Any] = json.loads(lines.readline())
    pid = os.fork()
    if not pid:
        asker.close()
        return request
    for file in files:
        os.close(file)
    asker.sendall(b"%d\n" % pid)
    _, status = os.waitpid(pid, 0)
    with contextlib.suppress(BrokenPipeError):
        asker.sendall(b"%d\n" % status)
    os._exit(0)


def _take(request: dict[str, Any], files: Sequence[int]) -> None:
    """Take the files, the folder and the environment that were asked for."""
    if request["is_terminal"]:
        os.login_tty(files[0])  # closes it
    else:
        for number, file in enumerate(files):
            os.dup2(file, number)
    for file in set(files):
        if file > 2:
            with contextlib.suppress(OSError):
                os.close(file)
    os.environ.clear()
    os.environ.update(request["environment"])
    os.chdir(request["folder"])
    sys.stdin = _text(0, "r", sys.stdin)
    sys.stdout = _text(1, "w", sys.stdout)
    sys.stderr = _text(2, "w", sys.stderr, line_buffering=True)
    for name in ("stdin", "stdout", "stderr"):
        setattr(sys, f"__{name}__", getattr(sys, name))


def _text(number: int, mode: str, old: TextIO, *, line_buffering: bool = False) -> TextIO:
    buffer: Any = open(number, mode + "b", closefd=False)  # noqa: SIM115 - stays open
    lines = line_buffering or buffer.isatty()
    text = io.TextIOWrapper(buffer, old.encoding, old.errors, line_buffering=lines)
    text.mode = mode  # type: ignore[misc]
    return text


def _program(arguments: Sequence[str]) -> Callable[[], object]:
    kind, what, *rest = arguments
    sys.argv = [kind, *rest]
    if kind == "-m":
        return lambda: runpy.run_module(what, run_name="__main__", alter_sys=True)
    return lambda: exec(compile(what, "<string>", "exec"), {"__name__": "__main__"})


if __name__ == "__main__":
    gc.disable()
    from inferno.torch_start import defer_tracing

    defer_tracing()
    for _name in _MODULES:
        __import__(_name)
    gc.collect()
    gc.freeze()
    gc.enable()
    _program(_serve(socket.socket(fileno=int(sys.argv[1])))["arguments"])()
