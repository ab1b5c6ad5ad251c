"""Biases, bans and penalties against transformers' processors and the definitions."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers.generation.logits_process import (
    MinNewTokensLengthLogitsProcessor,
    NoBadWordsLogitsProcessor,
    RepetitionPenaltyLogitsProcessor,
    SequenceBiasLogitsProcessor,
)

from inferno.engine.sampling.logits_processors import LogitsProcessors, LogitsRow, is_processed
from inferno.engine.step_plan import SequenceId
from inferno.requests import SamplingParams

VOCAB = 40
INF = float("inf")
CPU = torch.device("cpu")


def row(
    params: SamplingParams,
    tokens: list[int],
    num_prompt: int = 3,
    eos: frozenset[int] = frozenset(),
    bad_words: tuple[tuple[int, ...], ...] = (),
    request_id: str = "a",
) -> LogitsRow:
    return LogitsRow(
        SequenceId(request_id, 0), params, 0, len(tokens), tokens, num_prompt, eos, bad_words
    )


def logits(num_rows: int = 1) -> Tensor:
    return torch.randn((num_rows, VOCAB), generator=torch.Generator().manual_seed(5)) * 3


def shaped(*rows: LogitsRow, raw: Tensor | None = None) -> Tensor:
    result = logits(len(rows)) if raw is None else raw.clone()
    LogitsProcessors(VOCAB, CPU).process(result, dict(enumerate(rows)))
    return result


TOKENS = [1, 2, 3, 2, 7, 7, 7, 9]


@pytest.mark.parametrize("penalty", [0.5, 1.3, 2.0])
def test_repetition_penalty_equals_transformers(penalty: float) -> None:
    expected = RepetitionPenaltyLogitsProcessor(penalty)(torch.tensor([TOKENS]), logits())
    ours = shaped(row(SamplingParams(repetition_penalty=penalty), TOKENS))
    torch.testing.assert_close(ours, expected)


def test_bad_words_equal_transformers() -> None:
    words = ((9,), (7, 11), (7, 9, 12), (7, 7, 13), (3, 14), tuple(range(20)))
    processor: Any = NoBadWordsLogitsProcessor([list(word) for word in words])
    expected = processor(torch.tensor([TOKENS]), logits())
    assert torch.equal(shaped(row(SamplingParams(), TOKENS, bad_words=words)), expected)


@pytest.mark.parametrize("min_tokens", [0, 4, 5, 6, 100])
def test_min_tokens_equals_transformers(min_tokens: int) -> None:
    processor: Any = MinNewTokensLengthLogitsProcessor(3, min_tokens, eos_token_id=[4, 5, 6])
    expected = processor(torch.tensor([TOKENS]), logits())
    params = SamplingParams(min_tokens=min_tokens, stop_token_ids=[5, 6])
    assert torch.equal(shaped(row(params, TOKENS, eos=frozenset({4, 5}))), expected)


def test_logit_bias_equals_transformers() -> None:
    bias = {3: 2.5, 39: -100.0, 0: 1.0}
    processor: Any = SequenceBiasLogitsProcessor({(i,): value for i, value in bias.items()})
    expected = processor(torch.tensor([TOKENS]), logits())
    torch.testing.assert_close(shaped(row(SamplingParams(logit_bias=bias), TOKENS)), expected)


def test_presence_and_frequency_penalty_follow_the_definition() -> None:
    params = SamplingParams(presence_penalty=0.7, frequency_penalty=-0.3)
    expected = logits()
    for token_id, count in Counter(TOKENS[3:]).items():
        expected[0, token_id] -= 0.7 + count * -0.3
    torch.testing.assert_close(shaped(row(params, TOKENS)), expected)


def test_only_allowed_tokens_keep_their_logits() -> None:
    expected = torch.full((1, VOCAB), -INF)
    expected[0, [2, 30]] = logits()[0, [2, 30]]
    params = SamplingParams(allowed_token_ids=[30, 2, 30])
    assert torch.equal(shaped(row(params, TOKENS)), expected)


def test_the_bias_counts_as_the_models_own_logit_for_penalties() -> None:
    raw = torch.full((1, VOCAB), -1.0)
    params = SamplingParams(logit_bias={2: 5.0}, repetition_penalty=2.0)
    assert shaped(row(params, TOKENS), raw=raw)[0, 2].item() == 2.0  # (-1 + 5) / 2


def test_a_banned_token_stays_banned_whatever_else_is_asked() -> None:
    params = SamplingParams(
        allowed_token_ids=[1, 2],
        logit_bias={2: 100.0, 5: 100.0},
        repetition_penalty=1e-300,
        frequency_penalty=-2.0,
    )
    assert shaped(row(params, TOKENS, bad_words=((2,),)))[0].isfinite().nonzero().tolist() == [[1]]


@pytest.mark.parametrize("penalty", [5e-324, 1e-40, 100.0])
@pytest.mark.parametrize("logit", [-3e38, -1.0, -0.0, 0.0, 1e-40, 1.0, 3e38])
def test_no_penalty_makes_a_logit_nan_or_infinitely_large(penalty: float, logit: float) -> None:
    params = SamplingParams(repetition_penalty=penalty, frequency_penalty=-2.0)
    result = shaped(row(params, TOKENS), raw=torch.full((1, VOCAB), logit))
    assert (result < INF).all()  # false for NaN too


def test_rows_are_shaped_by_their_own_parameters() -> None:
    rows = [
        row(SamplingParams(repetition_penalty=1.5), [1, 2, 3, 4], request_id="a"),
        row(SamplingParams(), [1, 2, 3], request_id="b"),
        row(SamplingParams(frequency_penalty=1.0), [5, 6, 7, 8, 8], request_id="c"),
        row(SamplingParams(logit_bias={0: 1.0}), [1], request_id="d"),
        row(SamplingParams(repetition_penalty=1.1), [3], request_id="e"),
    ]
    together = shaped(*rows)
    for i, single in enumerate(rows):
        assert torch.equal(together[i], shaped(single, raw=logits(5)[i : i + 1])[0])


def test_counts_follow_a_request_that_grows() -> None:
    params = SamplingParams(repetition_penalty=1.2, frequency_penalty=0.5, presence_penalty=0.1)
    processors, tokens = LogitsProcessors(VOCAB, CPU), [1, 2, 3]
    for token_id in (4, 2, 4, 39, 4):
        kept = logits()
        processors.process(kept, {0: row(params, tokens)})
        assert torch.equal(kept, shaped(row(params, list(tokens))))
        tokens.append(token_id)


def test_counts_follow_a_request_that_comes_back() -> None:
    params = SamplingParams(frequency_penalty=0.5)
    processors, tokens, other = LogitsProcessors(VOCAB, CPU), [1, 2, 3, 4], [1, 2, 3, 9]
    processors.process(logits(), {0: row(params, tokens)})
    processors.process(logits(), {0: row(params, other, request_id="b")})
    tokens += [4, 5]
    kept = logits()
    processors.process(kept, {0: row(params, tokens)})
    assert torch.equal(kept, shaped(row(params, tokens)))


def test_another_request_may_get_the_id_of_one_that_is_forgotten() -> None:
    params, processors = SamplingParams(frequency_penalty=0.5), LogitsProcessors(VOCAB, CPU)
    processors.process(logits(), {0: row(params, [1, 2, 3, 4, 4])})
    processors.forget([SequenceId("a", 0)])
    other = SamplingParams(presence_penalty=0.5, logit_bias={7: 1.0})
    kept = logits()
    processors.process(kept, {0: row(other, [1, 2, 3, 9])})
    assert torch.equal(kept, shaped(row(other, [1, 2, 3, 9])))


def test_rows_may_share_their_list_of_tokens() -> None:
    params = SamplingParams(frequency_penalty=0.5)
    rows = [row(params, TOKENS, n, request_id=str(i)) for i, n in enumerate((3, 3, 8))]
    together = shaped(*rows, raw=logits().expand(3, VOCAB))
    for i, single in enumerate(rows):
        assert torch.equal(together[i], shaped(single)[0])


def test_token_ids_beyond_the_vocabulary_are_passed_over() -> None:
    params = SamplingParams(
        logit_bias={VOCAB: 1.0}, min_tokens=100, stop_token_ids=[VOCAB, 2**31 - 1]
    )
    result = shaped(row(params, TOKENS, eos=frozenset({VOCAB + 1}), bad_words=((VOCAB,),)))
    assert torch.equal(result, logits())


def test_a_request_without_wishes_is_not_shaped() -> None:
    assert not is_processed(row(SamplingParams(temperature=0.3, top_k=3, min_tokens=5), TOKENS))
    assert is_processed(row(SamplingParams(min_tokens=6), TOKENS))
