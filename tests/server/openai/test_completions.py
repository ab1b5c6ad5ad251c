"""POST /v1/completions: scoring, echo, token ids, and what else may be told of them."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import pytest
import torch

from inferno import LLM, SamplingParams
from inferno.server.openai.logprobs import TokenNames
from tests.server.events import choices_of, events_of, joined
from tests.server.hosting import Host

TEXT = "Once upon a time there was a café"


def test_echo_scores_the_prompt_as_the_library_does(demo: Host, llm: LLM) -> None:
    [expected] = llm.generate(TEXT, SamplingParams(max_tokens=0, prompt_logprobs=3))
    answer = demo.complete(prompt=TEXT, echo=True, max_tokens=0, logprobs=3).json()
    [choice] = answer["choices"]
    told = choice["logprobs"]
    assert (choice["text"], choice["finish_reason"]) == (TEXT, "length")
    assert expected.prompt_logprobs is not None
    assert told["token_logprobs"][0] is None
    assert told["top_logprobs"][0] is None
    for index, entry in enumerate(expected.prompt_logprobs[1:], start=1):
        assert entry is not None
        assert told["token_logprobs"][index] == pytest.approx(entry.logprob)
        best = max(told["top_logprobs"][index].values())
        assert best == pytest.approx(entry.top[0][1])
        assert len(told["top_logprobs"][index]) == 3 + (entry.token_id not in dict(entry.top))
    assert answer["usage"]["completion_tokens"] == 0


def test_offsets_say_where_tokens_begin_in_the_text(demo: Host) -> None:
    fields = {"prompt": TEXT, "echo": True, "max_tokens": 8, "logprobs": 0, "temperature": 0}
    [choice] = demo.complete(**fields).json()["choices"]
    told = choice["logprobs"]
    spans = zip(told["tokens"], told["text_offset"], strict=True)
    whole = [(token, at) for token, at in spans if not token.startswith(("bytes:", "<|"))]
    assert len(whole) > 10
    assert all(choice["text"].startswith(token, at) for token, at in whole)


@pytest.mark.parametrize("num", [1, 3])
def test_an_echo_streams_as_it_is_told_whole(demo: Host, num: int) -> None:
    fields = {"prompt": ["One", "Two two"], "echo": True, "max_tokens": 5, "logprobs": 2}
    fields |= {"seed": 4, "n": num}
    whole = demo.complete(**fields).json()["choices"]
    told = choices_of(events_of(demo.complete(**fields, stream=True))[:-1])
    for each in whole:
        own = [choice for choice in told if choice["index"] == each["index"]]
        assert "".join(choice["text"] for choice in own) == each["text"]
        for name, values in each["logprobs"].items():
            assert joined(choice["logprobs"][name] for choice in own) == values


def test_ids_and_texts_are_the_same_prompt(demo: Host, llm: LLM) -> None:
    ids = llm.tokenizer.encode(TEXT)
    more = llm.tokenizer.encode("Another")
    fields: dict[str, Any] = {"max_tokens": 6, "temperature": 0, "return_token_ids": True}
    [by_text] = demo.complete(prompt=TEXT, **fields).json()["choices"]
    [by_ids] = demo.complete(prompt=ids, **fields).json()["choices"]
    both = demo.complete(prompt=[ids, more], **fields).json()["choices"]
    assert by_text == by_ids == both[0]
    assert by_text["prompt_token_ids"] == ids
    assert both[1]["prompt_token_ids"] == more
    assert llm.tokenizer.decode(by_text["token_ids"]) == by_text["text"]


def test_a_prompt_is_cut_where_asked(demo: Host, llm: LLM) -> None:
    ids = llm.tokenizer.encode(TEXT)
    fields: dict[str, Any] = {"prompt": TEXT, "max_tokens": 1, "return_token_ids": True}

    def prompt(**cut: Any) -> Any:
        return demo.complete(**fields, **cut).json()["choices"][0]["prompt_token_ids"]

    assert prompt(truncate_prompt_tokens=3) == ids[-3:]
    assert prompt(truncate_prompt_tokens=3, truncation_side="right") == ids[:3]
    assert prompt(truncate_prompt_tokens=-1) == ids
    long = {"prompt": [5] * 3000, "max_tokens": 10, "ignore_eos": True, "return_token_ids": True}
    assert demo.complete(**long).json()["error"]["code"] == "context_length_exceeded"
    fits = demo.complete(**long, truncate_prompt_tokens=-1).json()["choices"][0]
    assert (len(fits["prompt_token_ids"]), len(fits["token_ids"])) == (1014, 10)
    greedy = {**long, "max_tokens": 5000, "truncate_prompt_tokens": -1, "stream": True}
    with demo.http.stream("POST", "/v1/completions", json=greedy) as answer:
        first = next(line for line in answer.iter_lines() if line)
    assert len(json.loads(first.removeprefix("data: "))["choices"][0]["prompt_token_ids"]) == 512


@pytest.mark.parametrize("side", ["left", "right"])
def test_what_was_cut_off_a_prompt_is_not_echoed(demo: Host, llm: LLM, side: str) -> None:
    ids = llm.tokenizer.encode(TEXT)
    kept = ids[-4:] if side == "left" else ids[:4]
    cut = {"truncate_prompt_tokens": 4, "truncation_side": side}
    fields: dict[str, Any] = {"prompt": TEXT, "echo": True, "max_tokens": 0, "logprobs": 0}
    [choice] = demo.complete(**fields, **cut).json()["choices"]
    assert choice["text"] == llm.tokenizer.decode(kept, skip_special_tokens=True)
    assert len(choice["logprobs"]["tokens"]) == len(kept)


def test_special_tokens_begin_a_text_unless_declined(demo: Host, llm: LLM) -> None:
    fields: dict[str, Any] = {"prompt": "Hi", "max_tokens": 1, "return_token_ids": True}
    plain = demo.complete(**fields, add_special_tokens=False).json()["choices"][0]
    assert plain["prompt_token_ids"] == llm.tokenizer.encode("Hi", add_special_tokens=False)
    assert plain["prompt_token_ids"] != llm.tokenizer.encode("Hi")


def test_the_prefix_cache_shows_in_usage_and_keeps_to_its_salt(demo: Host) -> None:
    ids = [7 + i % 900 for i in range(200)]

    def cached(salt: str | None) -> Any:
        answer = demo.complete(prompt=ids, max_tokens=1, cache_salt=salt).json()
        return answer["usage"]["prompt_tokens_details"]["cached_tokens"]

    assert cached("a") == 0
    assert cached("a") > 100
    assert cached("b") == 0


def test_tokens_may_be_written_as_ids(demo: Host) -> None:
    fields = {"prompt": "Hi", "max_tokens": 3, "logprobs": 1, "return_token_ids": True}
    [choice] = demo.complete(**fields, return_tokens_as_token_ids=True).json()["choices"]
    assert choice["logprobs"]["tokens"] == [f"token_id:{i}" for i in choice["token_ids"]]


def test_prompt_logprobs_name_the_prompts_own_tokens(demo: Host, llm: LLM) -> None:
    ids = llm.tokenizer.encode(TEXT)
    [choice] = demo.complete(prompt=TEXT, max_tokens=1, prompt_logprobs=2).json()["choices"]
    first, *others = choice["prompt_logprobs"]
    assert first is None
    for token_id, entry in zip(ids[1:], others, strict=True):
        assert str(token_id) in entry
        ranks = {each["rank"]: each["logprob"] for each in entry.values()}
        assert ranks.keys() >= {1, 2}
        assert all(ranks[low] >= ranks[high] for low, high in pairwise(sorted(ranks)))


def test_steering_fields_reach_the_engine(demo: Host, llm: LLM) -> None:
    ids = llm.tokenizer.encode(" the a", add_special_tokens=False)
    fields: dict[str, Any] = {"prompt": TEXT, "max_tokens": 12, "return_token_ids": True}

    def tokens(**more: Any) -> Any:
        return demo.complete(**fields, **more).json()["choices"][0]["token_ids"]

    assert set(tokens(allowed_token_ids=ids)) <= set(ids)
    assert tokens(logit_bias={str(ids[0]): 100}, temperature=0) == [ids[0]] * 12
    free = tokens(temperature=0)
    banned = llm.tokenizer.decode([free[0]]).strip()
    assert free[0] not in tokens(temperature=0, bad_words=[banned])[:1]
    stopped = tokens(temperature=0, stop_token_ids=[free[3]])
    assert stopped == free[: free.index(free[3]) + 1]
    assert len(tokens(temperature=0, stop_token_ids=[free[3]], min_tokens=6)) >= 6
    assert tokens(repetition_penalty=90, temperature=0) != free
    few: dict[str, Any] = {"allowed_token_ids": ids, "temperature": 0, "ignore_eos": True}
    # One that keeps to a token is driven from it by the first, one that takes turns by the second.
    plain = tokens(**few)
    assert any(tokens(**few, frequency_penalty=each) != plain for each in (2.0, -2.0))


def test_log_probabilities_of_named_tokens_take_the_place_of_the_likeliest(
    demo: Host, llm: LLM
) -> None:
    named = [300, 5, 1999]
    fields = {"prompt": "The sun", "max_tokens": 4, "temperature": 0, "logprobs": 1}
    likeliest = demo.complete(**fields, echo=True).json()["choices"][0]
    answer = demo.complete(**fields, echo=True, logprob_token_ids=named, return_token_ids=True)
    choice = answer.json()["choices"][0]
    assert choice["text"] == likeliest["text"]
    ids = choice["prompt_token_ids"] + choice["token_ids"]
    logits = llm.logits(ids)
    truth = torch.log_softmax(logits.double(), dim=-1)
    tokenizer = llm.tokenizer
    top = choice["logprobs"]["top_logprobs"]
    num_prompt = len(choice["prompt_token_ids"])
    assert top[:num_prompt] == likeliest["logprobs"]["top_logprobs"][:num_prompt]
    for place in range(num_prompt, len(ids)):
        expected = {
            TokenNames(tokenizer).key(i): float(truth[place - 1, i]) for i in [*named, ids[place]]
        }
        assert top[place] == pytest.approx(expected, abs=1e-3)
    streamed = choices_of(events_of(demo.complete(**fields, logprob_token_ids=named, stream=True)))
    tops = joined(each["logprobs"]["top_logprobs"] for each in streamed)
    for told, expected in zip(tops, top[num_prompt:], strict=True):
        assert told == pytest.approx(expected)


def test_an_output_that_repeats_itself_ends(demo: Host) -> None:
    fields = {"prompt": "a", "allowed_token_ids": [300], "ignore_eos": True, "max_tokens": 50}
    detection = {"max_pattern_size": 2, "min_pattern_size": 2, "min_count": 3}
    told = demo.complete(**fields, repetition_detection=detection).json()
    [choice] = told["choices"]
    assert (choice["finish_reason"], choice["stop_reason"]) == ("repetition", "repetition_detected")
    assert told["usage"]["completion_tokens"] == 6
    *_, last = choices_of(
        events_of(demo.complete(**fields, repetition_detection=detection, stream=True))
    )
    assert (last["finish_reason"], last["stop_reason"]) == ("repetition", "repetition_detected")
    metrics = demo.http.get("/metrics").text
    assert 'inferno_requests_finished_total{reason="repetition"}' in metrics
