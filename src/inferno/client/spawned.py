"""An engine's process in its first moments, while it imports PyTorch and nobody talks to it yet."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

_STDERR = 2
_REAP_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Spawned:
    """A process, and our end of the socket to it."""

    process: subprocess.Popen[bytes]
    connection: socket.socket


def spawn() -> Spawned:
    """Start a process, from a thread that stays: Linux ends the process with that thread."""
    ours, theirs = socket.socketpair()
    with theirs:
        try:
            return Spawned(_popen(theirs.fileno()), ours)
        except OSError:
            ours.close()
            raise


@contextmanager
def spawned() -> Iterator[Spawned]:
    """A process, to be given to whom needs one; it is killed in the end if it still runs."""
    started = spawn()
    try:
        yield started
    finally:
        started.connection.close()
        started.process.kill()
        with suppress(subprocess.TimeoutExpired):
            started.process.wait(_REAP_SECONDS)


def _popen(fd: int) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        # -P: the folder we are in doesn't pass for a place of modules.
        [sys.executable, "-P", "-m", "inferno.engine.serve_child", str(fd)],
        pass_fds=[fd],
        stdin=subprocess.DEVNULL,
        stdout=_STDERR,
        process_group=0,  # Ctrl+C in the terminal is the parent's business
    )
