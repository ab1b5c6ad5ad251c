"""Supervisor: an engine is replaced when it makes no progress, and only then.

The engine is played by the test, at the other end of the socket. Time is counted in the
supervisor's heartbeats, of which each comes with a ping.
"""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest

from inferno.client import EngineFacts, EngineState
from inferno.client.process import ProcessClient
from inferno.client.spawned import Spawned
from inferno.client.supervisor import Patience
from inferno.client.wire import (
    FrameReader,
    FrameWriter,
    FromEngine,
    Loaded,
    Ping,
    Pong,
    decode_to_engine,
)
from inferno.hub.find import find_model_folder
from inferno.options import EngineOptions

OPTIONS = EngineOptions(model=find_model_folder("demo"), threads=1, num_blocks=16)
BEAT = 0.01
FACTS = EngineFacts(
    vocab_size=10,
    max_model_len=10,
    device="cpu",
    dtype="float32",
    kv_dtype="float32",
    attention="compiled",
    fingerprint="0",
    weight_bytes=1000,
    cache_bytes=0,
    num_blocks=1,
    block_size=16,
    max_num_seqs=1,
)

Reply = Callable[[int], list[FromEngine]]  # to the ping of that number


@dataclass
class Played:
    """An engine that answers pings as it is told, for as long as its process lives."""

    process: subprocess.Popen[bytes]
    theirs: socket.socket
    ours: socket.socket
    num_pings: int = 0

    async def play(self, reply: Reply) -> None:
        loop = asyncio.get_running_loop()
        frames, writer = FrameReader(), FrameWriter()
        while data := await loop.sock_recv(self.theirs, 1 << 16):
            for body in frames.feed(data):
                if isinstance(decode_to_engine(body), Ping):
                    self.num_pings += 1
                    for message in reply(self.num_pings):
                        await loop.sock_sendall(self.theirs, writer.frame(message))


@pytest.fixture
def played() -> Iterator[Played]:
    ours, theirs = socket.socketpair()
    theirs.setblocking(False)
    waits_for_its_end = [sys.executable, "-c", "input()"]
    process = subprocess.Popen(waits_for_its_end, stdin=subprocess.PIPE)
    with process, ours, theirs:
        yield Played(process, theirs, ours)
        process.kill()


def life_of(played: Played, reply: Reply, patience: Patience, *, num_pings: int) -> str | None:
    """Why the engine was killed; None if it lived for so many pings."""

    async def main() -> str | None:
        client = ProcessClient(
            OPTIONS, patience=patience, first=Spawned(played.process, played.ours)
        )
        await client.start()
        playing = asyncio.create_task(played.play(reply))
        try:
            while played.num_pings < num_pings:
                await asyncio.sleep(BEAT / 2)
                if client.state is EngineState.RESTARTING and client.problem is not None:
                    return client.problem
            return None
        finally:
            playing.cancel()
            await client.close()

    return asyncio.run(main())


def working(num_turns: Callable[[int], int], expected_seconds: float | None = None) -> Reply:
    """A loaded engine that has made so many turns at a ping, and expects so much of a step."""

    def reply(number: int) -> list[FromEngine]:
        first: list[FromEngine] = [Loaded(FACTS)] if number == 1 else []
        return [*first, Pong(num_turns(number), False, expected_seconds)]

    return reply


PATIENCE = Patience(heartbeat=BEAT, load=20 * BEAT, step=20 * BEAT, first_delay=1000.0)


def test_a_step_that_is_quick_by_rights_is_a_hang_after_the_least_time(played: Played) -> None:
    words = life_of(played, working(lambda _: 7, 0.001), PATIENCE, num_pings=500)
    assert words == "it made no progress for 0.2 seconds and was killed"
    assert played.process.poll() is not None


def test_a_step_may_take_twenty_times_what_is_expected(played: Played) -> None:
    words = life_of(played, working(lambda _: 7, 4 * BEAT), PATIENCE, num_pings=500)
    assert words == "it made no progress for 0.8 seconds and was killed"


def test_what_is_expected_may_change_from_step_to_step(played: Played) -> None:
    """A long step that follows a quick one has its own time."""

    def reply(number: int) -> list[FromEngine]:
        is_long = number > 10
        return working(lambda _: 8 if is_long else 7, 4 * BEAT if is_long else 0.001)(number)

    words = life_of(played, reply, PATIENCE, num_pings=500)
    assert words == "it made no progress for 0.8 seconds and was killed"


def test_an_engine_that_makes_turns_is_left_alone(played: Played) -> None:
    assert life_of(played, working(lambda n: n // 5, 0.001), PATIENCE, num_pings=100) is None


def test_an_engine_that_waits_for_work_is_left_alone(played: Played) -> None:
    def reply(number: int) -> list[FromEngine]:
        return [Loaded(FACTS), Pong(3, True)] if number == 1 else [Pong(3, True, 0.001)]

    assert life_of(played, reply, PATIENCE, num_pings=100) is None


def test_loading_that_goes_on_may_take_any_time(played: Played) -> None:
    def reply(number: int) -> list[FromEngine]:
        return [Pong(number // 5, False)]  # pieces that have no size: compiling, packing

    assert life_of(played, reply, PATIENCE, num_pings=100) is None


def test_loading_that_stands_still_is_a_hang(played: Played) -> None:
    words = life_of(played, lambda n: [Pong(min(n, 30), False)], PATIENCE, num_pings=500)
    assert words == "it made no progress for 0.2 seconds while it was loading and was killed"
    assert played.num_pings > 30


def test_a_process_that_never_says_a_word_is_a_hang(played: Played) -> None:
    patience = Patience(heartbeat=BEAT, start=30 * BEAT, first_delay=1000.0)
    words = life_of(played, lambda _: [], patience, num_pings=500)
    assert words == "it made no progress for 0.3 seconds while it was starting and was killed"


def test_auto_is_twenty_seconds_or_twenty_times_what_is_expected() -> None:
    auto = Patience.of(None)
    assert auto.of_step(0.01, weight_bytes=10**9) == 20.0
    assert auto.of_step(3.0, weight_bytes=10**9) == 60.0
    # Of the first step nothing is known but how much it has to read.
    assert auto.of_step(None, weight_bytes=10**6) == 20.0
    assert 20.0 < auto.of_step(None, weight_bytes=10**9) < auto.of_step(None, weight_bytes=10**11)
    assert auto.of_step(None, weight_bytes=10**13) <= 600.0


@pytest.mark.parametrize("seconds", [0.5, 7.0, 900.0])
def test_a_number_overrides(seconds: float) -> None:
    given = Patience.of(seconds)
    assert {given.of_step(expected, 10**12) for expected in (None, 0.001, 1e6)} == {seconds}
    assert given.load == seconds
    assert given.heartbeat <= seconds / 4
