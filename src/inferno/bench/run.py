"""Do a job in a process of its own, so that its cold start is one, and say what was found."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict
from typing import IO, Any

from inferno import errors
from inferno.bench.measurement import Findings, Job, Limits, Run, Subject, Work
from inferno.errors import EngineDied, InfernoError, InvalidRequest

_logger = logging.getLogger("inferno")


def run(job: Job, tell: Callable[[str], None], *, debug: bool = False) -> Findings:
    """Run a job in a process of its own and return its findings; `tell` hears its progress.

    With `debug` the process writes to our standard error. Raises what LLM raises, and EngineDied
    where the process ended early.
    """
    tell("loading")
    begun, cold_start = time.perf_counter(), 0.0
    with tempfile.TemporaryFile() as log, _started(job, None if debug else log) as child:
        assert child.stdout is not None
        for line in child.stdout:
            match _parse(line):
                case {"first_token": True}:
                    cold_start = time.perf_counter() - begun
                case {"doing": str(what)}:
                    tell(what)
                case {"warning": str(text)}:
                    _logger.warning("%s", text)
                case {"error": str(message), "kind": str(kind), "param": str() | None as param}:
                    raise _error(kind, message, param)
                case {"found": dict(found)}:
                    return _found(found, cold_start)
        log.seek(0)
        last = log.read().decode(errors="replace").strip().rpartition("\n")[2]
        raise EngineDied(
            f"the process that is measured ended with exit code {child.wait()}, maybe for want of "
            f"memory: {last[:300] or 'it said nothing'}"
        )


@contextmanager
def _started(job: Job, log: IO[bytes] | None) -> Iterator[subprocess.Popen[bytes]]:
    child = subprocess.Popen(
        [sys.executable, "-P", "-m", "inferno.bench.measured_process"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=log,
        process_group=0,  # Ctrl+C in the terminal is the parent's business
    )
    assert child.stdin is not None
    try:
        with suppress(BrokenPipeError):  # it ended at once: its output says why
            child.stdin.write(json.dumps(asdict(job)).encode() + b"\n")
            child.stdin.flush()
        yield child
    finally:
        child.kill()
        child.wait()
        with suppress(BrokenPipeError):
            child.stdin.close()
        if child.stdout is not None:
            child.stdout.close()


def _parse(line: bytes) -> object:
    try:
        return json.loads(line)
    except ValueError:  # cut short by its end, or printed by some library
        return None


def _error(kind: str, message: str, param: str | None) -> InfernoError:
    made = getattr(errors, kind)(message)
    assert isinstance(made, InfernoError)
    if isinstance(made, InvalidRequest):
        made.param = param
    return made


def _found(values: dict[str, Any], cold_start: float) -> Findings:
    return Findings(
        cold_start=cold_start,
        runs=tuple(Run(**one) for one in values["runs"]),
        subject=Subject(**values["subject"]),
        work=Work(**values["work"]),
        limits=Limits(**values["limits"]),
    )
