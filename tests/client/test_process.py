"""ProcessClient: real engine processes answer as one in this process does, and are replaced."""

from __future__ import annotations

import asyncio
import itertools
import os
import signal
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from inferno.client import EngineClient, EngineState, EngineStats, supervisor
from inferno.client.inline import InlineClient
from inferno.client.process import ProcessClient
from inferno.client.spawned import EngineLog, Spawned
from inferno.client.supervisor import Patience
from inferno.engine.build import build_engine
from inferno.errors import EngineDied, InvalidRequest, ModelNotFound, NeverFits
from inferno.hub.find import find_model_folder
from inferno.options import EngineOptions
from inferno.requests import FinishReason, Request, SamplingParams, TokenEvent
from tests.patience import PATIENCE

OPTIONS = EngineOptions(model=find_model_folder("demo"), threads=1, num_blocks=256)
LOG = EngineLog("text", "warning")  # as servers have it; such a process starts sooner
ENDLESS = 900  # tokens, of a context of 1024
_NUMBERS = itertools.count()


def make_request(max_tokens: int = 8, *, n: int = 1, temperature: float = 0.0) -> Request:
    number = next(_NUMBERS)
    return Request(
        request_id=f"request-{number}",
        prompt_token_ids=(5, 6, 7 + number % 50),
        params=SamplingParams(
            max_tokens=max_tokens, n=n, temperature=temperature, seed=number, logprobs=2
        ),
    )


async def collect(client: EngineClient, request: Request) -> dict[int, TokenEvent]:
    """Per sample all events as one, but for what a clock said."""
    got: dict[int, TokenEvent] = {}
    async for event in client.generate(request):
        first = got.get(event.sequence_index, event._replace(token_ids=(), logprobs=()))
        got[event.sequence_index] = event._replace(
            token_ids=first.token_ids + event.token_ids,
            logprobs=first.logprobs + event.logprobs,
            queue_seconds=0.0,
            proposals=(),  # a clock decides whether it pays to propose
        )
    return got


async def begin(client: ProcessClient, max_tokens: int = ENDLESS) -> AsyncGenerator[TokenEvent]:
    """A request of which the first event is read."""
    events = client.generate(make_request(max_tokens))
    await anext(events)
    return events


def run(test: Coroutine[None, None, None]) -> None:
    asyncio.run(asyncio.wait_for(test, PATIENCE))


async def until(is_so: Callable[[], bool], seconds: float = PATIENCE) -> None:
    deadline = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < deadline, "it does not come to that"
        await asyncio.sleep(0.01)


async def settled(client: ProcessClient) -> EngineStats:
    """Return counters that have all of the tests before: one of two snapshots may be older."""
    for _ in range(2):
        last = client._stats
        while client._stats is last:
            await asyncio.sleep(0.01)
    return client.stats()


def is_idle(client: ProcessClient) -> bool:
    stats = client.stats()
    return not (stats.running or stats.waiting or stats.blocks_used)


def failures_of(client: ProcessClient) -> int:
    return 0 if client.recovery is None else client.recovery.num_failures


def is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


class Served:
    """A client and the event loop that it lives in."""

    def __init__(self, runner: asyncio.Runner) -> None:
        self._runner = runner
        self.client = runner.run(self._start())

    async def _start(self) -> ProcessClient:
        client = ProcessClient(OPTIONS, patience=Patience(heartbeat=0.2), log=LOG)
        await client.wait_ready()
        return client

    def run(self, test: Callable[[ProcessClient], Awaitable[None]]) -> None:
        async def limited() -> None:
            await self.client.wait_ready()
            await asyncio.wait_for(test(self.client), PATIENCE)

        self._runner.run(limited())


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    """One engine for all tests that leave one behind."""
    with asyncio.Runner() as runner:
        served = Served(runner)
        pid = served.client.pid
        yield served
        pid = served.client.pid
        runner.run(served.client.close())
        assert pid is not None
        assert not is_running(pid)


@asynccontextmanager
async def own_client(
    options: EngineOptions = OPTIONS, *, patience: Patience | None = None
) -> AsyncGenerator[ProcessClient]:
    client = ProcessClient(options, patience=patience or Patience(heartbeat=0.1), log=LOG)
    try:
        yield client
    finally:
        await client.close()


# It is an engine like any other


def test_answers_are_those_of_an_engine_in_this_process(served: Served) -> None:
    async def main(client: ProcessClient) -> None:
        inline = InlineClient(build_engine(OPTIONS))
        requests = [make_request(20, n=1 + i % 3, temperature=i % 2 * 0.8) for i in range(12)]
        expected = await asyncio.gather(*(collect(inline, request) for request in requests))
        got = await asyncio.gather(*(collect(client, request) for request in requests))
        assert got == expected
        await inline.close()

    served.run(main)


