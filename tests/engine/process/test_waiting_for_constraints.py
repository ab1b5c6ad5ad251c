"""Requests wait for their constraints before they are added, and nobody waits with them."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import pytest

from inferno.client import EngineFacts
from inferno.client.inline import InlineClient
from inferno.client.process import ProcessClient
from inferno.client.wire import Abort, Add, Events, FromEngine, Refused, Shutdown, Stats
from inferno.engine.build import build_engine
from inferno.engine.engine import Engine
from inferno.engine.process.fault_injection import Faults
from inferno.engine.process.serve import Service
from inferno.engine.sampling.constraints import Constraint, Mask, set_bit
from inferno.errors import EngineDied, InvalidRequest
from inferno.hub.find import find_model_folder
from inferno.options import EngineOptions
from inferno.requests import FinishReason, Request, SamplingParams, TokenEvent
from inferno.structured import StructuredOutput
from tests.patience import PATIENCE
from tests.tiny import save_tiny_model

SHAPE = StructuredOutput(choice=("a",))


class Only:
    """Allows one token, for ever."""

    is_complete = False
    num_to_end = None

    def __init__(self, token_id: int) -> None:
        self.token_id = token_id

    def mask_into(self, mask: Mask) -> None:
        set_bit(mask, self.token_id, is_allowed=True)

    def forced(self, most: int) -> Sequence[int]:
        return ()

    def accept(self, token_ids: Sequence[int]) -> None:
        assert set(token_ids) == {self.token_id}

    def rollback(self, num_tokens: int) -> None:
        """Stay where it is."""

    def fits(self, num_tokens: int) -> bool:
        return True

    def next_to_end(self) -> int:
        raise NotImplementedError


class Maker:
    """A maker that makes when a test says so."""

    def __init__(self) -> None:
        self.made: dict[str, Future[Sequence[Constraint]]] = {}
        self.is_closed = False

    def start(self, request: Request) -> Future[Sequence[Constraint]]:
        made = self.made[request.request_id] = Future()
        return made

    def close(self) -> None:
        self.is_closed = True
        for made in self.made.values():
            with contextlib.suppress(Exception):
                made.set_exception(EngineDied("closed"))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("model")
    save_tiny_model(path)
    return path


@pytest.fixture
def maker() -> Maker:
    return Maker()


@pytest.fixture
def engine(folder: Path, maker: Maker) -> Engine:
    engine = build_engine(EngineOptions(model=folder, num_blocks=64, threads=1))
    engine._constraints = maker
    return engine


def make_request(
    request_id: str, *, shape: StructuredOutput | None = SHAPE, n: int = 1, max_tokens: int = 5
) -> Request:
    params = SamplingParams(max_tokens=max_tokens, n=n, seed=1, structured=shape)
    return Request(
        request_id=request_id,
        prompt_token_ids=(7, 8),
        params=params,
        eos_token_ids=frozenset({3}),
    )


class FakeLink:
    """The place of a socket: messages of a test, and what the service answers."""

    def __init__(self) -> None:
        self.messages: SimpleQueue[Any] = SimpleQueue()
        self.answers: SimpleQueue[FromEngine] = SimpleQueue()
        self.num_turns = 0
        self.is_idle = False
        self.waiting = 0
        self.events: list[TokenEvent] = []

    def send(self, *messages: FromEngine) -> None:
        for message in messages:
            if isinstance(message, Stats):
                self.waiting = message.stats.waiting
            else:
                self.answers.put(message)

    def refusal(self) -> str:
        """The words of a request that is refused."""
        message = self.answers.get(timeout=PATIENCE)
        assert isinstance(message, Refused)
        return message.problem.message

    def read(self, request_id: str, index: int = 0) -> tuple[list[int], FinishReason]:
        """All tokens of a sequence, and how it ended."""
        while True:
            own = [each for each in self.events if each[:2] == (request_id, index)]
            for reason in [each.finish_reason for each in own if each.finish_reason is not None]:
                self.events = [each for each in self.events if each not in own]
                return [token_id for each in own for token_id in each.token_ids], reason
            message = self.answers.get(timeout=PATIENCE)
            assert isinstance(message, Events)
            self.events += message.events


@pytest.fixture
def link(engine: Engine) -> Iterator[FakeLink]:
    link = FakeLink()
    numbers: dict[str, Any] = dict.fromkeys(
        ("vocab_size", "max_model_len", "num_blocks", "weight_bytes", "cache_bytes"), 1
    )
    names: dict[str, Any] = dict.fromkeys(("dtype", "kv_dtype", "attention", "fingerprint"), "")
    facts = EngineFacts(device="cpu", block_size=1, max_num_seqs=1, **numbers, **names)
    service = Service(engine, link, Faults(""), facts)  # type: ignore[arg-type]
    thread = threading.Thread(target=service.run)
    thread.start()
    yield link
    link.messages.put(Shutdown())
    thread.join(PATIENCE)
    assert not thread.is_alive()


def until(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not is_so():
        assert time.monotonic() < deadline, "it does not come to that"
        time.sleep(0.005)


LENGTH, ABORTED = FinishReason.LENGTH, FinishReason.ABORTED


def test_others_are_served_meanwhile_by_a_service(link: FakeLink, maker: Maker) -> None:
    link.messages.put(Add(make_request("shaped")))
    for name in "ab":
        link.messages.put(Add(make_request(name, shape=None)))
        tokens, reason = link.read(name)
        assert (len(tokens), reason) == (5, LENGTH)
    until(lambda: link.is_idle and link.waiting == 1)  # it waits, and the service does, too
    maker.made["shaped"].set_result([Only(9)])
    assert link.read("shaped") == ([9] * 5, LENGTH)


def test_a_service_tells_why_a_constraint_cant_be_made(link: FakeLink, maker: Maker) -> None:
    link.messages.put(Add(make_request("a")))
    until(lambda: "a" in maker.made)
    maker.made["a"].set_exception(InvalidRequest("no such shape", param="structured"))
    assert link.refusal() == "no such shape"
    link.messages.put(Add(make_request("b")))
    until(lambda: "b" in maker.made)
    maker.made["b"].set_result([Only(4)])
    assert link.read("b") == ([4] * 5, LENGTH)


@pytest.mark.parametrize("ids", ["allowed", "bad words", "eos"])
def test_tokens_that_the_model_has_not_are_refused_before_a_constraint_is_made(
    engine: Engine, maker: Maker, ids: str
) -> None:
    request, token_id = make_request("a"), engine.vocab_size
    match ids:
        case "allowed":
            params = replace(request.params, allowed_token_ids=(token_id,))
            request = replace(request, params=params)
        case "bad words":
            request = replace(request, bad_words_ids=((token_id,),))
        case "eos":
            request = replace(request, eos_token_ids=frozenset({token_id}))
    with pytest.raises(InvalidRequest, match="no token of this model"):
        engine.start_constraints(request)
    assert not maker.made


def test_a_service_forgets_what_is_aborted_while_it_waits(link: FakeLink, maker: Maker) -> None:
    link.messages.put(Add(make_request("a")))
    link.messages.put(Abort("a", None))
    until(lambda: "a" in maker.made and maker.made["a"].cancelled())
    first = maker.made["a"]
    link.messages.put(Add(make_request("a")))  # another of the same name
    until(lambda: maker.made["a"] is not first)
    maker.made["a"].set_result([Only(5)])
    assert link.read("a") == ([5] * 5, LENGTH)
    until(lambda: link.is_idle and link.waiting == 0)


def test_a_sequence_that_is_aborted_while_it_waits_ends(link: FakeLink, maker: Maker) -> None:
    link.messages.put(Add(make_request("a", n=2)))
    link.messages.put(Abort("a", 0))
    until(lambda: "a" in maker.made)
    maker.made["a"].set_result([Only(5), Only(6)])
    assert link.read("a") == ([], ABORTED)
    assert link.read("a", 1) == ([6] * 5, LENGTH)


def test_a_service_ends_while_requests_wait(engine: Engine, link: FakeLink, maker: Maker) -> None:
    link.messages.put(Add(make_request("a")))
    until(lambda: "a" in maker.made)  # the fixture sees that it ends


async def collect(client: InlineClient, request: Request) -> list[int]:
    return [each async for event in client.generate(request) for each in event.token_ids]


async def until_here(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not is_so():
        assert time.monotonic() < deadline, "it does not come to that"
        await asyncio.sleep(0.005)


def test_others_are_served_meanwhile_in_this_process(engine: Engine, maker: Maker) -> None:
    async def main() -> None:
        client = InlineClient(engine)
        shaped = asyncio.create_task(collect(client, make_request("shaped")))
        assert len(await collect(client, make_request("a", shape=None))) == 5
        refused = asyncio.create_task(collect(client, make_request("refused")))
        await until_here(lambda: "refused" in maker.made)
        maker.made["refused"].set_exception(InvalidRequest("no such shape"))
        with pytest.raises(InvalidRequest, match="no such shape"):
            await refused
        maker.made["shaped"].set_result([Only(9)])
        assert await shaped == [9] * 5
        await client.close()
        assert maker.is_closed

    asyncio.run(main())


def test_who_leaves_wants_no_constraint_any_more(engine: Engine, maker: Maker) -> None:
    async def main() -> None:
        client = InlineClient(engine)
        shaped = asyncio.create_task(collect(client, make_request("shaped")))
        await until_here(lambda: "shaped" in maker.made)
        shaped.cancel()
        with pytest.raises(asyncio.CancelledError):
            await shaped
        assert maker.made["shaped"].cancelled()
        waiting = asyncio.create_task(collect(client, make_request("waiting")))
        await until_here(lambda: "waiting" in maker.made)
        await client.close()
        with pytest.raises(EngineDied, match="closed"):
            await waiting

    asyncio.run(main())


def test_an_engine_waits_for_a_constraint_that_was_not_made(engine: Engine, maker: Maker) -> None:
    timer = threading.Timer(0.05, lambda: maker.made["a"].set_result([Only(9)]))
    timer.start()
    engine.add_request(make_request("a"))
    tokens = []
    while engine.has_work:
        tokens += [each for event in engine.step() for each in event.token_ids]
    assert tokens == [9] * 5


# With real processes

SLOW = StructuredOutput(json={"enum": [f"value number {i}" for i in range(8000)]})


def children_of(pid: int) -> list[int]:
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            fields = stat.read_text().rpartition(")")[2].split()
            if int(fields[1]) == pid and fields[0] != "Z":
                found.append(int(stat.parent.name))
    return found


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
def test_an_engine_process_compiles_and_takes_its_children_with_it() -> None:
    pytest.importorskip("llguidance")

    async def ask(client: ProcessClient, request: Request) -> list[int]:
        events = client.generate(request)
        return [each async for event in events for each in event.token_ids]

    async def main() -> None:
        options = EngineOptions(model=find_model_folder("demo"), threads=1, num_blocks=256)
        client = ProcessClient(options)
        await client.wait_ready()
        assert client.pid is not None
        first = await ask(client, make_request("a", max_tokens=9))
        with pytest.raises(InvalidRequest, match="structured can't be honoured"):
            await ask(client, make_request("b", shape=StructuredOutput(regex="(a")))
        async with aclosing(client.generate(make_request("c", shape=SLOW))) as events:
            leaving = asyncio.ensure_future(anext(events))
            await asyncio.sleep(0.05)
            leaving.cancel()
            with contextlib.suppress(asyncio.CancelledError, InvalidRequest):
                await leaving
        children = children_of(client.pid)
        assert children
        for child in children:
            os.kill(child, signal.SIGKILL)
        engine = client.pid
        await until_here(lambda: not set(children) & set(children_of(engine)))
        other = StructuredOutput(choice=("a", "b"))
        assert await ask(client, make_request("d", shape=other, max_tokens=9))
        assert await ask(client, make_request("e", max_tokens=9)) == first
        children = children_of(client.pid)
        workers = [worker for child in children for worker in children_of(child)]
        assert workers
        os.kill(client.pid, signal.SIGKILL)  # so it can't end them itself
        gone = [*children, *workers]
        await until_here(lambda: not any(Path(f"/proc/{pid}").exists() for pid in gone))
        await client.close()

    asyncio.run(asyncio.wait_for(main(), PATIENCE))
