"""An engine's process that loses its parent, or is sent nonsense, ends by itself."""

from __future__ import annotations

import asyncio
import pickle
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from inferno.client import wire
from inferno.client.process import ProcessClient
from inferno.client.spawned import Spawned, spawned
from inferno.hub.find import find_model_folder
from inferno.options import EngineOptions
from inferno.requests import Request, SamplingParams
from tests.client.test_process import LOG, OPTIONS, is_running
from tests.patience import PATIENCE

PARENT = """
from inferno.torch_start import defer_tracing
defer_tracing()  # which takes much of the start
import asyncio
from inferno.client.process import ProcessClient
from inferno.client.spawned import EngineLog
from inferno.hub.find import find_model_folder
from inferno.options import EngineOptions
from inferno.requests import Request, SamplingParams

async def main():
    options = EngineOptions(model=find_model_folder("demo"), threads=1)
    client = ProcessClient(options, log=EngineLog("text", "warning"))
    await client.wait_ready()
    request = Request(request_id="a", prompt_token_ids=(5,), params=SamplingParams(max_tokens=900))
    async for event in client.generate(request):
        print(client.pid, flush=True)

asyncio.run(main())
"""


LOGGED = [sys.executable, "-m", "inferno.client.logged_child", "text", "warning"]


def is_gone(pid: int, seconds: float = PATIENCE) -> bool:
    """Whether a process ends in time."""
    deadline = time.monotonic() + seconds
    while is_running(pid):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


@contextmanager
def engine_process(faults: str = "") -> Iterator[tuple[subprocess.Popen[bytes], socket.socket]]:
    """The process and our end of its socket, told to load a model."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        process = subprocess.Popen(
            [*LOGGED, "inferno.engine.process.serve", str(theirs.fileno())],
            pass_fds=[theirs.fileno()],
            stderr=subprocess.PIPE,
            env={"INFERNO_FAULTS": faults},
        )
        theirs.close()
        options = EngineOptions(model=find_model_folder("demo"), threads=1, num_blocks=64)
        ours.sendall(wire.FrameWriter().frame(wire.Start(options, 0)))
        try:
            yield process, ours
        finally:
            process.kill()
            process.communicate()


@pytest.mark.slow
def test_a_parent_killed_in_the_middle_of_a_step_leaves_no_orphan(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("INFERNO_FAULTS", "step:hang@3")
    with subprocess.Popen([sys.executable, "-c", PARENT], stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())  # tokens may come together: one line is sure
        time.sleep(0.3)
        assert is_running(pid)
        parent.send_signal(signal.SIGKILL)
        parent.wait()
        assert is_gone(pid)


@pytest.mark.slow
def test_a_closed_socket_ends_a_process_that_loads() -> None:
    """As where the kernel does not tell a process that its parent died."""
    with engine_process("load:hang") as (process, ours):
        ours.close()
        assert process.wait(timeout=PATIENCE) != 0


@pytest.mark.slow
def test_an_engine_at_work_says_how_long_its_step_takes_and_ends_with_its_socket() -> None:
    request = Request(
        request_id="a",
        prompt_token_ids=(5,),
        params=SamplingParams(max_tokens=900, ignore_eos=True),
    )
    with engine_process() as (process, ours):
        writer, frames = wire.FrameWriter(), wire.FrameReader()
        writer.frame(wire.Ping())  # takes the place of Start, which was sent
        pings = 0

        def answers() -> Iterator[wire.FromEngine]:
            while data := ours.recv(1 << 16):
                yield from map(wire.decode_from_engine, frames.feed(data))

        for message in answers():
            match message:
                case wire.Loaded():
                    ours.sendall(writer.frame(wire.Add(request)) + writer.frame(wire.Ping()))
                case wire.Pong(_, False, seconds) if seconds is not None:
                    assert 0 < seconds < 60
                    break
                case wire.Pong():  # it has made no step yet
                    pings += 1
                    assert pings < 100_000
                    ours.sendall(writer.frame(wire.Ping()))
        else:
            raise AssertionError("the process ended")
        ours.close()
        assert process.wait(timeout=PATIENCE) != 0


class Evil:
    """A pickle that touches a file."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return (open, (str(self._path), "w"))  # type: ignore[return-value]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["giant", "pickle"])
def test_nonsense_ends_the_process_and_runs_nothing(kind: str, tmp_path: Path) -> None:
    target = tmp_path / "touched"
    body = pickle.dumps(Evil(target))
    nonsense = {
        "giant": struct.pack("<II", 2**32 - 1, 1),
        "pickle": struct.pack("<II", len(body), 1) + body,
    }
    with engine_process() as (process, ours):
        ours.recv(1)
        ours.sendall(nonsense[kind])
        while ours.recv(1 << 16):  # what it said before
            pass
        assert process.wait(timeout=PATIENCE) != 0
        assert process.stderr is not None
        assert b"nonsense" in process.stderr.read()
    assert not target.exists()


def test_a_process_that_was_started_early_becomes_the_engines() -> None:
    async def main(first: Spawned) -> None:
        client = ProcessClient(OPTIONS, first=first, log=LOG)
        await client.wait_ready()
        assert client.pid == first.process.pid
        await client.close()

    with spawned(LOG) as first:
        asyncio.run(main(first))
        assert first.process.returncode == 0  # by itself, as it was told to
    with spawned(LOG) as first:
        first.process.kill()  # before anybody needed it
        with asyncio.Runner() as runner:
            client = runner.run(ready(first))
            assert client.pid not in (None, first.process.pid)
            runner.run(client.close())


async def ready(first: Spawned) -> ProcessClient:
    client = ProcessClient(OPTIONS, first=first, log=LOG)
    await client.wait_ready()
    return client


def test_a_process_that_was_started_early_and_not_needed_is_killed() -> None:
    with pytest.raises(KeyError), spawned(LOG) as first:
        raise KeyError
    assert first.process.returncode == -signal.SIGKILL