def test_facts_and_counters_are_true(served: Served) -> None:
    async def main(client: ProcessClient) -> None:
        facts, before = client.facts, await settled(client)
        assert facts is not None
        assert (facts.num_blocks, facts.block_size, facts.max_num_seqs) == (256, 16, 64)
        assert (client.vocab_size, client.max_model_len) == (facts.vocab_size, facts.max_model_len)
        request = replace(make_request(5), prompt_token_ids=tuple(range(5, 45)))
        await collect(client, request)
        await collect(client, replace(request, request_id="again"))
        await until(lambda: client.stats().cached_tokens - before.cached_tokens == 32)
        after = client.stats()
        assert after.prompt_tokens - before.prompt_tokens == 80
        assert after.generated_tokens - before.generated_tokens == 10
        assert after.blocks_free + after.blocks_cached + after.blocks_used == 256

    served.run(main)


def test_the_engine_gives_way_to_its_parent(served: Served) -> None:
    pid = served.client.pid
    assert pid is not None
    own = os.getpriority(os.PRIO_PROCESS, 0)
    assert os.getpriority(os.PRIO_PROCESS, pid) == min(own + 5, 19)


def test_refusals_keep_their_type(served: Served) -> None:
    async def main(client: ProcessClient) -> None:
        too_long = replace(make_request(), prompt_token_ids=(1,) * 2000)
        with pytest.raises(NeverFits):
            await collect(client, too_long)
        for bad, param in (
            (replace(make_request(), prompt_token_ids=(2**31,)), "prompt_token_ids"),
            (replace(make_request(), cache_salt="\ud800"), None),
            (replace(make_request(), priority=2**70), None),
        ):
            with pytest.raises(InvalidRequest) as caught:
                await collect(client, bad)
            assert caught.value.param == param
        assert len(await collect(client, make_request())) == 1

    served.run(main)


def test_leaving_a_request_frees_its_blocks(served: Served) -> None:
    async def main(client: ProcessClient) -> None:
        before = client.stats()
        # So many that they are under way when the next figures come, however fast the machine.
        events = [await begin(client) for _ in range(24)]
        await until(lambda: client.stats().running > 0)
        for each in events:
            await each.aclose()
        await until(lambda: is_idle(client))
        assert client.stats().generated_tokens - before.generated_tokens < 24 * ENDLESS

    served.run(main)


def test_one_sample_can_be_ended(served: Served) -> None:
    async def main(client: ProcessClient) -> None:
        request = make_request(40, n=2)
        endings = {}
        async for event in client.generate(request):
            client.abort(request.request_id, 1)
            if event.finish_reason is not None:
                endings[event.sequence_index] = event.finish_reason
        assert endings == {0: FinishReason.LENGTH, 1: FinishReason.ABORTED}

    served.run(main)


def test_a_slow_reader_gets_all_tokens_in_few_events(served: Served) -> None:
    async def main(client: ProcessClient) -> None:
        request, before = make_request(300), await settled(client)
        events = client.generate(request)
        got = [await anext(events)]
        await until(lambda: client.stats().generated_tokens - before.generated_tokens == 300)
        got += [event async for event in events]
        whole = await collect(client, replace(request, request_id="again"))
        assert sum((event.token_ids for event in got), ()) == whole[0].token_ids
        assert len(got) < 10

    served.run(main)


# It dies, and is replaced


def test_a_killed_engine_ends_its_requests_at_once_and_is_replaced(served: Served) -> None:
    async def main(client: ProcessClient) -> None:
        await collect(client, make_request())
        await until(lambda: client.stats().generated_tokens > 0)
        before, events, pid = client.stats(), await begin(client), client.pid
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        with pytest.raises(EngineDied):
            _ = [event async for event in events]
        assert client.state is EngineState.RESTARTING
        with pytest.raises(EngineDied, match="again"):
            await collect(client, make_request())
        await client.wait_ready()
        assert not is_running(pid)  # nor a zombie
        assert len(await collect(client, make_request())) == 1
        after = client.stats()
        assert after.restarts == before.restarts + 1
        assert after.generated_tokens >= before.generated_tokens

    served.run(main)


