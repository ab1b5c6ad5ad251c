"""`inferno serve` in a process that is watched: its time, its memory, its open files."""

from __future__ import annotations

import http.client
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

KEY = "sk-of-the-benchmark"
_COMMAND = (sys.executable, "-P", "-m", "inferno", "serve")
_PAGE = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True, slots=True)
class Process:
    """One that runs, by its number."""

    pid: int

    @property
    def cpu_seconds(self) -> float:
        """What all its threads have used, to the nanosecond."""
        threads = Path(f"/proc/{self.pid}/task").iterdir()
        return sum(int((each / "schedstat").read_text().split()[0]) for each in threads) / 1e9

    @property
    def resident_bytes(self) -> int:
        """Its memory."""
        return int(Path(f"/proc/{self.pid}/statm").read_text().split()[1]) * _PAGE

    @property
    def num_files(self) -> int:
        """Those that it holds open, sockets among them."""
        return len(os.listdir(f"/proc/{self.pid}/fd"))


@dataclass(frozen=True, slots=True)
class Server:
    """A server that is ready: the parent, which speaks HTTP, and the engine's process."""

    port: int
    parent: Process

    @property
    def engine(self) -> Process:
        """The engine's process."""
        pid = self.parent.pid
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        return next(Process(int(each)) for each in children if _is_engine(int(each)))

    def get(self, path: str) -> bytes:
        """What a route answers; OSError where that isn't 200."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            connection.request("GET", path, headers={"Authorization": f"Bearer {KEY}"})
            answer = connection.getresponse()
            if answer.status != 200:
                raise OSError(f"{path} answered {answer.status}")
            return answer.read()
        finally:
            connection.close()


@contextmanager
def serving(*options: str) -> Iterator[Server]:
    """A server with these options, once it is ready."""
    with started(*options) as (port, process, log):
        server = Server(port, Process(process.pid))
        while not _is_ready(server):
            if process.poll() is not None:
                log.seek(0)
                raise OSError(f"the server ended: {log.read().decode()[-2000:]}")
            time.sleep(0.05)
        yield server


@contextmanager
def started(*options: str) -> Iterator[tuple[int, subprocess.Popen[bytes], IO[bytes]]]:
    """A server that was just begun, the port that it will listen on, and what it logs."""
    port = _free_port()
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(
            [*_COMMAND, *options, "--port", str(port), "--api-key", f"inference,admin:{KEY}"],
            stderr=log,
        )
        try:
            yield port, process, log
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(60)


def _is_ready(server: Server) -> bool:
    try:
        server.get("/ready")
    except OSError:
        return False
    return True


def _is_engine(pid: int) -> bool:
    return b"engine.process.serve" in Path(f"/proc/{pid}/cmdline").read_bytes()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
        assert isinstance(port, int)
        return port
