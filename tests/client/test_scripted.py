"""ScriptedClient: what the script says happens."""

from __future__ import annotations

import asyncio
import itertools
import json
from pathlib import Path

import pytest

from inferno.client import EngineState
from inferno.client.scripted import Answer, Script, ScriptedClient, load_script
from inferno.errors import EngineDied, InvalidRequest, ModelError, NeverFits
from inferno.requests import FinishReason, Request, SamplingParams, TokenEvent

_NUMBERS = itertools.count()


def make_request(max_tokens: int | None = None, *, n: int = 1) -> Request:
    params = SamplingParams(max_tokens=max_tokens, n=n, logprobs=1)
    return Request(request_id=f"r{next(_NUMBERS)}", prompt_token_ids=(7, 8, 9), params=params)


async def play(client: ScriptedClient, request: Request) -> list[TokenEvent]:
    return [event async for event in client.generate(request)]


def test_answers_are_given_in_turn() -> None:
    async def main() -> list[list[TokenEvent]]:
        client = ScriptedClient(Script(answers=(Answer(token_ids=(1, 2)), Answer())))
        await client.wait_ready()
        requests = [make_request(), make_request(2), make_request(n=2)]
        return [await play(client, request) for request in requests]

    first, second, third = asyncio.run(main())
    assert [event.token_ids for event in first] == [(1,), (2,), ()]
    assert first[-1].finish_reason is FinishReason.STOP
    assert [event.token_ids for event in second] == [(7,), (8,)]
    assert second[-1].finish_reason is FinishReason.LENGTH
    assert sorted(len(event.token_ids) for event in third) == [0, 0, 1, 1, 1, 1, 1, 1]


def test_an_endless_answer_ends_when_it_is_aborted_or_left() -> None:
    async def main() -> None:
        client = ScriptedClient(Script(answers=(Answer(is_endless=True, delay=0.001),)))
        await client.wait_ready()
        request = make_request()
        async for event in client.generate(request):
            if event.finish_reason is None:
                client.abort(request.request_id, 0)
            else:
                assert event.finish_reason is FinishReason.ABORTED
        events = client.generate(make_request(n=2))
        await anext(events)
        assert client.stats().running == 2
        await events.aclose()
        assert client.stats().running == 0

    asyncio.run(main())


def test_refusals_deaths_and_errors_are_played() -> None:
    async def main() -> None:
        answers = (
            Answer(refusal="no", param="top_p"),
            Answer(refusal="too long", never_fits=True),
            Answer(error_after=1),
            Answer(dies_after=1),
            Answer(),
        )
        client = ScriptedClient(Script(answers=answers, restart_seconds=0.01))
        with pytest.raises(EngineDied, match="loading"):
            await play(client, make_request())
        await client.wait_ready()
        with pytest.raises(InvalidRequest, match="no"):
            await play(client, make_request())
        with pytest.raises(NeverFits):
            await play(client, make_request())
        assert (await play(client, make_request()))[-1].finish_reason is FinishReason.ERROR
        with pytest.raises(EngineDied):
            await play(client, make_request())
        assert (client.state, client.stats().restarts) == (EngineState.RESTARTING, 1)
        await asyncio.sleep(0.05)
        assert len(await play(client, make_request())) == 4
        await client.close()
        with pytest.raises(EngineDied, match="closed"):
            await play(client, make_request())

    asyncio.run(main())


def test_a_script_is_read_strictly(tmp_path: Path) -> None:
    path = tmp_path / "script.json"
    path.write_text(json.dumps({"answers": [{"token_ids": [1], "delay": 0.5}], "vocab_size": 9}))
    expected = Script(answers=(Answer(token_ids=(1,), delay=0.5),), vocab_size=9)
    assert load_script(path) == expected
    for bad in ('{"answer": []}', '{"answers": []}', '{"answers": [{"token_ids": [-1]}]}'):
        path.write_text(bad)
        with pytest.raises(ModelError, match=r"script\.json"):
            load_script(path)
