"""What another process writes of its own accord: each a line of the log that says whose it is."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from inferno.client.process import ProcessClient
from inferno.client.spawned import EngineLog
from inferno.client.supervisor import Patience
from inferno.engine.process.fault_injection import VARIABLE
from inferno.hub.find import find_model_folder
from inferno.options import EngineOptions

OPTIONS = EngineOptions(model=find_model_folder("demo"), threads=1, num_blocks=16)
NOISY = """
import logging, sys, threading, warnings

warnings.warn("an old way\\nof two lines")
logging.getLogger("inferno").info("by the way")
logging.getLogger("inferno").debug("in detail")
logging.getLogger("some.library").warning("careful: %s", "x\\ny")
logging.getLogger("some.library").info("chatter")

def fail():
    raise KeyError("in a thread")

thread = threading.Thread(target=fail)
thread.start()
thread.join()
raise ValueError(f"{__name__} {sys.argv[1:]}")
"""


def stderr_of(folder: Path, program: str, format: str, level: str) -> list[str]:
    """The lines of a module that is run so; it must fail."""
    (folder / "noisy.py").write_text(program)
    done = subprocess.run(
        [sys.executable, "-P", "-m", "inferno.client.logged_child", format, level, "noisy", "a"],
        env={**os.environ, "PYTHONPATH": f"{folder}:{os.environ.get('PYTHONPATH', '')}"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (1, "")
    return done.stderr.splitlines()


def test_every_line_is_an_object_that_names_process_logger_and_level(tmp_path: Path) -> None:
    lines = [json.loads(line) for line in stderr_of(tmp_path, NOISY, "json", "info")]
    assert {line["process"] for line in lines} == {"engine"}
    told = [(line["level"], line["logger"]) for line in lines]
    assert told == [
        ("warning", "py.warnings"),
        ("info", "inferno"),
        ("warning", "some.library"),
        ("critical", "inferno"),
        ("critical", "inferno"),
    ]
    assert "UserWarning: an old way\nof two lines" in lines[0]["message"]
    assert lines[2]["message"] == "careful: x\ny"
    assert (lines[3]["exception"], lines[3]["error"]) == ("KeyError", "'in a thread'")
    assert (lines[4]["exception"], lines[4]["error"]) == ("ValueError", "__main__ ['a']")
    assert lines[4]["at"][-1].endswith(" <module>")


@pytest.mark.parametrize(("level", "num"), [("debug", 6), ("warning", 4), ("error", 2)])
def test_the_level_is_that_of_the_server(tmp_path: Path, level: str, num: int) -> None:
    assert len(stderr_of(tmp_path, NOISY, "json", level)) == num


def test_text_lines_are_as_the_servers(tmp_path: Path) -> None:
    lines = stderr_of(tmp_path, NOISY, "text", "info")
    assert lines[1].endswith(" INFO    by the way")
    assert len(lines) == 5


def test_engines_write_so_the_first_and_those_after_it(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, "load:fail")
    asyncio.run(_until_two_failed(EngineLog("json", "warning")))
    lines: list[dict[str, Any]] = [json.loads(line) for line in capfd.readouterr().err.splitlines()]
    assert [line["process"] for line in lines] == ["engine"] * len(lines)
    on_purpose = [line for line in lines if "fails on purpose" in line["message"]]
    stopped = [line for line in lines if line.get("exception") == "Fault"]
    assert len(stopped) >= 2
    assert len(on_purpose) >= len(stopped)
    assert {line["level"] for line in stopped} == {"error"}


async def _until_two_failed(log: EngineLog) -> None:
    client = ProcessClient(OPTIONS, patience=Patience(first_delay=0.001), log=log)
    try:
        await client.start()
        while client.recovery is None or client.recovery.num_failures < 2:
            await asyncio.sleep(0.01)
    finally:
        await client.close()
