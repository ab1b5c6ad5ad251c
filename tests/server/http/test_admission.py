"""Who gets a place, who is sent away, and how a place is lost."""

from __future__ import annotations

import asyncio
import time
from contextlib import aclosing
from itertools import count
from typing import Any

import pytest

from inferno.client.scripted import Answer, Script, ScriptedClient
from inferno.errors import EngineDied, InvalidRequest
from inferno.requests import FinishReason, Request, SamplingParams
from inferno.server.http import (
    Admission,
    ApiError,
    DeadlineExceeded,
    Lease,
    RequestContext,
    Unavailable,
)
from inferno.server.http.metrics import ServerMetrics
from inferno.server.settings import ServerSettings
from tests.patience import PATIENCE

SLOW = Script(answers=(Answer(token_ids=(7,), is_endless=True, delay=0.01),), max_num_seqs=2)
_numbers = count()


class Setup:
    """An admission, with what it counts."""

    def __init__(self, script: Script = SLOW, **settings: Any) -> None:
        self.metrics = ServerMetrics()
        self.engine = ScriptedClient(script)
        self.admission = Admission(self.engine, ServerSettings(**settings), self.metrics)

    def lease(self, num_tokens: int = 1, **kwargs: Any) -> Lease:
        return self.admission.acquire(num_tokens, context=RequestContext(request_id="r"), **kwargs)

    @property
    def is_empty(self) -> bool:
        admission = self.admission
        return not (admission.num_open or admission.num_sequences or admission.num_queued_tokens)


def _request(num_tokens: int = 1, n: int = 1, max_tokens: int | None = None) -> Request:
    params = SamplingParams(n=n, max_tokens=max_tokens)
    prompt = (1,) * num_tokens
    return Request(request_id=f"r{next(_numbers)}", prompt_token_ids=prompt, params=params)


async def _use(lease: Lease, request: Request) -> list[FinishReason | None]:
    async with lease, aclosing(lease.generate(request)) as events:
        return [event.finish_reason async for event in events]


async def _ready(script: Script = SLOW, **settings: Any) -> Setup:
    setup = Setup(script, **settings)
    await setup.engine.wait_ready()
    return setup


def test_requests_beyond_the_queue_are_sent_away_at_once() -> None:
    async def crowd() -> None:
        setup = await _ready(max_queue=3)
        leases = [setup.lease() for _ in range(5)]  # two may run, three may wait
        with pytest.raises(Unavailable) as refused:
            setup.lease()
        assert (refused.value.status, refused.value.code) == (503, "queue_full")
        assert refused.value.retry_after in (1, 2, 3)
        leases[0].release()
        leases[0].release()
        setup.lease()
        with pytest.raises(Unavailable):
            setup.lease()

    asyncio.run(crowd())


def test_those_sent_away_together_are_not_asked_back_together() -> None:
    async def crowd() -> set[int | None]:
        setup = await _ready(max_queue=0)
        setup.lease(), setup.lease()
        seen = set()
        for _ in range(50):
            with pytest.raises(Unavailable) as refused:
                setup.lease()
            seen.add(refused.value.retry_after)
        return seen

    assert len(asyncio.run(crowd())) > 1  # by chance only once in 2 ** 50


def test_prompts_beyond_the_queue_are_sent_away_until_others_have_begun() -> None:
    async def crowd() -> None:
        setup = await _ready(max_queue_tokens=10)
        first = setup.lease(8)
        with pytest.raises(Unavailable) as refused:
            setup.lease(3)
        assert refused.value.code == "queue_tokens_full"
        async with first, aclosing(first.generate(_request(8))) as events:
            await anext(events)
            setup.lease(3).release()
        assert setup.is_empty

    asyncio.run(crowd())


def test_an_empty_server_takes_a_request_of_any_size() -> None:
    async def alone() -> None:
        setup = await _ready(max_queue=0, max_queue_tokens=10)
        lease = setup.lease(1_000_000, num_sequences=1000)
        lease.release()
        assert setup.is_empty

    asyncio.run(alone())


