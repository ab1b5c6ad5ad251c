"""Clients: nobody waits for ever, whatever ends."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import signal
import sys
import threading
import time
from collections.abc import AsyncGenerator, Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from inferno import LLM, SamplingParams
from inferno.client.blocking import MOST_WAITING, BlockingLoop
from inferno.client.inline import InlineClient
from inferno.engine.build import build_engine
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
                endings[event.sequence_index] = event.finish_reason
            elif event.sequence_index == 1:
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
        assert not client._streams

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


@pytest.mark.parametrize("num_turns", range(12))
def test_who_waits_is_told_in_whichever_turn_of_a_closing_loop_it_ends(num_turns: int) -> None:
    loop = BlockingLoop()
    found: list[object] = []

    async def end_late() -> str:
        loop.close()
        for _ in range(num_turns):
            await asyncio.sleep(0)
        return "done"

    def wait() -> None:
        try:
            found.append(loop.run(end_late))
        except EngineDied as problem:
            found.append(problem)

    thread = threading.Thread(target=wait, daemon=True)
    thread.start()
    thread.join(20)
    assert found, "nobody told the thread that waits"


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


def test_what_ends_a_task_does_not_end_its_loop() -> None:
    loop = BlockingLoop()

    async def leave() -> None:
        raise SystemExit(3)

    async def answer() -> int:
        return 7

    for _ in range(3):
        with pytest.raises(SystemExit):
            loop.run(leave)
        assert loop.run(answer) == 7
    loop.close()


def test_a_slow_reader_lets_few_items_wait() -> None:
    loop = BlockingLoop()
    made = 0

    async def count() -> AsyncGenerator[int, None]:
        nonlocal made
        for number in range(1000):
            made += 1
            yield number

    numbers = loop.iterate(count())
    assert next(numbers) == 0
    for number in range(1, 1000):
        assert next(numbers) == number
        assert made <= number + 2 * MOST_WAITING
    assert not list(numbers)
    loop.close()


KINDS = (KeyboardInterrupt, SystemExit, GeneratorExit, MemoryError)


@pytest.fixture(scope="module")
def llm(folder: Path) -> Iterator[LLM]:
    with LLM(folder, threads=1, num_blocks=64) as llm:
        yield llm


SHORT = SamplingParams(temperature=0.0, max_tokens=6, ignore_eos=True)
LONG = SamplingParams(temperature=0.0, max_tokens=200, ignore_eos=True)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("owner", ["_executor", "_scheduler"])
def test_an_interrupted_step_ends_its_requests_and_no_others(
    llm: LLM, kind: type[BaseException], owner: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    [expected] = llm.generate("hello", SHORT)
    place: Any = getattr(llm._client._engine, owner)
    name = "launch" if owner == "_executor" else "commit"
    going_on, num_calls = getattr(place, name), 0

    def fail_once(*arguments: object) -> object:
        nonlocal num_calls
        num_calls += 1
        if num_calls == 3:
            raise kind("planted")
        return going_on(*arguments)

    monkeypatch.setattr(place, name, fail_once)
    failed = llm.generate(["hello", "world"], SHORT)
    assert [done.finish_reason for done in failed] == [FinishReason.ERROR] * 2
    assert all("planted" in (done.error or "") for done in failed)
    assert llm.generate("hello", SHORT)[0].text == expected.text
    assert not llm._client._engine.has_work


@pytest.mark.parametrize("kind", KINDS[:3])
def test_a_step_that_is_interrupted_for_ever_ends_all(
    folder: Path, kind: type[BaseException], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail() -> None:
        raise kind("planted")

    llm = LLM(folder, threads=1, num_blocks=64)
    monkeypatch.setattr(llm._client._engine, "step", fail)
    with pytest.raises(EngineDied, match="planted"):
        llm.generate("hello", SHORT)
    llm.close()


@pytest.mark.parametrize("way", ["generate", "stream", "logits"])
def test_ctrl_c_ends_the_request_and_nothing_else(llm: LLM, way: str) -> None:
    [expected] = llm.generate("hello", SHORT)
    client, has_begun = llm._client, threading.Event()

    def ask_for_ever() -> None:
        has_begun.set()
        while True:
            if way == "generate":
                llm.generate(["hello", "world"], LONG)
            elif way == "stream":
                list(llm.stream("hello", LONG))
            else:
                llm.logits([1, 2, 3])

    def interrupt() -> None:
        has_begun.wait()
        while way != "logits" and not client._streams:
            time.sleep(0.001)
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    for _ in range(5):
        has_begun.clear()
        thread = threading.Thread(target=interrupt)
        thread.start()
        with pytest.raises(KeyboardInterrupt):
            ask_for_ever()
        thread.join()
        assert llm.generate("hello", SHORT)[0].text == expected.text
        assert becomes_idle(llm)


def becomes_idle(llm: LLM) -> bool:
    """Whether nothing is under way in the end."""
    deadline = time.monotonic() + 60
    while llm._client._engine.has_work or llm._client._streams:
        if time.monotonic() > deadline:
            return False
        time.sleep(0.005)
    return True


def test_a_stream_that_is_forgotten_is_aborted(llm: LLM) -> None:
    stream = llm.stream("hello", LONG)
    next(stream)
    assert llm._client._streams
    del stream
    assert becomes_idle(llm)


def test_a_stream_outlives_the_name_of_its_llm(folder: Path) -> None:
    stream = LLM(folder, threads=1, num_blocks=64).stream("hello", SHORT)
    gc.collect()
    assert list(stream)[-1].completion is not None


class Tracer:
    """Raises once, at one line of the files that run in the loop's thread."""

    FILES = ("inline.py", "blocking.py", "stream.py", "loaded_model.py", "model_text.py")

    def __init__(self, line: tuple[str, int] | None, kind: type[BaseException]) -> None:
        self.seen: set[tuple[str, int]] = set()
        self._line = line
        self._kind = kind

    def enter(self, frame: FrameType, event: str, argument: object) -> Callable[..., Any] | None:
        # Somebody has to have the last word.
        is_watched = Path(frame.f_code.co_filename).name in self.FILES
        return (
            self.trace if is_watched and frame.f_code.co_name not in ("end", "_end_drive") else None
        )

    def trace(self, frame: FrameType, event: str, argument: object) -> Callable[..., Any]:
        line = Path(frame.f_code.co_filename).name, frame.f_lineno
        if event == "line" and line not in self.seen:
            self.seen.add(line)
            if line == self._line:
                raise self._kind("planted")
        return self.trace


