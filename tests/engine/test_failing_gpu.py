"""A GPU without memory left fails one step; one that is lost ends the engine, which says so."""

from __future__ import annotations

import asyncio
import gc
import socket
import sys
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch

from inferno.client.inline import InlineClient
from inferno.client.wire import Dying, FromEngine, Start
from inferno.demo import MODEL_FOLDERS
from inferno.engine.build import build_engine
from inferno.engine.engine import Engine
from inferno.engine.process import serve
from inferno.errors import EngineDied
from inferno.options import EngineOptions
from inferno.requests import FinishReason, Request, SamplingParams, TokenEvent
from tests.engine.local import executor_of

OUT_OF_MEMORY = torch.OutOfMemoryError(
    "CUDA out of memory. Tried to allocate 20.00 MiB. GPU 0 has a total capacity of 79.10 GiB of "
    "which 10.00 MiB is free."
)
LOST = RuntimeError("CUDA error: unspecified launch failure\nCUDA kernel errors might be reported")


@pytest.fixture
def engine() -> Engine:
    options = EngineOptions(
        model=MODEL_FOLDERS["demo"], threads=1, num_blocks=32, max_model_len=128, max_num_seqs=4
    )
    return build_engine(options)


def request(name: str = "a") -> Request:
    return Request(
        request_id=name,
        prompt_token_ids=(5, 6, 7),
        params=SamplingParams(max_tokens=3, temperature=0.0, ignore_eos=True),
    )


class Failing:
    """A launch that raises these errors one after the other, and then works."""

    def __init__(self, launch: Callable[..., Any], *problems: BaseException) -> None:
        self._launch = launch
        self._problems = list(problems)
        self.held: weakref.ref[Any] | None = None

    def __call__(self, plan: Any) -> Any:
        if self._problems:
            tensor = torch.zeros(8)  # as a step has when it fails
            self.held = weakref.ref(tensor)
            raise self._problems.pop(0)
        return self._launch(plan)


def fail(monkeypatch: pytest.MonkeyPatch, engine: Engine, *problems: BaseException) -> Failing:
    executor = executor_of(engine)
    failing = Failing(executor.launch, *problems)
    monkeypatch.setattr(executor, "launch", failing)
    return failing


def run(engine: Engine) -> list[TokenEvent]:
    events = []
    while engine.has_work:
        events += engine.step()
    return events


def test_a_step_without_memory_fails_alone_and_says_what_to_change(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    fail(monkeypatch, engine, OUT_OF_MEMORY)
    engine.add_request(request())
    [event] = run(engine)
    assert event.finish_reason is FinishReason.ERROR
    assert event.error is not None
    assert event.error.startswith("a step of the engine failed: memory ran out (CUDA out of memory")
    assert "--max-num-batched-tokens" in event.error
    assert "--gpu-memory-utilization" in event.error
    engine.add_request(request("b"))
    done = run(engine)
    assert done[-1].finish_reason is FinishReason.LENGTH
    assert engine.occupancy.blocks_used == 0


def test_a_failed_step_holds_no_memory(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    problem = torch.OutOfMemoryError("CUDA out of memory.")
    failing = fail(monkeypatch, engine, problem)
    engine.add_request(request())
    run(engine)
    gc.collect()
    assert problem.__traceback__ is not None  # which somebody may keep, a log for one
    assert failing.held is not None
    assert failing.held() is None


def test_a_lost_gpu_ends_the_engine_and_not_step_after_step(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    fail(monkeypatch, engine, LOST)
    engine.add_request(request())
    with pytest.raises(EngineDied, match=r"the GPU is lost to this process.*launch failure"):
        engine.step()


def test_a_gpu_that_is_lost_while_tokens_are_drawn_ends_it_too(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def sample(*_: object) -> None:
        raise LOST

    monkeypatch.setattr(executor_of(engine), "sample", sample)
    engine.add_request(request())
    with pytest.raises(EngineDied):
        engine.step()


def test_an_engine_in_this_process_takes_no_more_requests(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    fail(monkeypatch, engine, LOST)

    async def ask(client: InlineClient, name: str) -> None:
        async for _ in client.generate(request(name)):
            pass

    async def ask_twice() -> None:
        client = InlineClient(engine)
        for name in ("a", "b"):
            with pytest.raises(EngineDied, match="the GPU is lost to this process"):
                await ask(client, name)

    asyncio.run(ask_twice())


def test_an_engines_process_ends_with_its_gpu_and_says_why(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its parent starts another one, as after any death: tests/client/test_process.py."""
    told: list[FromEngine] = []

    class Link:
        messages: Any = None

        def __init__(self, _: object) -> None:
            link = self

            class Messages:
                def get(self) -> Start:
                    return Start(EngineOptions(model=MODEL_FOLDERS["demo"]), 0)

            link.messages = Messages()

        def send(self, *messages: FromEngine) -> None:
            told.extend(messages)

    def serve_requests(_start: object, _link: object) -> int:
        engine.add_request(request())
        engine.step()
        raise AssertionError("a step without its GPU came to an end")

    fail(monkeypatch, engine, LOST)
    for name in ("die_with_parent", "ignore_signals", "share_one_heap"):
        monkeypatch.setattr(serve, name, lambda: None)
    monkeypatch.setattr(serve, "Link", Link)
    monkeypatch.setattr(serve, "serve", serve_requests)
    monkeypatch.setattr(socket, "socket", lambda **_: None)
    monkeypatch.setattr(sys, "argv", ["serve", "3"])
    assert serve.main() == 1
    [dying] = told
    assert isinstance(dying, Dying)
    assert dying.reason.startswith("the GPU is lost to this process, which must be started again")