def test_samples_count_each() -> None:
    async def wide() -> None:
        setup = await _ready(max_queue=2)
        lease = setup.lease(num_sequences=3)
        with pytest.raises(Unavailable):
            setup.lease(num_sequences=2)
        setup.lease(num_sequences=1)
        lease.release()

    asyncio.run(wide())


def test_nothing_is_taken_while_the_model_is_loaded() -> None:
    async def early() -> None:
        setup = Setup()
        with pytest.raises(Unavailable) as refused:
            setup.lease()
        assert (refused.value.code, refused.value.retry_after) == ("loading", 5)

    asyncio.run(early())


@pytest.mark.parametrize("own", [None, 0.05, 100.0])
def test_a_deadline_ends_a_request_that_waits(own: float | None) -> None:
    async def late() -> None:
        setup = await _ready(
            Script(answers=(Answer(first_delay=600.0),)),
            request_timeout=600.0 if own == 0.05 else 0.05,
        )
        began = time.perf_counter()
        with pytest.raises(DeadlineExceeded) as exceeded:
            await _use(setup.lease(timeout=own), _request())
        assert exceeded.value.status == 504
        assert time.perf_counter() - began > 0.03
        assert setup.is_empty
        assert setup.engine.stats().running == 0
        assert setup.metrics.aborted == {"deadline_exceeded": 1}
        assert setup.metrics.finished == {"aborted": 1}

    asyncio.run(late())


def test_a_deadline_that_passes_between_events_is_raised_at_the_next() -> None:
    async def late() -> None:
        setup = await _ready()
        lease = setup.lease(timeout=1.0)
        async with lease, aclosing(lease.generate(_request())) as events:
            await anext(events)
            await asyncio.sleep(1.1)  # as when a client is slow to read
            with pytest.raises(DeadlineExceeded):
                await anext(events)
        assert setup.is_empty

    asyncio.run(late())


def test_a_cancellation_from_outside_stays_one() -> None:
    async def leave() -> None:
        setup = await _ready()
        task = asyncio.create_task(_use(setup.lease(timeout=PATIENCE), _request()))
        while not setup.engine.stats().running:
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert setup.is_empty
        assert setup.engine.stats().running == 0
        assert setup.metrics.aborted == {"disconnect": 1}

    asyncio.run(leave())


def test_a_deadline_and_a_disconnect_at_once_leave_nothing_behind() -> None:
    async def both() -> None:
        setup = await _ready()
        lease = setup.lease()
        task = asyncio.create_task(_use(lease, _request()))
        await asyncio.sleep(0.02)
        task.cancel()
        lease.end(DeadlineExceeded(1))
        with pytest.raises((asyncio.CancelledError, DeadlineExceeded)):
            await task
        assert setup.is_empty

    asyncio.run(both())


def test_ending_all_ends_every_run_of_every_request() -> None:
    async def shutdown() -> None:
        setup = await _ready()
        leases = [setup.lease(), setup.lease()]
        runs = [asyncio.create_task(_use(lease, _request())) for lease in leases for _ in range(3)]
        await asyncio.sleep(0.03)
        setup.admission.end_all(ApiError(503, "shutting_down", "bye"))
        results = await asyncio.gather(*runs, return_exceptions=True)
        assert {type(result) for result in results} == {ApiError}
        assert setup.is_empty
        assert setup.metrics.aborted == {"shutting_down": 6}

    asyncio.run(shutdown())


def test_a_slot_that_nobody_entered_goes_with_its_request() -> None:
    async def forget() -> None:
        setup = await _ready()
        context = RequestContext(request_id="r")
        setup.admission.acquire(5, context=context)
        context.end()
        assert setup.is_empty

    asyncio.run(forget())


