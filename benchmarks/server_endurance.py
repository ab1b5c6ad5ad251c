"""What a server stands: requests without end, clients that leave, too many of them at once."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count, islice
from random import Random
from typing import Any

from server_client import Exchange, ask, completion, prompts
from server_figures import Figure, Subject, run
from server_process import Server, serving

_WARM_SHARE = 0.5  # of the requests, after which memory should grow no more
_CONCURRENCY = 48
_LEAVING_SHARE = 0.1
_CANARY = list(range(100, 116))
_OVERLOAD_SECONDS = 60.0
_NUM_PLACES, _QUEUE = 8, 32


def endurance(subject: Subject) -> Iterator[Figure]:
    """Many short requests, a tenth of whose clients leave: what is left of them afterwards."""
    with serving(*subject.options, "--log-level", "error") as server:
        vocab_size = _state(server)["engine"]["facts"]["vocab_size"]
        num_warm = round(subject.num_requests * _WARM_SHARE)
        run(_soak(server, num_warm, vocab_size))
        before = _Held.by(server)
        begun = time.perf_counter()
        num_ended = run(_soak(server, subject.num_requests - num_warm, vocab_size))
        seconds = time.perf_counter() - begun
        after = _Held.by(server)
        settled = _settled(server)
    yield Figure("requests answered to the end", num_ended, "")
    yield Figure("requests a second", (subject.num_requests - num_warm) / seconds, "")
    yield Figure("blocks in use afterwards", settled["engine"]["stats"]["blocks_used"], "", 0)
    yield Figure("requests held afterwards", settled["admission"]["requests"], "", 0)
    yield Figure(f"parent after {num_warm} requests", before.parent_bytes / 1e6, "MB")
    yield Figure("parent's growth", (after.parent_bytes - before.parent_bytes) / 1e6, "MB", 16)
    yield Figure(f"engine after {num_warm} requests", before.engine_bytes / 1e6, "MB")
    yield Figure("engine's growth", (after.engine_bytes - before.engine_bytes) / 1e6, "MB", 1)
    yield Figure("parent's files more", after.parent_files - before.parent_files, "", 0)
    yield Figure("engine's files more", after.engine_files - before.engine_files, "", 0)


def overload(subject: Subject) -> Iterator[Figure]:
    """Ten times as many clients as places, who come back when told, none at the same moment.

    Beside them runs a greedy stream, again and again.
    """
    places = ["--max-num-seqs", str(_NUM_PLACES), "--max-queue", str(_QUEUE)]
    with serving(*subject.options, *places, "--log-level", "error") as server:
        vocab_size = _state(server)["engine"]["facts"]["vocab_size"]
        canary = completion(_CANARY, max_tokens=200)
        golden = run(ask(server.port, canary)).text
        seen = run(_overloaded(server, canary, vocab_size))
        settled = _settled(server)
    refused = sorted(each.seconds for each in seen.refused)
    yield Figure("requests", len(seen.served) + len(seen.refused) + seen.num_others, "")
    yield Figure("served whole", len(seen.served), "")
    yield Figure("refused with 503 and Retry-After", len(refused), "")
    yield Figure("anything else", seen.num_others, "", 0)
    yield Figure("99th percentile of a refusal", refused[int(len(refused) * 0.99)] * 1e3, "ms", 200)
    yield Figure("slowest refusal", refused[-1] * 1e3, "ms")
    yield Figure("slowest answer", max(each.seconds for each in seen.served), "s")
    yield Figure("greedy streams beside it", len(seen.canaries), "")
    yield Figure("of them other than unloaded", sum(t != golden for t in seen.canaries), "", 0)
    yield Figure("blocks in use afterwards", settled["engine"]["stats"]["blocks_used"], "", 0)


@dataclass(frozen=True, slots=True)
class _Held:
    """What both processes hold."""

    parent_bytes: int
    engine_bytes: int
    parent_files: int
    engine_files: int

    @classmethod
    def by(cls, server: Server) -> _Held:
        _settled(server)
        time.sleep(1)  # so that our own last connection is closed
        parent, engine = server.parent, server.engine
        return cls(parent.resident_bytes, engine.resident_bytes, parent.num_files, engine.num_files)


class _Seen:
    """What came of requests to a server that had too many."""

    def __init__(self) -> None:
        self.served: list[Exchange] = []
        self.refused: list[Exchange] = []
        self.num_others = 0
        self.canaries: list[str] = []

    def note(self, exchange: Exchange, num_tokens: int) -> None:
        if exchange.status == 200 and exchange.num_tokens == num_tokens:
            self.served.append(exchange)
        elif exchange.status == 503 and b"\r\nretry-after: " in exchange.head:
            self.refused.append(exchange)
        else:
            self.num_others += 1


async def _soak(server: Server, num_requests: int, vocab_size: int) -> int:
    """How many requests were answered to the end; the others' clients left."""
    random = Random()
    waiting = islice(prompts(random.randint(8, 48), vocab_size), num_requests)
    num_ended = 0

    async def work() -> None:
        nonlocal num_ended
        for prompt in waiting:
            request = completion(prompt, max_tokens=random.randint(4, 16))
            leaves = random.random() < _LEAVING_SHARE
            done = await ask(server.port, request, random.randint(1, 3) if leaves else None)
            if not leaves and not done.received.endswith(b"data: [DONE]\n\n\r\n0\r\n\r\n"):
                raise OSError(f"an answer was not whole: {bytes(done.received[-300:])!r}")
            num_ended += not leaves

    await asyncio.gather(*(work() for _ in range(_CONCURRENCY)))
    return num_ended


async def _overloaded(server: Server, canary: bytes, vocab_size: int) -> _Seen:
    seen, random = _Seen(), Random()
    until = time.perf_counter() + _OVERLOAD_SECONDS

    async def crowd() -> None:
        await asyncio.sleep(random.random())
        for prompt in prompts(32, vocab_size):
            exchange = await ask(server.port, completion(prompt, max_tokens=64))
            seen.note(exchange, 64)
            if time.perf_counter() >= until:
                return
            await asyncio.sleep(_retry_after(exchange) * random.uniform(1, 2))

    async def watch() -> None:
        while time.perf_counter() < until:
            exchange = await ask(server.port, canary)
            if exchange.status == 200:
                seen.canaries.append(exchange.text)
            await asyncio.sleep(_retry_after(exchange))

    num_clients = 10 * (_NUM_PLACES + _QUEUE)
    async with asyncio.timeout(_OVERLOAD_SECONDS + 60):
        await asyncio.gather(watch(), *(crowd() for _ in range(num_clients)))
    return seen


def _retry_after(exchange: Exchange) -> float:
    """Seconds that a refusal asks for; none after an answer."""
    _, _, rest = exchange.head.partition(b"\r\nretry-after: ")
    return float(rest.split(b"\r\n")[0] or 0)


def _settled(server: Server) -> dict[str, Any]:
    """The state once nothing is under way, or what it is after ten seconds."""
    for attempt in count():
        state = _state(server)
        stats = state["engine"]["stats"]
        is_idle = not (stats["running"] or stats["waiting"] or state["admission"]["requests"])
        if is_idle or attempt == 10:
            return state
        time.sleep(1)
    raise AssertionError("count() has no end")


def _state(server: Server) -> dict[str, Any]:
    state = json.loads(server.get("/debug/state"))
    assert isinstance(state, dict)
    return state
