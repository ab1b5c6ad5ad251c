"""AsyncLLM: what LLM gives, without ever holding up the event loop that asks."""

from __future__ import annotations

import asyncio
import gc
import threading
import time
import warnings
from collections.abc import Callable, Coroutine
from contextlib import aclosing, suppress
from pathlib import Path
from typing import Any

import pytest
import uvloop

from inferno import LLM, AsyncLLM, SamplingParams
from inferno.errors import EngineDied, InvalidRequest, ModelNotFound, NeverFits
from inferno.loaded_model import LoadedModel
from tests.engine.fake_device import Device, fake_device
from tests.tiny import save_tiny_model

__all__ = ["fake_device"]  # a fixture

GREEDY = SamplingParams(temperature=0.0, max_tokens=12, ignore_eos=True)
LONG = SamplingParams(temperature=0.0, max_tokens=200, ignore_eos=True)
HELLO = [{"role": "user", "content": "Hi"}]
RUNNERS: list[Callable[[Coroutine[Any, Any, None]], None]] = [asyncio.run, uvloop.run]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("model")
    save_tiny_model(path)
    return path


def make(folder: Path, **options: Any) -> AsyncLLM:
    return AsyncLLM(folder, threads=1, num_blocks=200, **options)


async def until(condition: Callable[[], bool]) -> None:
    """Wait for an event that something else brings about."""
    while not condition():
        await asyncio.sleep(0.005)


def is_idle(llm: AsyncLLM) -> bool:
    client = llm._loaded.client
    return not client._streams and not client._engine.has_work


@pytest.mark.parametrize("run", RUNNERS, ids=["asyncio", "uvloop"])
def test_it_gives_what_the_blocking_one_gives(folder: Path, run: Callable[..., None]) -> None:
    with LLM(folder, threads=1, num_blocks=200) as blocking:
        texts = [done.text for done in blocking.generate(["one", "two"], GREEDY)]
        [answer] = blocking.chat(HELLO, GREEDY)
        logits = blocking.logits([1, 2, 3])

    async def main() -> None:
        async with make(folder) as llm:
            assert [done.text for done in await llm.generate(["one", "two"], GREEDY)] == texts
            found = {done.prompt_index: done.text async for done in llm.generate("one", GREEDY)}
            assert found == {0: texts[0]}
            chunks = [chunk async for chunk in llm.stream("two", GREEDY)]
            assert "".join(chunk.text for chunk in chunks) == texts[1]
            assert [done.text for done in await llm.chat(HELLO, GREEDY)] == [answer.text]
            pieces = [chunk.text async for chunk in llm.stream_chat(HELLO, GREEDY)]
            assert "".join(pieces) == answer.text
            assert tuple(await llm.encode_chat(HELLO)) == answer.prompt_token_ids
            assert (await llm.logits([1, 2, 3]) == logits).all()
            assert (llm.vocab_size, llm.max_model_len) == (262, 256)
            assert llm.has_chat_template
            assert llm.default_params == SamplingParams()

    run(main())


def test_many_streams_run_together_and_the_loop_goes_on(folder: Path) -> None:
    async def main() -> None:
        async with make(folder) as llm:
            turns = 0

            async def count() -> None:
                nonlocal turns
                while True:
                    turns += 1
                    await asyncio.sleep(0)

            counting = asyncio.create_task(count())
            asked = [collect(llm, f"prompt {i}") for i in range(40)]
            texts = await asyncio.gather(*asked)
            assert texts == [
                done.text for done in await llm.generate([f"prompt {i}" for i in range(40)], GREEDY)
            ]
            assert turns > 100
            counting.cancel()

    async def collect(llm: AsyncLLM, prompt: str) -> str:
        return "".join([chunk.text async for chunk in llm.stream(prompt, GREEDY)])

    asyncio.run(main())


