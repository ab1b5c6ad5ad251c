"""What docs/worker.md shows does happen: its commands, its program, its tables."""

from __future__ import annotations

import contextlib
import json
import re
import shlex
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from inferno.server.worker import messages
from inferno.server.worker.messages import EVENTS
from tests.docs.pages import PAGES, blocks, commands, dialogues, rows, section
from tests.docs.test_server_page import is_as_shown, run
from tests.patience import PATIENCE
from tests.server.http.serving import wait_until

PAGE = "docs/worker.md"
[START] = [one for one in commands(PAGE) if one.startswith("inferno worker")]
DIALOGUES = [one for one in dialogues(PAGES[PAGE]) if one[0].startswith("curl")]


@contextlib.contextmanager
def worker(folder: Path, receiver: int) -> Iterator[dict[str, Any]]:
    """The page's worker, whose receiver listens on that port; and its log as it stands ready."""
    words = shlex.split(START.replace("8080", str(receiver)).replace("--port 9000", "--port 0"))
    log = folder / "log"
    with log.open("wb") as stderr:
        command = [sys.executable, "-m", "inferno", *words[1:], "--threads", "1"]
        process = subprocess.Popen(command, cwd=folder, stderr=stderr)
    try:
        wait_until(lambda: '"ready"' in log.read_text())
        yield json.loads(log.read_text().splitlines()[0])
    finally:
        process.kill()
        process.wait()


def free_port() -> int:
    with socket.create_server(("localhost", 0)) as listener:
        return int(listener.getsockname()[1])


@pytest.mark.slow
def test_the_program_and_the_commands_print_what_is_shown(tmp_path: Path) -> None:
    port = free_port()
    [program] = blocks(PAGE, "python")
    with subprocess.Popen(
        [sys.executable, "-c", program.replace("8080", str(port))],
        stdout=subprocess.PIPE,
        text=True,
    ) as fleet:
        try:
            with worker(tmp_path, port) as listening:
                printed, _ = fleet.communicate(timeout=PATIENCE)
                assert "4" in printed
                here = listening["at"][0].removeprefix("http://")
                for command, shown in DIALOGUES:
                    told = run(command.replace("localhost:9000", here), tmp_path)
                    assert is_as_shown(shown, told), f"{command} prints {told}"
        finally:
            fleet.kill()


def test_every_field_of_the_ready_message_is_there() -> None:
    cells = [row[0] for row in rows(section(PAGE, "## The ready message"))]
    named = {name for cell in cells for name in re.findall(r"`(\w+)`", cell)}
    assert named == {"type", *messages.Ready.__struct_fields__}
    for part in (messages.Model, messages.Device, messages.Memory, messages.Capabilities):
        text = section(PAGE, "## The ready message")
        assert all(f"`{name}`" in text for name in part.__struct_fields__), part


def test_every_event_is_there_with_its_fields() -> None:
    table = {row[0].strip("`"): row[1] for row in rows(section(PAGE, "## Events")) if len(row) == 2}
    assert table.keys() - {"Event"} == EVENTS.keys()
    for name in ("started", "token", "metrics", "end"):
        fields = set(EVENTS[name].__struct_fields__) - {"job_id"}
        assert {field for field in fields if f"`{field}`" not in table[name]} == set()
