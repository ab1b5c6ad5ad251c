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
from inferno.server.edge import Admission, DeadlineExceeded, Record, Refusal, Slot, Unavailable
from inferno.server.edge.ledger import Ledger
from inferno.server.settings import ServerSettings

SLOW = Script(answers=(Answer(token_ids=(7,), is_endless=True, delay=0.01),), max_num_seqs=2)
_numbers = count()


class Desk:
    """An admission, with what it counts."""

    def __init__(self, script: Script = SLOW, **settings: Any) -> None:
        self.ledger = Ledger()
        self.engine = ScriptedClient(script)
        self.admission = Admission(self.engine, ServerSettings(**settings), self.ledger)

    def slot(self, num_tokens: int = 1, **kwargs: Any) -> Slot:
        return self.admission.slot(num_tokens, record=Record(request_id="r"), **kwargs)

    @property
    def is_empty(self) -> bool:
        admission = self.admission
        return not (admission.num_open or admission.num_samples or admission.num_queued_tokens)


def _request(num_tokens: int = 1, n: int = 1, max_tokens: int | None = None) -> Request:
    params = SamplingParams(n=n, max_tokens=max_tokens)
    prompt = (1,) * num_tokens
    return Request(request_id=f"r{next(_numbers)}", prompt_token_ids=prompt, params=params)


async def _use(slot: Slot, request: Request) -> list[FinishReason | None]:
    async with slot, aclosing(slot.generate(request)) as events:
        return [event.finish_reason async for event in events]


async def _ready(script: Script = SLOW, **settings: Any) -> Desk:
    desk = Desk(script, **settings)
    await desk.engine.wait_ready()
    return desk


def test_requests_beyond_the_queue_are_sent_away_at_once() -> None:
    async def crowd() -> None:
        desk = await _ready(max_queue=3)
        slots = [desk.slot() for _ in range(5)]  # two may run, three may wait
        with pytest.raises(Unavailable) as refused:
            desk.slot()
        assert (refused.value.status, refused.value.code) == (503, "queue_full")
        assert refused.value.retry_after in (1, 2, 3)
        slots[0].release()
        slots[0].release()
        desk.slot()
        with pytest.raises(Unavailable):
            desk.slot()

    asyncio.run(crowd())


def test_those_sent_away_together_are_not_asked_back_together() -> None:
    async def crowd() -> set[int | None]:
        desk = await _ready(max_queue=0)
        desk.slot(), desk.slot()
        told = set()
        for _ in range(50):
            with pytest.raises(Unavailable) as refused:
                desk.slot()
            told.add(refused.value.retry_after)
        return told

    assert len(asyncio.run(crowd())) > 1  # by chance only once in 2 ** 50


def test_prompts_beyond_the_queue_are_sent_away_until_others_have_begun() -> None:
    async def crowd() -> None:
        desk = await _ready(max_queue_tokens=10)
        first = desk.slot(8)
        with pytest.raises(Unavailable) as refused:
            desk.slot(3)
        assert refused.value.code == "queue_tokens_full"
        async with first, aclosing(first.generate(_request(8))) as events:
            await anext(events)
            desk.slot(3).release()
        assert desk.is_empty

    asyncio.run(crowd())


def test_an_empty_server_takes_a_request_of_any_size() -> None:
    async def alone() -> None:
        desk = await _ready(max_queue=0, max_queue_tokens=10)
        slot = desk.slot(1_000_000, num_samples=1000)
        slot.release()
        assert desk.is_empty

    asyncio.run(alone())


def test_samples_count_each() -> None:
    async def wide() -> None:
        desk = await _ready(max_queue=2)
        slot = desk.slot(num_samples=3)
        with pytest.raises(Unavailable):
            desk.slot(num_samples=2)
        desk.slot(num_samples=1)
        slot.release()

    asyncio.run(wide())


