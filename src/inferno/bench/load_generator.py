"""Send a server the requests of a load, at the moments that the load says.

Prompts are random words or token ids, never the same twice.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Iterator
from random import Random
from typing import Any

from inferno.bench.load import Endpoint, Load, LoadResult, RequestResult
from inferno.bench.timed_request import run_request
from inferno.errors import InvalidRequest

Tell = Callable[[str], None]

# Short and common, so that most tokenizers have each as one token.
_WORDS = (
    "time year people way day man thing woman life child world school state family student group "
    "country problem hand part place case week company system program question work number night "
    "point home water room mother area money story fact month lot right study book eye job word "
    "business issue side kind head house service friend father power hour game line end member "
    "law car city name team minute idea body back parent face level office door health person art "
    "war history party result change morning reason girl guy moment air teacher force education"
)


async def run_load(load: Load, tell: Tell) -> LoadResult:
    """Run the load and return every request's result, after a warm-up that is not counted.

    Raises InvalidRequest where the first one fails.
    """
    tell("warming up")
    first = await run_request(load, body(load, Random(load.seed - 1)))
    if first.problem is not None:
        raise InvalidRequest(
            f"{load.target.authority} did not answer a first request: {first.problem}; see "
            "--base-url, --model and --api-key"
        )
    generator = _LoadGenerator(load, tell)
    cpu_before = time.process_time()
    await (generator.keep_open() if load.request_rate is None else generator.let_arrive())
    cpu_seconds = time.process_time() - cpu_before
    return LoadResult(
        requests=tuple(generator.results), cpu_seconds=cpu_seconds, most_late=generator.most_late
    )


class _LoadGenerator:
    def __init__(self, load: Load, tell: Tell) -> None:
        self.results: list[RequestResult] = []
        self.most_late = 0.0
        self._load = load
        self._tell = tell

    async def keep_open(self) -> None:
        """Keep a fixed number of requests open at any time."""
        waiting = bodies(self._load)
        async with asyncio.TaskGroup() as group:
            for _ in range(min(self._load.concurrency, self._load.num_requests)):
                group.create_task(self._ask_each(waiting))

    async def let_arrive(self) -> None:
        """Begin requests at random moments, whether or not others have ended."""
        assert self._load.request_rate is not None
        gaps = Random(self._load.seed)
        due = time.perf_counter()
        async with asyncio.TaskGroup() as group:
            for each in bodies(self._load):
                await asyncio.sleep(max(0.0, due - time.perf_counter()))
                group.create_task(self._ask(each, due))
                due += gaps.expovariate(self._load.request_rate)

    async def _ask_each(self, waiting: Iterator[bytes]) -> None:
        for each in waiting:
            await self._ask(each, time.perf_counter())

    async def _ask(self, each: bytes, due: float) -> None:
        self.most_late = max(self.most_late, time.perf_counter() - due)
        self.results.append(await run_request(self._load, each))
        self._tell(f"{len(self.results)} of {self._load.num_requests} requests")


def bodies(load: Load) -> Iterator[bytes]:
    """Yield the body of each request, in turn; the same load has the same ones."""
    random = Random(load.seed)
    for _ in range(load.num_requests):
        yield body(load, random)


def body(load: Load, random: Random) -> bytes:
    """Return the JSON body of one request."""
    prompt = _prompt(load, _length(load.prompt_tokens, load, random), random)
    fields: dict[str, Any] = {
        "model": load.model,
        "max_tokens": _length(load.max_tokens, load, random),
        "temperature": load.temperature,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    if load.ignore_eos:
        fields["ignore_eos"] = True
    if load.endpoint is Endpoint.CHAT:
        fields["messages"] = [{"role": "user", "content": prompt}]
    else:
        fields["prompt"] = prompt
    return json.dumps(fields).encode()


def _length(usual: int, load: Load, random: Random) -> int:
    return max(1, round(usual * random.uniform(1 - load.spread, 1 + load.spread)))


def _prompt(load: Load, length: int, random: Random) -> str | list[int]:
    if load.vocab_size is None:
        return " ".join(random.choices(_WORDS.split(), k=length))
    return random.choices(range(load.vocab_size), k=length)