@pytest.mark.slow
@pytest.mark.parametrize("fault", ["step:exit@3", "step:fail@3", "ipc.send:drop@99"])
def test_an_engine_with_a_fault_is_replaced_by_one_without(
    fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("INFERNO_FAULTS", fault)

    async def main() -> None:
        # Answers to heartbeats are sent too: in a slow load 99 must not come together.
        heartbeat = 5.0 if fault.startswith("ipc.send") else 0.1
        patience = Patience(heartbeat=heartbeat, step=1.5)
        async with own_client(patience=patience) as client:
            await client.wait_ready()
            with pytest.raises(EngineDied):
                await asyncio.wait_for(collect(client, make_request(ENDLESS)), PATIENCE)
            await client.wait_ready()
            assert len((await collect(client, make_request(20)))[0].token_ids) == 20
            assert client.stats().restarts == 1

    run(main())


@pytest.mark.slow
def test_an_engine_that_hangs_is_replaced_and_so_is_one_that_is_stopped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("INFERNO_FAULTS", "step:hang@3")

    async def main() -> None:
        async with own_client(patience=Patience(heartbeat=0.1, step=1.0)) as client:
            await client.wait_ready()
            with pytest.raises(EngineDied):
                await collect(client, make_request(ENDLESS))
            await client.wait_ready()
            assert client.stats().restarts == 1
            assert len((await collect(client, make_request(20)))[0].token_ids) == 20
            events, pid = await begin(client), client.pid
            assert pid is not None
            os.kill(pid, signal.SIGSTOP)
            with pytest.raises(EngineDied):
                _ = [event async for event in events]
            assert client.state is EngineState.RESTARTING
            await until(lambda: not is_running(pid))

    run(main())


@pytest.mark.slow
def test_a_load_that_hangs_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INFERNO_FAULTS", "load:hang@1")

    async def main() -> None:
        patience = Patience(heartbeat=0.1, load=4.0, first_delay=0.01)
        async with own_client(patience=patience) as client:
            await client.wait_ready()
            assert client.stats().restarts >= 1
            assert len(await collect(client, make_request())) == 1

    run(main())


@pytest.mark.slow
def test_no_number_of_failures_makes_it_give_up(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """As where open files are short for a while, so that no process starts; then loads fail."""
    shortage = OSError(24, "Too many open files")

    def fail(_: object) -> Spawned:
        raise shortage

    async def main() -> None:
        async with own_client(patience=Patience(first_delay=1e-6, most_delay=1e-4)) as client:
            with monkeypatch.context() as starved:
                starved.setattr(supervisor, "spawn", fail)
                await client.start()
                await until(lambda: failures_of(client) > 40)
                assert client.state is EngineState.RESTARTING
                assert str(shortage) in (client.problem or "")
                monkeypatch.setenv("INFERNO_FAULTS", "load:fail")
            await until(lambda: "load" in (client.problem or ""))
            with pytest.raises(EngineDied, match="again"):
                await collect(client, make_request())
            monkeypatch.delenv("INFERNO_FAULTS")
            await client.wait_ready()
            assert client.recovery is None
            assert len(await collect(client, make_request())) == 1

    with caplog.at_level("WARNING", logger="inferno"):
        run(main())
    assert any(" 40 times in a row, " in record.getMessage() for record in caplog.records)


def test_tries_are_at_most_a_minute_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float] = []

    async def skip(closing: Awaitable[bool], seconds: float) -> None:
        waits.append(seconds)
        assert closing.close() is None  # type: ignore[attr-defined]
        await asyncio.sleep(0)

    def fail(_: object) -> Spawned:
        raise OSError(24, "Too many open files")

    async def main() -> None:
        monkeypatch.setattr(supervisor, "spawn", fail)
        monkeypatch.setattr(asyncio, "wait_for", skip)
        async with own_client(patience=Patience()) as client:
            await client.start()
            while len(waits) < 60:
                await asyncio.sleep(0)

    asyncio.run(main())
    assert waits[0] <= Patience().first_delay
    assert waits[4] > 2 * waits[0]
    assert all(30.0 <= seconds <= 60.0 for seconds in waits[20:])
    assert len(set(waits[20:])) > 1  # so that many servers don't try together


@pytest.mark.slow
def test_a_model_that_cannot_be_loaded_is_not_tried_again(tmp_path: Path) -> None:
    async def main() -> None:
        async with own_client(replace(OPTIONS, model=tmp_path)) as client:
            with pytest.raises(ModelNotFound, match=r"config\.json"):
                await client.wait_ready()
            assert client.state is EngineState.FAILED
            assert client.problem is not None
            assert client.stats().restarts == 0
            with pytest.raises(ModelNotFound):
                await collect(client, make_request())

    run(main())


# It is closed


def test_closing_ends_open_requests_as_aborted_even_while_it_loads() -> None:
    async def main() -> None:
        async with own_client() as client:
            await client.start()
            await until(lambda: client.pid is not None)
            pid = client.pid
            await client.close()
            assert pid is not None
            assert not is_running(pid)
        async with own_client() as client:
            await client.wait_ready()
            events = await begin(client)
            await client.close()
            assert [event async for event in events][-1].finish_reason is FinishReason.ABORTED
            with pytest.raises(EngineDied, match="closed"):
                await collect(client, make_request())

    run(main())