def test_nothing_is_taken_while_the_model_is_loaded() -> None:
    async def early() -> None:
        desk = Desk()
        with pytest.raises(Unavailable) as refused:
            desk.slot()
        assert (refused.value.code, refused.value.retry_after) == ("loading", 5)

    asyncio.run(early())


@pytest.mark.parametrize("own", [None, 0.05, 100.0])
def test_a_deadline_ends_a_request_that_waits(own: float | None) -> None:
    async def late() -> None:
        desk = await _ready(
            Script(answers=(Answer(first_delay=600.0),)),
            request_timeout=600.0 if own == 0.05 else 0.05,
        )
        began = time.perf_counter()
        with pytest.raises(DeadlineExceeded) as exceeded:
            await _use(desk.slot(timeout=own), _request())
        assert exceeded.value.status == 504
        assert time.perf_counter() - began > 0.03
        assert desk.is_empty
        assert desk.engine.stats().running == 0
        assert desk.ledger.aborted == {"deadline_exceeded": 1}
        assert desk.ledger.finished == {"aborted": 1}

    asyncio.run(late())


def test_a_deadline_that_passes_between_events_is_raised_at_the_next() -> None:
    async def late() -> None:
        desk = await _ready()
        slot = desk.slot(timeout=0.03)
        async with slot, aclosing(slot.generate(_request())) as events:
            await anext(events)
            await asyncio.sleep(0.1)  # as when a client is slow to read
            with pytest.raises(DeadlineExceeded):
                await anext(events)
        assert desk.is_empty

    asyncio.run(late())


def test_a_cancellation_from_outside_stays_one() -> None:
    async def leave() -> None:
        desk = await _ready()
        task = asyncio.create_task(_use(desk.slot(timeout=0.05), _request()))
        await asyncio.sleep(0.02)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert desk.is_empty
        assert desk.engine.stats().running == 0
        assert desk.ledger.aborted == {"disconnect": 1}

    asyncio.run(leave())


def test_a_deadline_and_a_disconnect_at_once_leave_nothing_behind() -> None:
    async def both() -> None:
        desk = await _ready()
        slot = desk.slot()
        task = asyncio.create_task(_use(slot, _request()))
        await asyncio.sleep(0.02)
        task.cancel()
        slot.end(DeadlineExceeded(1))
        with pytest.raises((asyncio.CancelledError, DeadlineExceeded)):
            await task
        assert desk.is_empty

    asyncio.run(both())


def test_ending_all_ends_every_run_of_every_request() -> None:
    async def stop() -> None:
        desk = await _ready()
        slots = [desk.slot(), desk.slot()]
        runs = [asyncio.create_task(_use(slot, _request())) for slot in slots for _ in range(3)]
        await asyncio.sleep(0.03)
        desk.admission.end_all(Refusal(503, "shutting_down", "bye"))
        results = await asyncio.gather(*runs, return_exceptions=True)
        assert {type(result) for result in results} == {Refusal}
        assert desk.is_empty
        assert desk.ledger.aborted == {"shutting_down": 6}

    asyncio.run(stop())


def test_a_slot_that_nobody_entered_goes_with_its_request() -> None:
    async def forget() -> None:
        desk = await _ready()
        record = Record(request_id="r")
        desk.admission.slot(5, record=record)
        record.end()
        assert desk.is_empty

    asyncio.run(forget())


