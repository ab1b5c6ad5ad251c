"""`prediction` in chats: what the engine gets of it, and what usage tells."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator
from typing import Any

import pytest

from inferno.client.scripted import Answer, Script, ScriptedClient
from inferno.requests import ProposalCounts, Request, TokenEvent
from tests.server.events import events_of
from tests.server.hosting import Host, hosting

TEXT = "The sun was warm. The dog ran."


class Predicting(ScriptedClient):
    """An engine that says that all of a prediction was proposed, and that three tokens fell."""

    def __init__(self, script: Script) -> None:
        super().__init__(script)
        self.requests: list[Request] = []

    async def generate(self, request: Request) -> AsyncGenerator[TokenEvent, None]:
        self.requests.append(request)
        size = len(request.prediction_ids)
        counts = (ProposalCounts("prediction", size, max(0, size - 3)),) if size else ()
        async for event in super().generate(request):
            yield event._replace(proposals=counts)


@pytest.fixture(scope="module")
def host() -> Iterator[Host]:
    script = Script(vocab_size=2048, max_model_len=1024, answers=(Answer(token_ids=(5, 6, 7)),))
    with hosting(lambda: Predicting(script)) as host:
        yield host


def content(value: Any) -> dict[str, Any]:
    return {"type": "content", "content": value}


def counts_of(usage: dict[str, Any]) -> tuple[int, int]:
    details = usage["completion_tokens_details"]
    return details["accepted_prediction_tokens"], details["rejected_prediction_tokens"]


def last_request(host: Host) -> Request:
    assert isinstance(host.engine, Predicting)
    return host.engine.requests[-1]


@pytest.mark.parametrize("parts", [[TEXT], ["The sun was", " warm. The dog ran."]])
def test_the_engine_gets_it_as_tokens(host: Host, parts: list[str]) -> None:
    whole = parts[0] if len(parts) == 1 else [{"type": "text", "text": part} for part in parts]
    assert host.chat(prediction=content(whole)).status_code == 200
    request = last_request(host)
    tokenizer = host.text.tokenizer
    assert tokenizer.decode(request.prediction_ids).strip() == TEXT
    assert not set(request.prediction_ids) & tokenizer.special_tokens.keys()
    assert request.params.prediction is None, "it isn't sent twice"


@pytest.mark.parametrize("n", [1, 3])
def test_usage_tells_of_all_choices_what_stood_and_what_fell(host: Host, n: int) -> None:
    whole = host.chat(prediction=content(TEXT), n=n).json()["usage"]
    size = len(last_request(host).prediction_ids)
    assert counts_of(whole) == (n * (size - 3), n * 3)
    for repeats in (False, True):
        options = {"include_usage": True, "continuous_usage_stats": repeats}
        streamed = host.chat(prediction=content(TEXT), n=n, stream=True, stream_options=options)
        assert events_of(streamed)[-2]["usage"] == whole


@pytest.mark.parametrize("prediction", [None, content(""), content([])])
def test_without_one_both_counts_are_0(host: Host, prediction: Any) -> None:
    assert counts_of(host.chat(prediction=prediction).json()["usage"]) == (0, 0)
    assert last_request(host).prediction_ids == ()


def test_one_that_is_longer_than_the_context_counts_as_far_as_that_goes(host: Host) -> None:
    assert host.chat(prediction=content(TEXT * 1000)).status_code == 200
    request = last_request(host)
    assert len(request.prediction_ids) + len(request.prompt_token_ids) == 1024


def test_an_engine_that_proposes_nothing_takes_it(demo: Host) -> None:
    fields: dict[str, Any] = {"max_tokens": 6, "temperature": 0}
    plain = demo.chat(**fields).json()
    text = plain["choices"][0]["message"]["content"]
    predicted = demo.chat(**fields, prediction=content(text)).json()
    assert predicted["choices"] == plain["choices"]
    assert min(counts_of(predicted["usage"])) >= 0
