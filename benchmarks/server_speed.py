"""What serving costs: time of the parent, of a token, of a start, and memory."""

from __future__ import annotations

import asyncio
import json
import statistics
import tempfile
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from server_client import Exchange, ask, ask_all, completion, get, post, prompts
from server_figures import Figure, Subject, run
from server_process import Server, serving, started

from inferno.engine.build import build_engine
from inferno.engine.engine import Engine
from inferno.hub.find import find_model_folder
from inferno.options import EngineOptions
from inferno.requests import Request, SamplingParams

_NUM_IDLE = 500
_IDLE_SCRIPT = {
    "answers": [{"token_ids": [1], "is_endless": True, "delay": 3600}],
    "max_num_seqs": _NUM_IDLE,
}


def cost(subject: Subject) -> Iterator[Figure]:
    """CPU time that the parent spends on a token that it streams."""
    with serving(*subject.options) as server:
        vocab_size = _vocab_size(server)
        for num_streams in (1, subject.num_streams):
            taken = []
            for _ in range(subject.num_rounds + 1):
                before = server.parent.cpu_seconds
                done = _stream(server, subject, num_streams, vocab_size)
                num_tokens = sum(each.num_tokens for each in done)
                taken.append((server.parent.cpu_seconds - before) / num_tokens * 1e6)
            what = f"parent's CPU a token, streams at a time: {num_streams}"
            yield Figure(what, statistics.median(taken[1:]), "µs", 60)


def latency(subject: Subject) -> Iterator[Figure]:
    """What the server adds to the time from token to token, at one stream."""
    added = []
    engine = _engine(subject)
    with serving(*subject.options) as server:
        for _ in range(subject.num_rounds + 1):
            offline = _offline(engine, subject, 1)
            (stream,) = _stream(server, subject, 1, engine.vocab_size)
            served = (stream.arrivals[-1] - stream.arrivals[0]) / (stream.num_tokens - 1)
            added.append((served - offline.per_token) * 1e3)
    yield Figure("added from token to token", statistics.median(added[1:]), "ms", 1)


def throughput(subject: Subject) -> Iterator[Figure]:
    """Tokens a second of all streams, prompts included, beside the same engine without a server."""
    alone, served = [], []
    engine = _engine(subject)
    with serving(*subject.options) as server:
        for _ in range(subject.num_rounds + 1):
            alone.append(_offline(engine, subject, subject.num_streams).rate)
            begun = time.perf_counter()
            done = _stream(server, subject, subject.num_streams, engine.vocab_size)
            seconds = time.perf_counter() - begun
            served.append(sum(each.num_tokens for each in done) / seconds)
    ratios = [b / a for a, b in zip(alone[1:], served[1:], strict=True)]
    yield Figure("offline", statistics.median(alone[1:]), "tokens/s")
    yield Figure("served", statistics.median(served[1:]), "tokens/s")
    yield Figure("served / offline, in pairs", statistics.median(ratios), "", 0.85, is_least=True)


def health(subject: Subject) -> Iterator[Figure]:
    """How long /health takes while all places are taken."""
    with serving(*subject.options, "--max-num-seqs", str(subject.num_streams)) as server:
        seconds = sorted(run(_health(server, subject, _vocab_size(server))))
    yield Figure(f"median of {len(seconds)} requests", statistics.median(seconds) * 1e3, "ms")
    yield Figure("99th percentile", seconds[int(len(seconds) * 0.99)] * 1e3, "ms", 100)


def idle(_: Subject) -> Iterator[Figure]:
    """Memory of streams in which nothing happens."""
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / "idle.json"
        script.write_text(json.dumps(_IDLE_SCRIPT))
        with serving("demo", "--fake-model", str(script)) as server:
            before = server.parent.resident_bytes
            run(_hold_open(server))
            after = server.parent.resident_bytes
    yield Figure(f"resident with {_NUM_IDLE} idle streams", after / 1e6, "MB", 200)
    yield Figure("of it by these streams", (after - before) / 1e6, "MB")


def startup(subject: Subject) -> Iterator[Figure]:
    """From the start of the process to the end of a first answer."""
    seconds = [run(_first_answer(subject)) for _ in range(subject.num_rounds + 1)][1:]
    yield Figure("first answer after", statistics.median(seconds), "s", 3)


class _Offline:
    """A run of the engine in this process."""

    def __init__(self, num_tokens: int, begun: float, first: float, ended: float) -> None:
        self.rate = num_tokens / (ended - begun)
        self.per_token = (ended - first) / (num_tokens - 1)  # of a single stream


def _engine(subject: Subject) -> Engine:
    options = EngineOptions(
        model=find_model_folder(subject.model),
        load_format=subject.load_format,
        quantize=subject.quantize,
        threads=subject.threads,
        num_blocks=subject.num_blocks,
    )
    return build_engine(options)


def _offline(engine: Engine, subject: Subject, num_streams: int) -> _Offline:
    begun = time.perf_counter()
    params = SamplingParams(temperature=0.0, max_tokens=subject.num_tokens, ignore_eos=True)
    for prompt in islice(prompts(subject.num_prompt_tokens, engine.vocab_size), num_streams):
        name = f"{time.perf_counter_ns()}"
        engine.add_request(Request(request_id=name, prompt_token_ids=tuple(prompt), params=params))
    first, num_tokens = 0.0, 0
    while engine.has_work:
        num_tokens += sum(len(event.token_ids) for event in engine.step())
        first = first or time.perf_counter()
    return _Offline(num_tokens, begun, first, time.perf_counter())


def _stream(server: Server, subject: Subject, num_streams: int, vocab_size: int) -> list[Exchange]:
    some = islice(prompts(subject.num_prompt_tokens, vocab_size), num_streams)
    requests = [completion(prompt, max_tokens=subject.num_tokens) for prompt in some]
    return run(ask_all(server.port, requests, num_streams))


def _vocab_size(server: Server) -> int:
    facts = json.loads(server.get("/debug/state"))["engine"]["facts"]
    return int(facts["vocab_size"])


async def _health(server: Server, subject: Subject, vocab_size: int) -> list[float]:
    some = islice(prompts(subject.num_prompt_tokens, vocab_size), 20 * subject.num_streams)
    requests = [completion(prompt, max_tokens=subject.num_tokens) for prompt in some]
    load = asyncio.create_task(ask_all(server.port, requests, subject.num_streams))
    seconds = []
    while not load.done():
        seconds.append((await ask(server.port, get("/health"))).seconds)
        await asyncio.sleep(0.01)
    return seconds


async def _hold_open(server: Server) -> None:
    """Open streams whose second token never comes, and leave them."""
    loop = asyncio.get_running_loop()
    request = completion([1], max_tokens=9)
    streams = []
    for _ in range(_NUM_IDLE):
        _, stream = await loop.create_connection(
            lambda: Exchange(request), "127.0.0.1", server.port
        )
        streams.append(stream)
    while not all(stream.arrivals for stream in streams):
        await asyncio.sleep(0.1)


async def _first_answer(subject: Subject) -> float:
    fields = {"messages": [{"role": "user", "content": "Hello"}], "max_tokens": 1}
    begun = time.perf_counter()
    with started(*subject.options) as (port, _, _):
        while True:
            try:
                if (await ask(port, post("/v1/chat/completions", fields))).status == 200:
                    return time.perf_counter() - begun
            except OSError:
                pass
            await asyncio.sleep(0.005)
