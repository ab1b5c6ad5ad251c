"""Tests of inferno.text.sequence_texts: what a request's events come to, however they are cut."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from inferno.requests import (
    FinishReason,
    ProposalCounts,
    SamplingParams,
    TokenEvent,
    TokenLogprobs,
)
from inferno.text.completion import Completion
from inferno.text.parsers.calls.syntax import ToolDialect, ToolUse
from inferno.text.sequence_texts import SequenceTexts
from tests.text.loaded import real_tokenizer


def completed(ids: list[int], cuts: list[int], **params: Any) -> Completion:
    """What these tokens make if the first event ends before cuts[0], the next before cuts[1]..."""
    texts = SequenceTexts(
        real_tokenizer("stories260K"),
        SamplingParams(logprobs=0, **params),
        prompt_index=0,
        prompt=None,
        prompt_token_ids=(1,),
    )
    return completion_of(texts, ids, cuts)


def completion_of(texts: SequenceTexts, ids: list[int], cuts: list[int]) -> Completion:
    told: list[int] = []
    for begin, end in pairwise([0, *cuts, len(ids)]):
        event = TokenEvent(
            request_id="r",
            token_ids=tuple(ids[begin:end]),
            logprobs=tuple(_logprobs(ids, place) for place in range(begin, end)),
            finish_reason=FinishReason.LENGTH if end == len(ids) else None,
        )
        for chunk in texts.feed(event):
            told += chunk.token_ids
            if chunk.completion is not None:
                assert told == list(chunk.completion.token_ids)
                return chunk.completion
    raise AssertionError("the last event ends it")


def _logprobs(ids: list[int], place: int) -> TokenLogprobs:
    return TokenLogprobs(ids[place], -float(place), ())


@settings(deadline=None)
@given(data=st.data())
def test_nothing_depends_on_how_many_tokens_come_at_once(data: st.DataObject) -> None:
    ids = data.draw(st.lists(st.integers(3, 511), min_size=1, max_size=30))
    cuts = sorted(data.draw(st.sets(st.integers(1, len(ids)), max_size=8)) - {len(ids)})
    text = real_tokenizer("stories260K").decode(ids)
    place = data.draw(st.integers(0, max(0, len(text) - 1)))
    stop = [text[place : place + data.draw(st.integers(1, 4))] or "x"]
    alone = completed(ids, list(range(1, len(ids))), stop=stop)
    together = completed(ids, cuts, stop=stop)
    for name in ("text", "token_ids", "logprobs", "finish_reason", "stop_reason", "usage"):
        assert getattr(together, name) == getattr(alone, name), name


def test_tokens_after_a_stop_string_are_not_told() -> None:
    ids = real_tokenizer("stories260K").encode("one END two three", add_special_tokens=False)
    done = completed(ids, [], stop=["END"])
    assert (done.text, done.stop_reason) == ("one ", "END")
    kept = real_tokenizer("stories260K").decode(list(done.token_ids))
    assert kept.startswith("one END")
    assert len(kept) < len("one END two")
    assert done.usage.completion_tokens == len(done.token_ids)
    assert done.logprobs is not None
    assert [each.token_id for each in done.logprobs] == list(done.token_ids)


def test_an_answer_ends_where_a_call_too_many_begins_however_its_tokens_come() -> None:
    tokenizer = real_tokenizer("hf/Qwen3-0.6B")
    call = '<tool_call>\n{{"name": "{}", "arguments": {{"a": 1}}}}\n</tool_call>\n'
    said = "Well.\n" + "".join(call.format(name) for name in "fgh")
    ids = tokenizer.encode(said, add_special_tokens=False)

    def completion(most: int | None, cuts: list[int]) -> Completion:
        texts = SequenceTexts(
            tokenizer,
            SamplingParams(logprobs=0),
            prompt_index=0,
            prompt=None,
            prompt_token_ids=(1,),
            tool_use=ToolUse(ToolDialect.HERMES, {}),
            max_tool_calls=most,
        )
        return completion_of(texts, ids, cuts)

    assert [each.name for each in completion(None, []).tool_calls] == ["f", "g", "h"]
    for most, names in ((1, ["f"]), (2, ["f", "g"])):
        alone = completion(most, list(range(1, len(ids))))
        assert [each.name for each in alone.tool_calls] == names
        assert (alone.finish_reason, alone.stop_reason) == (FinishReason.STOP, None)
        assert alone.usage.completion_tokens == len(alone.token_ids) < len(ids)
        for cuts in ([], [5, 30], [len(ids) - 1]):
            together = completion(most, cuts)
            for name in ("text", "tool_calls", "token_ids", "logprobs", "usage", "stop_reason"):
                assert getattr(together, name) == getattr(alone, name), (name, cuts)


def test_usage_counts_what_stood_of_the_prediction_and_was_told() -> None:
    """A stop string amid what stood drops the tokens behind it, and these count for nothing."""
    tokenizer = real_tokenizer("stories260K")
    ids = tuple(tokenizer.encode("The sun was warm. The dog ran.", add_special_tokens=False))
    end = len(tokenizer.encode("The sun was warm.", add_special_tokens=False))

    def usage(*stop: str, is_by_token: bool = False) -> tuple[int, int, int]:
        texts = SequenceTexts(
            tokenizer,
            SamplingParams(stop=stop),
            prompt_index=0,
            prompt=None,
            prompt_token_ids=(1,),
            is_by_token=is_by_token,
        )
        others = ProposalCounts("ngram", 50, 40)
        first = TokenEvent("r", token_ids=ids[:1], proposals=(others,))
        # All that it then proposed stood, and one more token was drawn.
        stood = len(ids) - 2
        counts = (ProposalCounts("prediction", stood + 3, stood), others)
        last = TokenEvent(
            "r", token_ids=ids[1:], proposals=counts, finish_reason=FinishReason.LENGTH
        )
        chunks = [chunk for event in (first, last) for chunk in texts.feed(event)]
        done = chunks[-1].completion
        assert done is not None
        told = done.usage
        accepted = told.accepted_prediction_tokens
        return told.completion_tokens, accepted, told.rejected_prediction_tokens

    assert usage() == (len(ids), len(ids) - 2, 3)
    for is_by_token in (False, True):
        assert usage("warm.", is_by_token=is_by_token) == (end, end - 1, 3)
