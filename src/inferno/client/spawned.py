"""Start an engine's process, which imports PyTorch before anybody talks to it."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

_ENGINE = "inferno.engine.process.serve"
_LOGGED = "inferno.client.logged_child"
_STDERR = 2
_REAP_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class EngineLog:
    """The format and level of an engine's log, on the standard error that it shares with us."""

    format: str
    level: str


@dataclass(frozen=True, slots=True)
class Spawned:
    """A process, and our end of the socket to it."""

    process: subprocess.Popen[bytes]
    connection: socket.socket


def spawn(log: EngineLog | None = None) -> Spawned:
    """Start a process, from a thread that stays: Linux ends the process when its thread ends."""
    ours, theirs = socket.socketpair()
    with theirs:
        try:
            return Spawned(_popen(theirs.fileno(), log), ours)
        except OSError:
            ours.close()
            raise


@contextmanager
def spawned(log: EngineLog | None = None) -> Iterator[Spawned]:
    """Yield a started process; kill it at the block's end if it still runs."""
    started = spawn(log)
    try:
        yield started
    finally:
        started.connection.close()
        started.process.kill()
        with suppress(subprocess.TimeoutExpired):
            started.process.wait(_REAP_SECONDS)


def _popen(fd: int, log: EngineLog | None) -> subprocess.Popen[bytes]:
    modules = [_ENGINE] if log is None else [_LOGGED, log.format, log.level, _ENGINE]
    return subprocess.Popen(
        # -P: the folder we are in doesn't pass for a place of modules.
        [sys.executable, "-P", "-m", *modules, str(fd)],
        pass_fds=[fd],
        stdin=subprocess.DEVNULL,
        stdout=_STDERR,
        process_group=0,  # Ctrl+C in the terminal is the parent's business
    )
