"""Outputs that repeat themselves end: which do so is compared with `re`."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inferno import LLM, RepetitionDetection, SamplingParams
from inferno.engine.scheduling.sequence import repeats_itself
from inferno.requests import FinishReason


@settings(deadline=None, max_examples=400)
@given(
    prompt=st.text("ab", max_size=4),
    output=st.text("ab", min_size=1, max_size=24),
    least=st.integers(1, 4),
    more=st.integers(0, 4),
    count=st.integers(2, 4),
)
def test_it_is_what_a_regular_expression_finds(
    prompt: str, output: str, least: int, more: int, count: int
) -> None:
    most = least + more
    pattern = f"(.{{{least},{most}}})\\1{{{count - 1}}}\\Z"
    detection = RepetitionDetection(max_pattern_size=most, min_pattern_size=least, min_count=count)
    ids = [ord(each) for each in prompt + output]
    expected = re.search(pattern, output) is not None
    assert repeats_itself(ids, len(prompt), detection) == expected


def ended(llm: LLM, **params: Any) -> tuple[FinishReason, int]:
    only = SamplingParams(allowed_token_ids=[300], ignore_eos=True, max_tokens=40, **params)
    [*others, done] = llm.generate("The sun", only)
    assert all(len(each.token_ids) == len(done.token_ids) for each in others)
    return done.finish_reason, len(done.token_ids)


@pytest.fixture(scope="module")
def llm() -> LLM:
    return LLM("demo", threads=1)


def test_an_output_ends_where_it_has_repeated_itself_often_enough(llm: LLM) -> None:
    twice_three = RepetitionDetection(max_pattern_size=5, min_pattern_size=3, min_count=2)
    assert ended(llm) == (FinishReason.LENGTH, 40)
    assert ended(llm, repetition_detection=twice_three) == (FinishReason.REPETITION, 6)
    five = RepetitionDetection(max_pattern_size=1, min_count=5)
    assert ended(llm, repetition_detection=five) == (FinishReason.REPETITION, 5)
    assert ended(llm, repetition_detection=five, min_tokens=9) == (FinishReason.REPETITION, 9)
    assert ended(llm, repetition_detection=five, n=2)[1] == 5