def traced(llm: LLM, tracer: Tracer) -> list[BaseException | str]:
    """Ask in two threads while the loop's thread is traced: what they got."""
    found: list[BaseException | str] = []

    def ask(prompt: str) -> None:
        try:
            found.extend(done.text for done in llm.generate(prompt, SHORT))
        except BaseException as problem:
            found.append(problem)

    loop = llm._loop._loop
    loop.call_soon_threadsafe(sys.settrace, tracer.enter)
    threads = [threading.Thread(target=ask, args=(f"{i}",)) for i in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
        assert not thread.is_alive(), f"nobody told it: {tracer._line}"
    loop.call_soon_threadsafe(sys.settrace, None)
    return found


def test_no_line_of_the_loops_thread_may_leave_anybody_waiting(folder: Path) -> None:
    kinds = (KeyboardInterrupt, GeneratorExit, SystemExit)
    with LLM(folder, threads=1, num_blocks=64) as llm:
        [expected] = llm.generate("hello", SHORT)
        watched = Tracer(None, KeyboardInterrupt)
        traced(llm, watched)
        assert {file for file, _ in watched.seen} == set(Tracer.FILES)
        for number, line in enumerate(sorted(watched.seen)[::2]):
            found = traced(llm, Tracer(line, kinds[number % len(kinds)]))
            assert len(found) == 2, line
            assert llm.generate("hello", SHORT)[0].text == expected.text, line
