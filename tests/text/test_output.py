"""Tests of inferno.text.output: what text a sequence's token events make."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inferno.requests import FinishReason, SamplingParams, TokenEvent
from inferno.text.output import OutputText
from tests.text.loaded import real_tokenizer

EOS = 2


def text_of(events: list[TokenEvent], **params: Any) -> tuple[str, str | int | None]:
    output = OutputText(real_tokenizer("stories260K"), SamplingParams(**params))
    text = "".join(output.feed(event).text for event in events)
    return text, output.stop_reason


def event(*token_ids: int, **fields: Any) -> TokenEvent:
    return TokenEvent(request_id="r", token_ids=token_ids, **fields)


def ids_of(text: str) -> list[int]:
    return real_tokenizer("stories260K").encode(text, add_special_tokens=False)


@settings(deadline=None)
@given(data=st.data())
def test_deltas_make_the_decoded_text(data: st.DataObject) -> None:
    ids = data.draw(st.lists(st.integers(0, 511)))
    size = data.draw(st.integers(1, 5))
    events = [event(*ids[start : start + size]) for start in range(0, len(ids), size)]
    events.append(event(finish_reason=FinishReason.LENGTH))
    assert text_of(events) == (real_tokenizer("stories260K").decode(ids), None)


def test_the_last_event_brings_what_was_held_back() -> None:
    ids = ids_of("one EN")
    assert text_of([event(*ids)], stop=["END"])[0] == "one "
    assert text_of([event(*ids, finish_reason=FinishReason.LENGTH)], stop=["END"])[0] == "one EN"


@pytest.mark.parametrize("include", [False, True])
def test_a_stop_token_shows_only_if_it_is_asked_for(include: bool) -> None:
    stop_id = ids_of("girl")[-1]
    last = event(stop_id, finish_reason=FinishReason.STOP, stop_token_id=stop_id)
    ids = ids_of("a girl")
    text, reason = text_of([event(*ids[:-1]), last], include_stop_in_output=include)
    assert reason == stop_id
    assert text == real_tokenizer("stories260K").decode(ids if include else ids[:-1])


def test_special_tokens_show_if_they_are_not_skipped() -> None:
    ids = ids_of("a</s>b")
    assert EOS in ids
    last = event(finish_reason=FinishReason.LENGTH)
    assert "</s>" not in text_of([event(*ids), last])[0]
    assert "</s>" in text_of([event(*ids), last], skip_special_tokens=False)[0]


@pytest.mark.parametrize("include", [False, True])
def test_a_stop_string_ends_the_text_wherever_its_tokens_are_cut(include: bool) -> None:
    ids = ids_of("Once upon a time. The END of it")
    events = [event(token_id) for token_id in ids]
    events.append(event(finish_reason=FinishReason.LENGTH))
    text, reason = text_of(events, stop=["E END"], include_stop_in_output=include)
    assert (text, reason) == ("Once upon a time. The END of it", None)
    text, reason = text_of(events, stop=["The END"], include_stop_in_output=include)
    assert (text, reason) == ("Once upon a time. " + ("The END" if include else ""), "The END")


def test_the_delta_that_completes_a_stop_string_says_so_once() -> None:
    output = OutputText(real_tokenizer("stories260K"), SamplingParams(stop="END"))
    deltas = [output.feed(event(token_id)) for token_id in [*ids_of("the END is"), *ids_of("END")]]
    assert [delta.stop for delta in deltas if delta.stop is not None] == ["END"]
    assert "".join(delta.text for delta in deltas) == "the "


def test_a_stop_string_in_the_last_event_is_found_before_the_stop_token_counts() -> None:
    last = event(*ids_of("the END"), EOS, finish_reason=FinishReason.STOP, stop_token_id=EOS)
    assert text_of([last], stop="END") == ("the ", "END")


def test_a_continuation_keeps_the_space_that_a_beginning_drops() -> None:
    tokenizer = real_tokenizer("stories260K")
    prompt, more = ids_of("Once upon"), ids_of("a time")
    last = event(*more, finish_reason=FinishReason.LENGTH)

    def text(is_continuation: bool) -> str:
        output = OutputText(
            tokenizer,
            SamplingParams(),
            prompt_token_ids=prompt,
            is_continuation=is_continuation,
        )
        return output.feed(last).text

    assert text(False) == tokenizer.decode(more) == "a time"
    assert "Once upon" + text(True) == tokenizer.decode([*prompt, *more])