def test_tokens_and_endings_are_counted_exactly() -> None:
    async def mixed() -> None:
        answers = (
            Answer(token_ids=(1, 2, 3), num_cached_tokens=2),
            Answer(token_ids=(7,), is_endless=True),
            Answer(token_ids=(1, 2, 3), error_after=1),
            Answer(dies_after=2, token_ids=(1, 2, 3)),
        )
        desk = await _ready(Script(answers=answers))
        record = Record(request_id="r")
        slot = desk.admission.slot(3, record=record)
        assert (await _use(slot, _request(3, n=2)))[-1] is FinishReason.STOP
        assert (record.prompt_tokens, record.cached_tokens, record.completion_tokens) == (3, 2, 6)
        assert record.finish_reasons == ["stop", "stop"]
        await _use(desk.slot(), _request(1, max_tokens=5))
        await _use(desk.slot(), _request(1))
        with pytest.raises(EngineDied):
            await _use(desk.slot(), _request(1))
        ledger = desk.ledger
        assert ledger.finished == {"stop": 2, "length": 1, "error": 2}
        assert ledger.aborted == {"engine_died": 1}
        assert (ledger.prompt_tokens, ledger.cached_tokens) == (6, 2)
        assert ledger.generated_tokens == 6 + 5 + 1 + 2
        assert sum(ledger.first_token.counts) == 4
        assert sum(ledger.between_tokens.counts) == 4 + 4 + 0 + 1

    asyncio.run(mixed())


def test_a_sample_that_a_stop_string_ends_counts_as_stopped() -> None:
    async def stop() -> None:
        desk = await _ready()
        slot, request = desk.slot(), _request()
        async with slot, aclosing(slot.generate(request)) as events:
            await anext(events)
            slot.stop(request.request_id, 0)
            reasons = [event.finish_reason async for event in events]
        assert reasons[-1] is FinishReason.ABORTED
        assert desk.ledger.finished == {"stop": 1}
        assert not desk.ledger.aborted

    asyncio.run(stop())


def test_what_the_engine_refuses_is_not_counted_as_aborted() -> None:
    async def refuse() -> None:
        desk = await _ready(Script(answers=(Answer(refusal="no", param="prompt"),)))
        with pytest.raises(InvalidRequest):
            await _use(desk.slot(), _request())
        assert desk.is_empty
        assert not desk.ledger.aborted
        assert not desk.ledger.finished

    asyncio.run(refuse())


def test_an_idle_engine_waits_for_its_first_batch() -> None:
    async def alone() -> float:
        desk = await _ready(Script(max_num_seqs=2), max_wait_ms=200)
        began = time.perf_counter()
        await _use(desk.slot(), _request(max_tokens=1))
        return time.perf_counter() - began

    assert asyncio.run(alone()) >= 0.2


def test_a_batch_that_is_full_is_not_waited_for() -> None:
    async def gather() -> None:
        desk = await _ready(Script(max_num_seqs=2), max_wait_ms=60_000)
        uses = (_use(desk.slot(), _request(max_tokens=1)) for _ in range(2))
        await asyncio.wait_for(asyncio.gather(*uses), 50)

    asyncio.run(gather())


def test_a_busy_engine_is_not_waited_for() -> None:
    async def join() -> None:
        desk = await _ready(max_wait_ms=60_000)
        staying, leaving = desk.slot(), desk.slot()
        async with staying, aclosing(staying.generate(_request())) as events:
            async with leaving, aclosing(leaving.generate(_request())) as others:
                await asyncio.gather(anext(events), anext(others))  # a full batch begins at once
            await asyncio.wait_for(_use(desk.slot(), _request(max_tokens=1)), 50)

    asyncio.run(join())


def test_who_leaves_while_waiting_for_a_batch_is_not_counted_in_it() -> None:
    async def leave() -> None:
        desk = await _ready(max_wait_ms=60_000)
        for _ in range(2):
            task = asyncio.create_task(_use(desk.slot(), _request()))
            await asyncio.sleep(0.01)
            task.cancel()
            await asyncio.wait({task})
        for _ in range(2):  # idle again after the first batch, it waits again
            waiting = asyncio.create_task(_use(desk.slot(), _request(max_tokens=1)))
            await asyncio.sleep(0.05)
            assert not waiting.done()  # those who left don't fill a batch
            await asyncio.wait_for(_use(desk.slot(), _request(max_tokens=1)), 50)
            await waiting
        assert desk.is_empty

    asyncio.run(leave())