def test_tokens_and_endings_are_counted_exactly() -> None:
    async def mixed() -> None:
        answers = (
            Answer(token_ids=(1, 2, 3), num_cached_tokens=2),
            Answer(token_ids=(7,), is_endless=True),
            Answer(token_ids=(1, 2, 3), error_after=1),
            Answer(dies_after=2, token_ids=(1, 2, 3)),
        )
        setup = await _ready(Script(answers=answers))
        context = RequestContext(request_id="r")
        lease = setup.admission.acquire(3, context=context)
        assert (await _use(lease, _request(3, n=2)))[-1] is FinishReason.STOP
        assert (context.prompt_tokens, context.cached_tokens, context.completion_tokens) == (
            3,
            2,
            6,
        )
        assert context.finish_reasons == ["stop", "stop"]
        await _use(setup.lease(), _request(1, max_tokens=5))
        await _use(setup.lease(), _request(1))
        with pytest.raises(EngineDied):
            await _use(setup.lease(), _request(1))
        metrics = setup.metrics
        assert metrics.finished == {"stop": 2, "length": 1, "error": 2}
        assert metrics.aborted == {"engine_died": 1}
        assert (metrics.prompt_tokens, metrics.cached_tokens) == (6, 2)
        assert metrics.generated_tokens == 6 + 5 + 1 + 2
        assert sum(metrics.time_to_first_token.counts) == 4
        assert sum(metrics.inter_token_latency.counts) == 4 + 4 + 0 + 1

    asyncio.run(mixed())


def test_a_sample_that_a_stop_string_ends_counts_as_stopped() -> None:
    async def shutdown() -> None:
        setup = await _ready()
        lease, request = setup.lease(), _request()
        async with lease, aclosing(lease.generate(request)) as events:
            await anext(events)
            lease.stop(request.request_id, 0)
            reasons = [event.finish_reason async for event in events]
        assert reasons[-1] is FinishReason.ABORTED
        assert setup.metrics.finished == {"stop": 1}
        assert not setup.metrics.aborted

    asyncio.run(shutdown())


def test_what_the_engine_refuses_is_not_counted_as_aborted() -> None:
    async def refuse() -> None:
        setup = await _ready(Script(answers=(Answer(refusal="no", param="prompt"),)))
        with pytest.raises(InvalidRequest):
            await _use(setup.lease(), _request())
        assert setup.is_empty
        assert not setup.metrics.aborted
        assert not setup.metrics.finished

    asyncio.run(refuse())


def test_an_idle_engine_waits_for_its_first_batch() -> None:
    async def alone() -> float:
        setup = await _ready(Script(max_num_seqs=2), max_wait_ms=200)
        began = time.perf_counter()
        await _use(setup.lease(), _request(max_tokens=1))
        return time.perf_counter() - began

    assert asyncio.run(alone()) >= 0.2


def test_a_batch_that_is_full_is_not_waited_for() -> None:
    async def gather() -> None:
        setup = await _ready(Script(max_num_seqs=2), max_wait_ms=60_000)
        uses = (_use(setup.lease(), _request(max_tokens=1)) for _ in range(2))
        await asyncio.wait_for(asyncio.gather(*uses), 50)

    asyncio.run(gather())


def test_a_busy_engine_is_not_waited_for() -> None:
    async def join() -> None:
        setup = await _ready(max_wait_ms=60_000)
        staying, leaving = setup.lease(), setup.lease()
        async with staying, aclosing(staying.generate(_request())) as events:
            async with leaving, aclosing(leaving.generate(_request())) as others:
                await asyncio.gather(anext(events), anext(others))  # a full batch begins at once
            await asyncio.wait_for(_use(setup.lease(), _request(max_tokens=1)), 50)

    asyncio.run(join())


def test_who_leaves_while_waiting_for_a_batch_is_not_counted_in_it() -> None:
    async def leave() -> None:
        setup = await _ready(max_wait_ms=60_000)
        for _ in range(2):
            task = asyncio.create_task(_use(setup.lease(), _request()))
            await asyncio.sleep(0.01)
            task.cancel()
            await asyncio.wait({task})
        for _ in range(2):  # idle again after the first batch, it waits again
            waiting = asyncio.create_task(_use(setup.lease(), _request(max_tokens=1)))
            await asyncio.sleep(0.05)
            assert not waiting.done()  # those who left don't fill a batch
            await asyncio.wait_for(_use(setup.lease(), _request(max_tokens=1)), 50)
            await waiting
        assert setup.is_empty

    asyncio.run(leave())
