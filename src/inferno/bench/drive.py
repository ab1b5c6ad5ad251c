"""Ask a server all requests of a load, at the moments that the load says."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from random import Random

from inferno.bench.ask import ask
from inferno.bench.bodies import bodies, body
from inferno.bench.load import Asked, Driven, Load
from inferno.errors import InvalidRequest

Tell = Callable[[str], None]


async def drive(load: Load, tell: Tell) -> Driven:
    """Run the load and return every request's result, after a warm-up that is not counted.

    Raises InvalidRequest where the first one fails.
    """
    tell("warming up")
    first = await ask(load, body(load, Random(load.seed - 1)))
    if first.problem is not None:
        raise InvalidRequest(
            f"{load.target.authority} did not answer a first request: {first.problem}; see "
            "--base-url, --model and --api-key"
        )
    driver = _Driver(load, tell)
    cpu_before = time.process_time()
    await (driver.keep_open() if load.request_rate is None else driver.let_arrive())
    cpu_seconds = time.process_time() - cpu_before
    return Driven(asked=tuple(driver.asked), cpu_seconds=cpu_seconds, most_late=driver.most_late)


class _Driver:
    def __init__(self, load: Load, tell: Tell) -> None:
        self.asked: list[Asked] = []
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
        self.asked.append(await ask(self._load, each))
        self._tell(f"{len(self.asked)} of {self._load.num_requests} requests")
