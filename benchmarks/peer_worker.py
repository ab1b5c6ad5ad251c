"""An engine in a process of its own, which does as it is told: JSON lines over pipes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

Command = Callable[..., Any]


class Worker:
    """The side that tells. Leaving the context ends the process."""

    def __init__(self, python: str, script: str) -> None:
        self._process = subprocess.Popen(
            [python, str(Path(__file__).with_name(script))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._name = script

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()

    def ask(self, command: str, **arguments: Any) -> Any:
        """What the command returns; ends the program where the process fails."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps({"command": command, "arguments": arguments}) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            sys.exit(f"{self._name} ended in mid-command ({command} {arguments}): see above")
        return json.loads(line)


def serve(commands: Mapping[str, Command]) -> None:
    """The side that does, until its input ends."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # libraries print what they like, but not among the answers
    for line in sys.stdin:
        asked = json.loads(line)
        result = commands[asked["command"]](**asked["arguments"])
        answers.write(json.dumps(result) + "\n")
        answers.flush()


def peak_memory() -> int:
    """The most bytes that this process has held in memory, mapped files included."""
    lines = Path("/proc/self/status").read_text().splitlines()
    [peak] = [line for line in lines if line.startswith("VmHWM:")]
    return int(peak.split()[1]) * 1024
