"""`inferno serve` as a page's reader starts it, in a process of its own, on a free port."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.patience import PATIENCE

DOCUMENTED = "localhost:8000"
_START_SECONDS = PATIENCE
_STOP_SECONDS = PATIENCE


@dataclass(frozen=True)
class Server:
    """One that runs: where, and what it logs."""

    address: str
    log: Path

    def here(self, text: str) -> str:
        """The text of a page, with this server's address for the documented one."""
        return text.replace(DOCUMENTED, self.address)

    def lines(self) -> list[dict[str, Any]]:
        """What it has logged, line by line."""
        return [json.loads(line) for line in self.log.read_text().splitlines()]


@contextlib.contextmanager
def serving(command: str, folder: Path, *options: str) -> Iterator[Server]:
    """Run the command in the folder until the block ends; it must exit well on SIGTERM."""
    words = shlex.split(command)
    assert words[:2] == ["inferno", "serve"], command
    free = [] if "--uds" in words else ["--port", "0"]
    environment = {key: value for key, value in os.environ.items() if key != "INFERNO_API_KEY"}
    log = folder / "log"
    with log.open("wb") as stderr:
        process = subprocess.Popen(
            [sys.executable, "-m", "inferno", *words[1:], *free, *options],
            cwd=folder,
            stderr=stderr,
            env=environment,
        )
    try:
        yield Server(_address(process, log), log)
        process.send_signal(signal.SIGTERM)
        assert process.wait(_STOP_SECONDS) == 0, log.read_text()
    finally:
        process.kill()
        process.wait()


def _address(process: subprocess.Popen[bytes], log: Path) -> str:
    """Where it listens, as soon as it is ready."""
    until = time.monotonic() + _START_SECONDS
    while '"ready"' not in (said := log.read_text()):
        assert process.poll() is None, f"it ended: {said}"
        assert time.monotonic() < until, f"it isn't ready: {said}"
        time.sleep(0.05)
    [url] = json.loads(said.splitlines()[0])["at"]
    host, _, port = str(url).rpartition(":")
    return url if host == "unix" else f"localhost:{port}"