def test_the_loop_goes_on_while_it_loads_and_while_a_template_renders(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of them waits for the loop, which must not wait for it."""
    loaded, encoded = LoadedModel.__init__, LoadedModel.encode_chat
    may_go_on = threading.Event()

    def load(self: LoadedModel, *args: Any) -> None:
        assert may_go_on.wait(60)
        loaded(self, *args)

    def encode(self: LoadedModel, *args: Any, **kwargs: Any) -> list[int]:
        assert may_go_on.wait(60)
        return encoded(self, *args, **kwargs)

    async def main() -> None:
        llm = make(folder)
        monkeypatch.setattr(LoadedModel, "__init__", load)
        monkeypatch.setattr(LoadedModel, "encode_chat", encode)
        starting = asyncio.create_task(llm.start())
        await asyncio.sleep(0)
        may_go_on.set()
        await starting
        may_go_on.clear()
        chats = [asyncio.create_task(llm.chat(HELLO, GREEDY)) for _ in range(3)]
        assert len(await llm.generate("meanwhile", GREEDY)) == 1
        may_go_on.set()
        assert len(await asyncio.gather(*chats)) == 3
        await llm.close()

    asyncio.run(main())


def test_the_first_request_loads_it_once(folder: Path) -> None:
    async def main() -> None:
        seen: list[tuple[int, int]] = []
        threads: set[int] = set()

        def note(done: int, total: int) -> None:
            seen.append((done, total))
            threads.add(threading.get_ident())

        llm = make(folder, progress=note)
        with pytest.raises(EngineDied, match="not loaded yet"):
            _ = llm.vocab_size
        assert "not loaded" in repr(llm)
        await asyncio.gather(*(llm.generate("a", GREEDY) for _ in range(3)))
        assert seen[-1][0] == seen[-1][1] > 0
        assert sum(done == total for done, total in seen) == 1
        assert threads == {threading.get_ident()}
        assert f"max_model_len={llm.max_model_len}" in repr(llm)
        await llm.close()
        assert "closed" in repr(llm)
        with pytest.raises(EngineDied, match="closed"):
            await llm.generate("a")

    asyncio.run(main())


@pytest.mark.parametrize("way", ["task", "timeout", "stream", "break", "iterate"])
def test_cancelling_aborts_the_request(folder: Path, way: str) -> None:
    async def main() -> None:
        async with make(folder) as llm:
            client = (await llm._load()).client
            if way == "task":
                task = asyncio.create_task(llm.generate("a", LONG))
                await until(lambda: bool(client._streams))
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task
            elif way == "timeout":
                client._engine.step = list  # type: ignore[method-assign]
                with pytest.raises(TimeoutError):
                    await asyncio.wait_for(llm.generate("a", LONG), 0.1)
                del client._engine.step
            elif way == "stream":
                async with aclosing(llm.stream("a", LONG)) as chunks:
                    await anext(chunks)
            elif way == "break":
                async for _ in llm.stream("a", LONG):
                    break
            else:
                async with aclosing(llm.generate(["a", "b"], LONG)) as completions:

                    async def read() -> list[int]:
                        return [done.prompt_index async for done in completions]

                    waiting = asyncio.create_task(read())
                    await until(lambda: len(client._streams) == 2)
                    waiting.cancel()
                    with pytest.raises(asyncio.CancelledError):
                        await waiting
            await until(lambda: is_idle(llm))
            assert len(await llm.generate("a", GREEDY)) == 1

    asyncio.run(main())


def test_a_slow_reader_holds_up_nobody_and_costs_little(folder: Path) -> None:
    async def main() -> None:
        async with make(folder) as llm:
            slow = llm.stream("slow", LONG)
            first = await anext(slow)
            await until(lambda: is_idle(llm) or not llm._loaded.client._engine.has_work)
            rest = [chunk async for chunk in slow]
            assert len(rest) < 100 < len(first.token_ids) + sum(len(c.token_ids) for c in rest)
            [whole] = await llm.generate("slow", LONG)
            assert first.text + "".join(chunk.text for chunk in rest) == whole.text

    asyncio.run(main())


def test_closing_ends_what_runs(folder: Path) -> None:
    async def main() -> None:
        llm = make(folder)
        await llm.start()
        streams = [llm.stream(f"{i}", LONG) for i in range(5)]
        for stream in streams:
            await anext(stream)
        asked = asyncio.create_task(llm.generate("b", LONG))
        await until(lambda: len(llm._loaded.client._streams) == 6)
        await llm.close()
        for stream in streams:
            try:
                *_, last = [chunk async for chunk in stream]
            except EngineDied:
                continue
            assert last.completion is not None
        with suppress(EngineDied):
            assert [done.finish_reason for done in await asked] == ["aborted"]
        await llm.close()

    before = threading.active_count()
    asyncio.run(main())
    assert threading.active_count() <= before


def test_another_loop_is_told(folder: Path) -> None:
    llm = make(folder)

    async def ask() -> None:
        await llm.generate("a", GREEDY)

    asyncio.run(ask())
    with pytest.raises(EngineDied, match="another event loop"):
        asyncio.run(ask())
    with pytest.raises(EngineDied, match="another event loop"):
        asyncio.run(llm.start())

    async def read() -> None:
        async for _ in llm.stream("a", GREEDY):
            pass

    with pytest.raises(EngineDied, match="another event loop"):
        asyncio.run(read())
    asyncio.run(llm.close())  # closing is for everybody
    assert llm._loaded.loop.is_closed


def test_several_of_both_kinds_work_side_by_side(folder: Path) -> None:
    async def main() -> None:
        async with make(folder) as one, make(folder) as other:
            with LLM(folder, threads=1, num_blocks=200) as blocking:
                found = await asyncio.gather(
                    one.generate("a", GREEDY),
                    other.generate("a", GREEDY),
                    asyncio.to_thread(blocking.generate, "a", GREEDY),
                )
            assert len({done.text for [done] in found}) == 1

    asyncio.run(main())


def test_what_is_refused_is_raised_where_it_is_awaited(folder: Path) -> None:
    async def main() -> None:
        with pytest.raises(InvalidRequest, match="dtype"):
            make(folder, dtype="int3")
        with pytest.raises(ModelNotFound):
            await AsyncLLM("no such model").start()
        with pytest.raises(ModelNotFound):
            async with AsyncLLM("no such model"):
                pass
        async with make(folder) as llm:
            with pytest.raises(NeverFits, match="prompt 2 of 2"):
                await llm.generate(["a", "x" * 300], GREEDY)
            with pytest.raises(InvalidRequest, match="prompt"):
                async for _ in llm.stream(3.5, GREEDY):  # type: ignore[arg-type]
                    pass
            with pytest.raises(InvalidRequest, match="one for each of the 2 prompts, not 3"):
                await llm.generate(["a", "b"], [GREEDY] * 3)
            assert is_idle(llm)

    asyncio.run(main())


def test_recorded_steps_are_told_in_the_loop(folder: Path, fake_device: Device) -> None:
    async def main() -> None:
        seen: list[tuple[int, int, int]] = []

        def note(done: int, total: int) -> None:
            seen.append((done, total, threading.get_ident()))

        small: dict[str, Any] = {"max_model_len": 64, "max_num_seqs": 2}
        async with make(folder, capture_graphs="start", captures=note, **small):
            pass
        total = len(seen) - 1
        assert total >= fake_device.num_captures > 0
        assert seen == [(done, total, threading.get_ident()) for done in range(total + 1)]

    asyncio.run(main())


def test_leaving_while_it_loads_stops_the_loading(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded = LoadedModel.__init__
    is_loading, may_go_on, has_ended = (threading.Event() for _ in range(3))

    def load(self: LoadedModel, *args: Any) -> None:
        is_loading.set()
        assert may_go_on.wait(60)
        try:
            loaded(self, *args)
        except EngineDied:
            has_ended.set()
            raise

    async def main() -> None:
        monkeypatch.setattr(LoadedModel, "__init__", load)

        async def enter() -> None:
            async with make(folder):
                raise AssertionError("it was cancelled")

        entering = asyncio.create_task(enter())
        await asyncio.to_thread(is_loading.wait)
        entering.cancel()
        with pytest.raises(asyncio.CancelledError):
            await entering
        may_go_on.set()
        assert await asyncio.to_thread(has_ended.wait, 60)

    asyncio.run(main())


def test_one_that_is_dropped_takes_its_threads_along(folder: Path) -> None:
    async def main() -> None:
        llm = make(folder)
        await llm.generate("a", GREEDY)

    before = threading.active_count()
    asyncio.run(main())
    gc.collect()
    until_then = time.monotonic() + 60  # threads of the pool end by themselves
    while threading.active_count() > before and time.monotonic() < until_then:
        time.sleep(0.01)
    assert threading.active_count() <= before


def test_what_is_not_awaited_is_told_and_costs_nothing(folder: Path) -> None:
    async def main() -> None:
        llm = make(folder)
        with pytest.warns(RuntimeWarning, match="never awaited"):
            llm.generate("a")
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert [done.prompt_index async for done in llm.generate("a", GREEDY)] == [0]
            gc.collect()
        await llm.close()

    asyncio.run(main())
