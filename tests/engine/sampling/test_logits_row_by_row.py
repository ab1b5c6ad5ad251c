"""Biases and bans, built once for a request, equal plain loops over one row, bit for bit."""

from __future__ import annotations

import weakref
from collections.abc import Iterator

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from inferno.engine.sampling.logits_processors import LogitsProcessors, LogitsRow
from inferno.engine.step_plan import SequenceId
from inferno.requests import SamplingParams

VOCAB = 9
CPU = torch.device("cpu")
INF = float("inf")

token_ids = st.integers(0, VOCAB + 1)  # two of them the vocabulary doesn't have
said = st.integers(0, 2)  # few, so that bad words come about
sampling_params = st.builds(
    SamplingParams,
    logit_bias=st.dictionaries(token_ids, st.sampled_from([0.0, -0.0, 1.3, -100.0, 1e-40])),
    allowed_token_ids=st.none() | st.lists(token_ids, min_size=1),
    stop_token_ids=st.lists(token_ids),
    min_tokens=st.integers(0, 4),
)
endings = st.frozensets(token_ids, max_size=2)
bad_words = st.lists(st.lists(said, min_size=1, max_size=4).map(tuple)).map(tuple)
logit_rows = st.lists(
    st.sampled_from([0.0, -0.0, 1.5, -2.0, 3e38, 1e-40, -INF, INF]), min_size=VOCAB, max_size=VOCAB
)


def shaped_plainly(logits_V: Tensor, row: LogitsRow) -> Tensor:
    """One row, as the definition says it."""
    params, result = row.params, logits_V.clone()
    for token_id, bias in params.logit_bias.items():
        if token_id < VOCAB:
            result[token_id] += torch.tensor(bias)
    for token_id in range(VOCAB):
        is_allowed = params.allowed_token_ids is None or token_id in params.allowed_token_ids
        if not is_allowed or token_id in banned_plainly(row):
            result[token_id] = -INF
    return result


def banned_plainly(row: LogitsRow) -> Iterator[int]:
    for *start, last in row.bad_words_ids:
        if list(row.token_ids)[len(row.token_ids) - len(start) :] == start:
            yield last
    if len(row.token_ids) - row.num_prompt_tokens < row.params.min_tokens:
        yield from (*row.eos_token_ids, *row.params.stop_token_ids)


def bits(logits: Tensor) -> list[int]:
    return logits.contiguous().view(torch.int32).flatten().tolist()


@settings(deadline=None, max_examples=100)
@given(st.data())
def test_any_rows_of_any_steps_equal_plain_loops(data: st.DataObject) -> None:
    params = st.sampled_from(data.draw(st.lists(sampling_params, min_size=1, max_size=2)))
    requests = data.draw(st.lists(st.tuples(params, endings, bad_words), min_size=1, max_size=3))
    prompt = data.draw(st.lists(said, min_size=1, max_size=3))
    samples = [
        (f"request {number}", index, request, list(prompt))
        for number, request in enumerate(requests)
        for index in range(3)
    ]
    processors = LogitsProcessors(VOCAB, CPU)
    for _ in range(5):
        present = data.draw(st.lists(st.sampled_from(range(len(samples))), unique=True))
        rows = {}
        for i, place in enumerate(present):
            name, index, (wishes, eos, words), tokens = samples[place]
            if data.draw(st.booleans()):  # others are not shaped
                rows[i] = LogitsRow(
                    SequenceId(name, index), wishes, 0, 0, tokens, len(prompt), eos, words
                )
        raw = torch.tensor([data.draw(logit_rows) for _ in present]).view(-1, VOCAB)
        expected = [
            shaped_plainly(raw[i], rows[i]) if i in rows else raw[i] for i in range(len(raw))
        ]
        result = raw.clone()
        processors.process(result, rows)
        assert bits(result) == [bit for row in expected for bit in bits(row)]
        for *_, tokens in samples:
            tokens.append(data.draw(said))


@pytest.mark.parametrize("length", [1, 3, 200])
def test_many_bad_words_of_one_beginning_equal_plain_loops(length: int) -> None:
    words = tuple((0,) * (length - i % length) + (i % VOCAB,) for i in range(300))
    for tokens in ([0] * 250, [0] * 120, [1, *[0] * 5], [0] * 250 + [1], [2]):
        raw = torch.arange(float(VOCAB)).unsqueeze(0)
        row = LogitsRow(SequenceId("a", 0), SamplingParams(), 0, 0, tokens, 1, bad_words_ids=words)
        expected = shaped_plainly(raw[0], row)
        LogitsProcessors(VOCAB, CPU).process(raw, {0: row})
        assert torch.equal(raw[0], expected)


class Watched(tuple[tuple[int, ...], ...]):
    """Bad words that count how often they are read."""

    num_reads = 0

    def __iter__(self) -> Iterator[tuple[int, ...]]:
        Watched.num_reads += 1
        return super().__iter__()


def test_a_request_is_read_once_for_all_its_samples_and_steps() -> None:
    processors, words, params = (
        LogitsProcessors(VOCAB, CPU),
        Watched([(1,), (2, 3)]),
        SamplingParams(),
    )
    samples = [[2], [1], [2]]

    def step() -> int:
        rows = [
            LogitsRow(SequenceId("a", i), params, 0, 1, ids, 1, bad_words_ids=words)
            for i, ids in enumerate(samples)
        ]
        processors.process(torch.zeros(3, VOCAB), dict(enumerate(rows)))
        return Watched.num_reads

    first = step()
    for ids in samples:
        ids.append(2)
    del samples[1]
    assert first > 0
    assert step() == first


def test_nothing_is_kept_of_a_request_that_is_gone() -> None:
    processors, eos = LogitsProcessors(VOCAB, CPU), frozenset({3})
    other = LogitsRow(SequenceId("other", 0), SamplingParams(logit_bias={1: 1.0}), 0, 1, [1], 1)
    row = LogitsRow(SequenceId("gone", 0), SamplingParams(min_tokens=1), 0, 1, [1], 1, eos)
    gone = weakref.ref(eos)
    processors.process(torch.zeros(2, VOCAB), {0: row, 1: other})
    del eos, row
    assert gone() is not None
    processors.process(torch.zeros(1, VOCAB), {0: other})
    assert gone() is None
