"""Clients: nobody waits for ever, whatever ends."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import threading
import time
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from inferno import LLM, SamplingParams
from inferno.client.blocking import BlockingLoop
from inferno.client.inline import InlineClient
from inferno.engine.assemble import build_engine
from inferno.errors import EngineDied, InvalidRequest
from inferno.options import EngineOptions
from inferno.requests import FinishReason, Request
from tests.tiny import save_tiny_model


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("model")
    save_tiny_model(path)
    return path


@pytest.fixture
def client(folder: Path) -> InlineClient:
    return InlineClient(build_engine(EngineOptions(model=folder, num_blocks=64)))


def make_request(request_id: str, *, max_tokens: int = 5, n: int = 1) -> Request:
    params = SamplingParams(max_tokens=max_tokens, n=n, seed=1)
    return Request(request_id=request_id, prompt_token_ids=(7, 8), params=params)


def test_requests_of_one_loop_run_together(client: InlineClient) -> None:
    async def count(request: Request) -> int:
        return sum([len(event.token_ids) async for event in client.generate(request)])

    async def main() -> list[int]:
        return await asyncio.gather(*(count(make_request(str(i), n=2)) for i in range(5)))

    assert asyncio.run(main()) == [10] * 5


def test_leaving_a_request_aborts_it(client: InlineClient) -> None:
    async def main() -> None:
        events = client.generate(make_request("a", max_tokens=200))
        await anext(events)
        await events.aclose()
        await asyncio.sleep(0.05)
        assert not client._engine.has_work

    asyncio.run(main())


def test_closing_ends_open_requests_as_aborted(client: InlineClient) -> None:
    async def main() -> FinishReason | None:
        events = client.generate(make_request("a", max_tokens=200))
        await anext(events)
        await client.close()
        return [event async for event in events][-1].finish_reason

    assert asyncio.run(main()) is FinishReason.ABORTED


def test_one_sample_can_be_ended(client: InlineClient) -> None:
    async def main() -> dict[int, FinishReason]:
        endings: dict[int, FinishReason] = {}
        async for event in client.generate(make_request("a", max_tokens=20, n=3)):
            if event.finish_reason is not None:
                endings[event.sample_index] = event.finish_reason
            elif event.sample_index == 1:
                client.abort("a", 1)
        return endings

    length, aborted = FinishReason.LENGTH, FinishReason.ABORTED
    assert asyncio.run(main()) == {0: length, 1: aborted, 2: length}


def test_a_mistake_of_ours_reaches_all_who_wait(
    client: InlineClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        events = [client.generate(make_request(name)) for name in "ab"]
        for waiting in events:
            await anext(waiting)
        monkeypatch.setattr(client._engine, "step", lambda: 1 / 0)
        for waiting in events:
            with pytest.raises(EngineDied, match="ZeroDivisionError"):
                _ = [event async for event in waiting]
        with pytest.raises(EngineDied):
            await anext(client.generate(make_request("c")))

    asyncio.run(main())


def test_a_refused_request_raises_and_leaves_nothing(client: InlineClient) -> None:
    async def main() -> None:
        with pytest.raises(InvalidRequest):
            await anext(
                client.generate(
                    Request(request_id="a", prompt_token_ids=(10**6,), params=SamplingParams())
                )
            )
        assert not client._queues

    asyncio.run(main())


def test_an_iteration_that_is_left_closes_its_generator() -> None:
    closed = threading.Event()

    async def count() -> AsyncGenerator[int, None]:
        try:
            for number in range(10**9):
                yield number
                await asyncio.sleep(0)
        finally:
            closed.set()

    loop = BlockingLoop()
    numbers = loop.iterate(count())
    assert [next(numbers) for _ in range(3)] == [0, 1, 2]
    numbers.close()
    assert closed.wait(5)
    loop.close()
    loop.close()


def test_closing_wakes_who_waits_in_another_thread() -> None:
    loop = BlockingLoop()
    found: list[BaseException] = []

    async def forever() -> AsyncGenerator[int, None]:
        yield 0
        await asyncio.sleep(1000)

    def wait() -> None:
        try:
            list(loop.iterate(forever()))
        except EngineDied as problem:
            found.append(problem)

    thread = threading.Thread(target=wait)
    thread.start()
    time.sleep(0.1)
    loop.close()
    thread.join(5)
    assert len(found) == 1


def test_nobody_hangs_when_an_llm_is_closed_under_load(folder: Path) -> None:
    params = SamplingParams(max_tokens=3, ignore_eos=True)
    for delay in (0.0, 0.02, 0.05, 0.1):
        llm = LLM(folder, threads=1, num_blocks=64)

        def ask(llm: LLM = llm) -> None:
            with contextlib.suppress(EngineDied):
                for _ in range(1000):
                    done = llm.generate("hello", params)
                    assert done[0].finish_reason in (FinishReason.LENGTH, FinishReason.ABORTED)
                    llm.logits([1, 2])

        threads = [threading.Thread(target=ask) for _ in range(4)]
        for thread in threads:
            thread.start()
        time.sleep(delay)
        llm.close()
        for thread in threads:
            thread.join(20)
            assert not thread.is_alive()


def test_an_llm_whose_engine_failed_still_closes(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    llm = LLM(folder, threads=1, num_blocks=64)
    monkeypatch.setattr(llm._client._engine, "step", lambda: 1 / 0)
    for call in (llm.generate, llm.generate):
        with pytest.raises(EngineDied, match="make a new one"):
            call("hello")
    with pytest.raises(EngineDied):
        llm.logits([1, 2])
    llm.close()


def test_an_llm_that_is_dropped_takes_its_thread_along(folder: Path) -> None:
    before = threading.active_count()
    llm = LLM(folder, threads=1, num_blocks=64)
    llm.generate("hello", SamplingParams(max_tokens=2))
    assert threading.active_count() > before
    del llm
    gc.collect()
    assert threading.active_count() == before
