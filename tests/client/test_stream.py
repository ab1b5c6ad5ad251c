"""EventStream: a slow reader gets fewer events that say the same."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inferno.client.stream import EventStream
from inferno.errors import EngineDied
from inferno.requests import FinishReason, Request, SamplingParams, TokenEvent, TokenLogprobs


def make_request(n: int = 1) -> Request:
    return Request(request_id="a", prompt_token_ids=(1,), params=SamplingParams(n=n))


def event(index: int, token_id: int) -> TokenEvent:
    prompt_logprobs = (None,) if token_id == 0 else None
    logprobs = (TokenLogprobs(token_id, -1.0, ()),)
    return TokenEvent("a", index, (token_id,), logprobs, prompt_logprobs, num_cached_tokens=3)


@given(st.lists(st.tuples(st.integers(0, 2), st.booleans()), max_size=60))
def test_merging_loses_and_repeats_nothing(puts: list[tuple[int, bool]]) -> None:
    """Samples get tokens 0, 1, 2 ..., and the reader reads only where the flag says so."""

    async def main() -> None:
        stream = EventStream(make_request(3))
        reader, lengths, got = stream.read(), [0, 0, 0], list[TokenEvent]()
        for index, is_read in puts:
            stream.put(event(index, lengths[index]))
            lengths[index] += 1
            if is_read:
                got.append(await anext(reader))
        for index in range(3):
            stream.put(TokenEvent("a", index, num_cached_tokens=3, finish_reason=FinishReason.STOP))
        got += [each async for each in reader]
        for index in range(3):
            mine = [each for each in got if each.sequence_index == index]
            token_ids = [token_id for each in mine for token_id in each.token_ids]
            logprobs = [entry.token_id for each in mine for entry in each.logprobs]
            prompts = [each.prompt_logprobs for each in mine if each.prompt_logprobs]
            assert token_ids == logprobs == list(range(lengths[index]))
            assert prompts == [(None,)][: lengths[index]]
            assert [each.finish_reason for each in mine][-1] is FinishReason.STOP
            assert all(each.num_cached_tokens == 3 for each in mine)

    asyncio.run(main())


def test_nobody_reading_costs_one_event_per_sample() -> None:
    async def main() -> list[int]:
        stream = EventStream(make_request(2))
        for number in range(1000):
            stream.put(event(number % 2, number))
        stream.abort()
        return [len(each.token_ids) async for each in stream.read()]

    assert asyncio.run(main()) == [500, 500]


def test_a_failure_comes_after_what_was_put_before() -> None:
    async def main() -> None:
        stream = EventStream(make_request())
        stream.put(event(0, 7))
        stream.fail(EngineDied("gone"))
        stream.put(event(0, 8))
        reader = stream.read()
        assert (await anext(reader)).token_ids == (7,)
        with pytest.raises(EngineDied, match="gone"):
            await anext(reader)

    asyncio.run(main())
