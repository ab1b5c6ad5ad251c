"""Jobs run in the engine until they are done, or until the client leaves."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Coroutine, Mapping, Sequence
from contextlib import aclosing
from typing import Any, TypeVar

from inferno.errors import EngineError
from inferno.requests import FinishReason
from inferno.server.edge import Slot, Unavailable
from inferno.server.edge.asgi import Receive
from inferno.server.errors import ClientLeft, renamed
from inferno.server.jobs import Job
from inferno.text.completion import Chunk, Completion

T = TypeVar("T")


def run(jobs: Sequence[Job], slot: Slot, names: Mapping[str, str]) -> AsyncGenerator[Chunk, None]:
    """Return a generator of all jobs' chunks, in the order they come.

    names       what parameters are called in this route, for InvalidRequest.

    Leaving it aborts what is under way. Raises InvalidRequest, Refusal, EngineError.
    """
    runs = [_run_one(job, slot, names) for job in jobs]
    return runs[0] if len(runs) == 1 else _merged(runs)


async def run_all(jobs: Sequence[Job], slot: Slot, names: Mapping[str, str]) -> list[Completion]:
    """Run all jobs to their ends; return every completion, in the order of the choices."""
    done = [
        chunk.completion async for chunk in run(jobs, slot, names) if chunk.completion is not None
    ]
    return sorted(done, key=lambda each: (each.prompt_index, each.sample_index))


async def while_connected(receive: Receive, work: Coroutine[Any, Any, T]) -> T:
    """Return the work's result; cancel it and raise ClientLeft when the client leaves first."""
    working = asyncio.create_task(work)
    leaving = asyncio.create_task(_disconnect(receive))
    try:
        await asyncio.wait({working, leaving}, return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise ClientLeft
        return working.result()
    finally:
        await _end(working, leaving)


async def _run_one(job: Job, slot: Slot, names: Mapping[str, str]) -> AsyncGenerator[Chunk, None]:
    # As text.model_text.chunks_of, without a generator more for each token to pass.
    with renamed(names):
        async with aclosing(slot.generate(job.request)) as events:
            async for event in events:
                for chunk in job.texts.feed(event):
                    if chunk.completion is not None:
                        _check(chunk.completion)
                    yield chunk
                    if chunk.completion is not None and event.finish_reason is None:
                        slot.stop(event.request_id, chunk.sample_index)  # at a stop string


def _check(completion: Completion) -> None:
    if completion.finish_reason is FinishReason.ERROR:
        raise EngineError(completion.error or "a step of the engine failed")
    if completion.finish_reason is FinishReason.ABORTED:
        message = "The server stops and this request was ended; try it again."
        raise Unavailable("aborted", message, retry_after=1)


async def _disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _merged(runs: Sequence[AsyncGenerator[T, None]]) -> AsyncGenerator[T, None]:
    """Yield the items of several generators as they come; the first error ends them all."""
    items: asyncio.Queue[T | _End] = asyncio.Queue(maxsize=len(runs))
    tasks = [asyncio.create_task(_pump(each, items)) for each in runs]
    try:
        num_open = len(runs)
        while num_open:
            item = await items.get()
            if not isinstance(item, _End):
                yield item
                continue
            num_open -= 1
            if item.problem is not None:
                raise item.problem
    finally:
        await _end(*tasks)


class _End:
    """The mark of a generator that is done; `problem` is the error that ended it, if one did."""

    def __init__(self, problem: Exception | None) -> None:
        self.problem = problem


async def _pump(run: AsyncGenerator[T, None], items: asyncio.Queue[T | _End]) -> None:
    problem = None
    try:
        async with aclosing(run):
            async for item in run:
                await items.put(item)
    except Exception as error:
        problem = error
    await items.put(_End(problem))


async def _end(*tasks: asyncio.Task[Any]) -> None:
    for task in tasks:
        task.cancel()
    waiting: Awaitable[Any] = asyncio.gather(*tasks, return_exceptions=True)
    await waiting
