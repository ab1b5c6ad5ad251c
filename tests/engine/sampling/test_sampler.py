"""The sampler's tokens against distributions worked out token by token in float64."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from inferno import ops
from inferno.compiled_kernels import why_not
from inferno.engine.sampling.constraints import Mask, MaskKey, empty_mask, only_token, set_bit
from inferno.engine.sampling.logits_processors import LogitsRow
from inferno.engine.sampling.sampler import (
    Sampled,
    Sampler,
    prompt_logprobs,
    token_logprobs,
)
from inferno.engine.step_plan import SequenceId
from inferno.ops import reference
from inferno.requests import SamplingParams
from tests.engine.sampling.chi_square import chi_square_limit, chi_square_statistic

INF = float("inf")
NAN = float("nan")
PROMPT = [1, 2, 3]
CPU = torch.device("cpu")

STEPS: list[dict[str, Any]] = [  # one of each kind, and mixtures
    {"temperature": 0.0},
    {},
    {"temperature": 0.6},
    {"temperature": 1.8},
    {"top_k": 5},
    {"top_k": 1},
    {"top_p": 0.6},
    {"top_p": 1e-9},
    {"top_p": 0.0},
    {"min_p": 0.2},
    {"min_p": 1.0},
    {"temperature": 1.4, "top_k": 9, "top_p": 0.8},
    {"temperature": 0.7, "min_p": 0.05, "top_p": 0.9},
    {"temperature": 2.0, "top_k": 12, "top_p": 0.95, "min_p": 0.1},
]


@pytest.fixture(scope="module", autouse=True, params=["cpu", "reference"])
def backend(request: pytest.FixtureRequest) -> Iterator[None]:
    """What computes: the CPU's kernels where they run, and the reference."""
    usual = ops.BACKENDS["cpu"]
    if request.param == "reference":
        ops.BACKENDS["cpu"] = reference
    elif usual is reference:
        pytest.skip(f"no kernels: {why_not()}")
    yield
    ops.BACKENDS["cpu"] = usual


def row(seed: int = 0, position: int = 3, sample: int = 0, **params: Any) -> LogitsRow:
    return LogitsRow(
        SequenceId(f"seed {seed}", sample),
        SamplingParams(**params),
        seed,
        position,
        PROMPT,
        len(PROMPT),
    )


def sample(logits: Tensor, rows: list[LogitsRow]) -> list[Sampled]:
    return Sampler(logits.shape[1], CPU).sample(logits.clone(), rows)


def sample_one(logits: list[float], **params: Any) -> Sampled:
    (result,) = sample(torch.tensor([logits]), [row(**params)])
    return result


def random_logits(num_rows: int, vocab_size: int, seed: int = 0, spread: float = 2.0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn((num_rows, vocab_size), generator=generator) * spread


def expected_probabilities(logits: list[float], params: SamplingParams) -> list[float]:
    """The distribution by its definition: min-p, then the top k, then the top p of those."""
    by_rank = sorted(range(len(logits)), key=lambda i: (-logits[i], i))
    if params.temperature == 0.0 or params.top_p == 0.0:
        return [float(i == by_rank[0]) for i in range(len(logits))]
    peak = max(logits)
    weights = [math.exp((logit - peak) / params.temperature) for logit in logits]
    kept = [i for i in by_rank if weights[i] >= params.min_p]
    kept = kept[: params.top_k or None]
    total, reached, nucleus = sum(weights[i] for i in kept), 0.0, []
    for i in kept:
        if reached < params.top_p * total:
            nucleus.append(i)
        reached += weights[i]
    total = sum(weights[i] for i in nucleus)
    return [weights[i] / total if i in nucleus else 0.0 for i in range(len(logits))]


@pytest.mark.parametrize("params", STEPS, ids=str)
def test_tokens_have_the_distribution_that_was_asked_for(params: dict[str, Any]) -> None:
    num_rows = 4000
    logits = random_logits(1, 30)
    rows = [row(seed=11, position=position, **params) for position in range(num_rows)]
    tokens = torch.tensor([result.token_id for result in sample(logits.expand(num_rows, -1), rows)])
    expected = expected_probabilities(logits[0].tolist(), SamplingParams(**params))
    counts = torch.bincount(tokens, minlength=30)
    degrees = max(1, sum(p > 0 for p in expected) - 1)
    assert chi_square_statistic(counts, expected) < chi_square_limit(degrees)


def test_a_vocabulary_of_many_blocks_has_the_right_distribution() -> None:
    num_rows, vocab_size = 4000, 1000
    logits = random_logits(1, vocab_size)
    rows = [row(seed=seed) for seed in range(num_rows)]
    tokens = torch.tensor([result.token_id for result in sample(logits.expand(num_rows, -1), rows)])
    counts = torch.bincount(tokens, minlength=vocab_size).view(100, 10).sum(1)
    expected = logits[0].double().softmax(-1).view(100, 10).sum(1)
    assert chi_square_statistic(counts, expected) < chi_square_limit(99)


def test_penalties_change_the_distribution_by_their_definition() -> None:
    num_rows, tokens = 4000, [0, 1, 1, 2, 2, 2]
    logits = random_logits(1, 10)
    params = SamplingParams(
        repetition_penalty=1.3, presence_penalty=0.4, frequency_penalty=0.2, logit_bias={4: 1.0}
    )
    penalized = logits[0].double()
    penalized[4] += 1.0
    for token_id, count in ((0, 0), (1, 1), (2, 3)):  # the prompt is the first two
        logit = penalized[token_id]
        logit = logit / 1.3 if logit > 0 else logit * 1.3
        penalized[token_id] = logit - 0.2 * count - 0.4 * (count > 0)
    rows = [
        LogitsRow(SequenceId(str(seed), 0), params, seed, 6, tokens, 2) for seed in range(num_rows)
    ]
    drawn = [result.token_id for result in sample(logits.expand(num_rows, -1), rows)]
    counts = torch.bincount(torch.tensor(drawn), minlength=10)
    assert chi_square_statistic(counts, penalized.softmax(-1)) < chi_square_limit(9)


def test_samples_and_positions_draw_independently() -> None:
    num_pairs = 2000
    logits = torch.tensor([[0.5, 0.0, 1.0]])
    rows = [row(seed, position, sample) for seed in range(num_pairs) for sample in (0, 1)
            for position in (3, 4)]  # fmt: skip
    tokens = [result.token_id for result in sample(logits.expand(len(rows), -1), rows)]
    first, same_sample, same_position, _ = torch.tensor(tokens).view(num_pairs, 4).unbind(1)
    single = logits[0].double().softmax(-1)
    joint = torch.outer(single, single).flatten()
    for other in (same_sample, same_position):
        counts = torch.bincount(first * 3 + other, minlength=9)
        assert chi_square_statistic(counts, joint) < chi_square_limit(8)


sampling_params = st.builds(
    SamplingParams,
    temperature=st.sampled_from([0.0, 5e-324, 1e-5, 0.3, 1.0, 100.0]),
    top_k=st.integers(0, 12),
    top_p=st.sampled_from([5e-324, 0.1, 0.5, 0.999999, 1.0]),
    min_p=st.sampled_from([0.0, 1e-12, 0.1, 1.0]),
    logprobs=st.sampled_from([None, 0, 3, 20]),
    repetition_penalty=st.sampled_from([1.0, 1.5]),
    frequency_penalty=st.sampled_from([0.0, 0.5]),
    logit_bias=st.sampled_from([{}, {0: 3.0}]),
    allowed_token_ids=st.sampled_from([None, [0, 4, 5]]),
)
sample_rows = st.builds(
    LogitsRow,
    st.builds(SequenceId, st.uuids().map(str), st.integers(0, 127)),
    params=sampling_params,
    seed=st.integers(-(2**63), 2**63 - 1),
    position=st.integers(0, 2**31 - 1),
    token_ids=st.lists(st.integers(0, 9), min_size=1, max_size=5),
    num_prompt_tokens=st.just(1),
    eos_token_ids=st.just(frozenset({3})),
    bad_words_ids=st.sampled_from([(), ((5,), (1, 4))]),
    proposed=st.just(()),
    pending_row=st.none(),
)
# Few values, so that there are ties; many of them extreme.
logit_values = st.sampled_from([0.0, -0.0, 1.0, 1.5, -2.0, 30.0, -1e30, 3e38, -INF])
logit_rows = st.lists(logit_values, min_size=10, max_size=10)
broken_rows = st.lists(st.sampled_from([0.0, NAN, INF, -INF]), min_size=10, max_size=10)


@settings(deadline=None)
@given(
    logit_rows.filter(lambda logits: max(logits) > -INF),
    st.fixed_dictionaries(
        {
            "seed": st.integers(0, 100),
            "temperature": st.sampled_from([0.0, 5e-324, 1e-5, 0.3, 1.0, 100.0]),
            "top_k": st.integers(0, 12),
            "top_p": st.sampled_from([5e-324, 0.1, 0.5, 0.999999, 1.0]),
            "min_p": st.sampled_from([0.0, 1e-12, 0.1, 1.0]),
        }
    ),
)
def test_a_token_is_one_that_the_definition_leaves(
    logits: list[float], params: dict[str, Any]
) -> None:
    token_id = sample_one(logits, **params).token_id
    del params["seed"]
    assert expected_probabilities(logits, SamplingParams(**params))[token_id] > 0


@settings(deadline=None)
@given(st.lists(st.tuples(st.one_of(logit_rows, broken_rows), sample_rows), min_size=1, max_size=6))
def test_a_row_gives_the_same_result_alone_and_in_a_batch(
    batch: list[tuple[list[float], LogitsRow]],
) -> None:
    logits = torch.tensor([row_logits for row_logits, _ in batch])
    rows = [batch_row for _, batch_row in batch]
    alone = [sample(logits[i : i + 1], [rows[i]])[0] for i in range(len(rows))]
    assert sample(logits, rows) == alone


@pytest.mark.parametrize("vocab_size", [4, 255, 256, 257, 5000, 70_000])
def test_large_rows_give_the_same_result_alone_and_in_a_batch(vocab_size: int) -> None:
    wishes = [*STEPS, {"top_p": 0.99}, {"top_k": 400}, {"repetition_penalty": 1.2}]
    rows = [row(seed, logprobs=2, **wish) for seed, wish in enumerate(wishes)]
    logits = random_logits(len(rows), vocab_size, spread=1.0)
    alone = [sample(logits[i : i + 1], [rows[i]])[0] for i in range(len(rows))]
    assert sample(logits, rows) == alone


def test_the_number_of_threads_changes_nothing() -> None:
    rows = [row(seed, logprobs=3, **wish) for seed, wish in enumerate(STEPS)]
    logits = random_logits(len(rows), 70_000, spread=0.1)
    before, results = torch.get_num_threads(), []
    try:
        for num_threads in (1, 2, 3):
            with ops.kernel_context(num_threads):
                results.append(sample(logits, rows) + sample(logits[1:2], rows[1:2]))
    finally:
        torch.set_num_threads(before)
    assert results[0] == results[1] == results[2]


def test_a_sampler_keeps_no_memory_of_other_batches() -> None:
    sampler = Sampler(50, CPU)
    batches = [
        [row(1), row(2, top_k=3)],
        [row(2, top_k=3), row(1)],
        [row(1)],
        [row(2, top_k=3), row(1), row(3, temperature=0.0, frequency_penalty=1.0)],
    ]
    for rows in batches:
        logits = random_logits(len(rows), 50)
        assert sampler.sample(logits.clone(), rows) == sample(logits, rows)


def test_equal_logits_are_kept_by_lowest_id() -> None:
    for logits in ([0.0, 1.0, 1.0, 2.0, 1.0, 1.0], [-9.0, -0.0, 0.0, 1.0, 0.0, -0.0]):
        drawn = {sample_one(logits, seed=seed, top_k=3).token_id for seed in range(100)}
        assert drawn == {3, 1, 2}


@pytest.mark.parametrize("vocab_size", [5, 300, 1000])
def test_greedy_takes_the_first_of_equal_logits(vocab_size: int) -> None:
    logits = torch.zeros(1, vocab_size)
    logits[0, vocab_size // 2 :] = 1.0
    assert sample(logits, [row(temperature=0.0)])[0].token_id == vocab_size // 2


@pytest.mark.parametrize("temperature", [5e-324, 1e-45, 1e-38, 1e-10])
def test_a_tiny_temperature_is_greedy_up_to_ties(temperature: float) -> None:
    logits = [1.0, 3e38, -3e38, 3e38, 0.0]
    drawn = {sample_one(logits, seed=seed, temperature=temperature).token_id for seed in range(50)}
    assert drawn == {1, 3}


@pytest.mark.parametrize("bad", [NAN, INF])
@pytest.mark.parametrize("params", STEPS, ids=str)
def test_a_broken_row_gets_an_error_and_its_neighbours_do_not(
    bad: float, params: dict[str, Any]
) -> None:
    logits = random_logits(4, 300)
    logits[1, 299] = bad
    logits[2] = -INF
    rows = [row(seed, logprobs=1, **params) for seed in range(4)]
    first, broken, empty, last = sample(logits, rows)
    for result in (broken, empty):
        assert result.error is not None
        assert "non-finite" in result.error
        assert result.logprobs is None
    assert [first, last] == sample(logits[[0, 3]], [rows[0], rows[3]])
    assert first.error is None


@pytest.mark.parametrize("params", STEPS, ids=str)
def test_a_row_whose_tokens_are_all_banned_gets_an_error(params: dict[str, Any]) -> None:
    wishes = SamplingParams(allowed_token_ids=[4, 5], min_tokens=9, stop_token_ids=[4], **params)
    banned = LogitsRow(SequenceId("banned", 0), wishes, 0, 3, PROMPT, 3, bad_words_ids=((5,),))
    result, neighbour = sample(random_logits(2, 300), [banned, row()])
    assert result.error is not None
    assert "allowed_token_ids" in result.error
    assert neighbour.error is None


def test_allowing_only_tokens_that_the_vocabulary_lacks_is_an_error_of_that_row() -> None:
    rows = [row(allowed_token_ids=[300, 2**31 - 1]), row()]
    first, second = sample(random_logits(2, 300), rows)
    assert first.error is not None
    assert second.error is None


def test_a_model_may_rule_out_tokens_with_minus_infinity() -> None:
    logits = [-INF, 0.0, -INF, 1.0]
    results = [sample_one(logits, seed=seed, logprobs=4) for seed in range(50)]
    assert {result.token_id for result in results} == {1, 3}
    assert results[0].logprobs is not None
    assert [logprob for _, logprob in results[0].logprobs.top][2:] == [-INF, -INF]


def test_the_seed_decides() -> None:
    logits = torch.zeros(1, 1000)
    first = sample(logits, [row(seed=5)])
    assert sample(logits, [row(seed=5)]) == first
    assert sample(logits, [row(seed=-5)]) != first


def test_logits_of_earlier_steps_leave_no_trace_in_what_is_told() -> None:
    """Where steps have more and fewer rows, whose logits are changed, memory is used again."""
    sampler = Sampler(50, CPU)
    for num_rows in (3, 1, 5, 2, 4):
        logits_RV = random_logits(num_rows, 50, seed=num_rows)
        due_RV = logits_RV.double().log_softmax(dim=1)
        rows = [row(i, logprobs=2, logit_bias={7: 5.0}) for i in range(num_rows)]
        for found, due_V in zip(sampler.sample(logits_RV, rows), due_RV, strict=True):
            assert found.logprobs is not None
            top = {i: float(due_V[i]) for i in due_V.topk(2).indices.tolist()}
            assert dict(found.logprobs.top) == pytest.approx(top, abs=1e-5)
            assert found.logprobs.logprob == pytest.approx(float(due_V[found.token_id]), abs=1e-5)


def test_logprobs_are_those_of_the_models_own_distribution() -> None:
    logits = random_logits(3, 500)
    wishes: dict[str, Any] = {"temperature": 3.0, "top_k": 2, "logit_bias": {7: 50.0}}
    rows = [row(0, logprobs=0, **wishes), row(1), row(2, logprobs=20, **wishes)]
    chosen_only, without, with_top = sample(logits, rows)
    assert without.logprobs is None
    assert chosen_only.logprobs is not None
    assert chosen_only.logprobs.top == ()
    assert with_top.logprobs is not None
    assert len(with_top.logprobs.top) == 20
    expected = logits.double().log_softmax(-1)
    for i, result in ((0, chosen_only), (2, with_top)):
        assert result.logprobs is not None
        assert result.logprobs.token_id == result.token_id
        assert result.logprobs.logprob == pytest.approx(
            expected[i, result.token_id].item(), abs=1e-6
        )


@pytest.mark.parametrize("vocab_size", [1, 6, 39, 3000])
def test_token_logprobs_equal_log_softmax(vocab_size: int) -> None:
    logits = random_logits(20, vocab_size, spread=4.0)
    targets = [i % vocab_size for i in range(20)]
    expected = logits.double().log_softmax(-1)
    for i, found in enumerate(token_logprobs(logits, targets, num_top=20)):
        ids = [token_id for token_id, _ in found.top]
        assert found.token_id == targets[i]
        assert found.logprob == pytest.approx(expected[i, targets[i]].item(), abs=1e-5)
        assert ids == logits[i].argsort(descending=True, stable=True)[:20].tolist()
        logprobs = [logprob for _, logprob in found.top]
        assert logprobs == pytest.approx(expected[i, ids].tolist(), abs=1e-5)


def test_a_prompts_tokens_are_ranked_among_all() -> None:
    logits = random_logits(30, 400).round()
    targets = [7 * i % 400 for i in range(30)]
    for i, found in enumerate(prompt_logprobs(logits, targets, num_top=2)):
        order = logits[i].argsort(descending=True, stable=True).tolist()
        assert found.rank == 1 + order.index(targets[i])


class OfMetal(torch.Tensor):
    """A tensor of a device that computes nothing here; it can only be copied from there."""

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is not torch.Tensor.to:
            raise TypeError("MPS framework doesn't support float64")
        with torch._C.DisableTorchFunctionSubclass():
            return torch.Tensor.to(args[0], *args[1:], copy=True).as_subclass(torch.Tensor)


def test_a_prompts_tokens_are_explained_where_tokens_are_chosen() -> None:
    logits = random_logits(3, 40)
    expected = prompt_logprobs(logits, [1, 2, 3], num_top=2)
    sampler = Sampler(40, torch.device("cpu"))
    assert sampler.prompt_logprobs(logits.as_subclass(OfMetal), [1, 2, 3], num_top=2) == expected


def test_top_logprobs_list_equal_logits_by_id() -> None:
    logits = random_logits(30, 400).round()
    for i, found in enumerate(token_logprobs(logits, [0] * 30, num_top=5)):
        ids = [token_id for token_id, _ in found.top]
        assert ids == logits[i].argsort(descending=True, stable=True)[:5].tolist()


def test_half_precision_logits_are_sampled_in_float32() -> None:
    logits = random_logits(5, 300).bfloat16()
    rows = [row(seed, logprobs=2) for seed in range(5)]
    assert sample(logits, rows) == sample(logits.float(), rows)


def test_no_rows_give_no_tokens() -> None:
    assert Sampler(10, CPU).sample(torch.empty(0, 10), []) == []


def test_log_probabilities_of_named_tokens_are_told_in_place_of_the_likeliest() -> None:
    logits = random_logits(4, 40, seed=5)
    expected = torch.log_softmax(logits.double(), dim=1)
    named: list[tuple[int, ...]] = [(39, 0, 7), (), (3,), ()]
    rows = [row(logprobs=2, logprob_token_ids=ids, temperature=0.0) for ids in named[:3]]
    rows.append(row(temperature=0.5))
    told = [each.logprobs for each in sample(logits.clone(), rows)]
    assert told[3] is None
    for i, ids in enumerate(named[:3]):
        entry = told[i]
        assert entry is not None
        chosen = int(logits[i].argmax())
        ids = ids or tuple(logits[i].topk(2).indices.tolist())
        assert (entry.token_id, tuple(token_id for token_id, _ in entry.top)) == (chosen, ids)
        values = [entry.logprob, *(logprob for _, logprob in entry.top)]
        assert values == pytest.approx(expected[i, [chosen, *ids]].tolist(), abs=1e-5)


# Masks


def mask_of(vocab_size: int, *token_ids: int) -> Mask:
    mask = empty_mask(vocab_size)
    for token_id in token_ids:
        set_bit(mask, token_id, is_allowed=True)
    return mask


def key_of(row: LogitsRow) -> MaskKey:
    return row.sequence_id, row.position


@given(seed=st.integers(0, 2**32), asked=st.lists(st.sampled_from(STEPS), min_size=1, max_size=5))
@settings(max_examples=40, deadline=None)
def test_a_row_drawn_again_is_drawn_as_if_for_the_first_time(
    seed: int, asked: list[dict[str, Any]]
) -> None:
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(len(asked), 70, generator=generator)
    others: list[dict[str, Any]] = [
        {},
        {"logprobs": 2},
        {"repetition_penalty": 1.5, "logit_bias": {3: 2.0}},
        {"logprobs": 0, "presence_penalty": 1.0},
    ]
    rows = [
        row(seed=i, **others[(seed + i) % len(others)], **params) for i, params in enumerate(asked)
    ]
    is_allowed = torch.rand(3, len(asked), 70, generator=generator) < 0.3
    is_allowed[:, :, seed % 70] = True
    first, *again = [
        {
            key_of(each): mask_of(70, *allowed.nonzero().flatten().tolist())
            for each, allowed in zip(rows, one, strict=True)
        }
        for one in is_allowed
    ]
    sampler = Sampler(70, CPU)
    processed = sampler.process(logits.clone(), rows)
    assert sampler.choose(processed, first) == sampler.sample(logits.clone(), rows, first)
    for masks in again:
        places = list(range(len(rows)))[seed % 2 :: 2] or [0]
        some = [rows[place] for place in places]
        expected = sampler.sample(logits[places], some, masks)
        assert sampler.choose(processed, masks, places) == expected
        assert all(
            masks[key_of(row)][token.token_id // 32] >> token.token_id % 32 & 1
            for row, token in zip(some, expected, strict=True)
        )


def test_a_mask_stands_where_other_bans_leave_nothing_of_it() -> None:
    row = LogitsRow(
        *(SequenceId("a", 0), SamplingParams(min_tokens=5, logprobs=0, temperature=0.0), 0, 3),
        *(PROMPT, len(PROMPT), frozenset({7})),
    )
    logits = torch.randn(1, 40, generator=torch.Generator().manual_seed(1))
    sampler = Sampler(40, CPU)
    processed = sampler.process(logits.clone(), [row])
    for _ in range(2):  # a second time as the first
        (ended,) = sampler.choose(processed, {key_of(row): mask_of(40, 7)})
        assert (ended.token_id, ended.error) == (7, None)
        assert ended.logprobs is not None
        assert ended.logprobs.logprob == pytest.approx(float(logits.log_softmax(1)[0, 7]), abs=1e-6)
        (free,) = sampler.choose(processed, {key_of(row): mask_of(40, 7, 9)})
        assert free.token_id == 9


def test_an_error_of_the_model_is_told_whatever_a_mask_leaves_out() -> None:
    logits = torch.zeros(1, 40)
    logits[0, 3] = NAN
    (result,) = Sampler(40, CPU).sample(logits, [row()], {key_of(row()): mask_of(40, 7)})
    assert result.error is not None
    assert "non-finite" in result.error


def test_the_only_token_of_a_mask_is_found_wherever_it_is() -> None:
    assert only_token(empty_mask(96)) is None
    for token_id in range(96):
        mask = empty_mask(96)
        set_bit(mask, token_id, is_allowed=True)
        assert only_token(mask) == token_id
        set_bit(mask, (token_id + 40) % 96, is_allowed=True)
        assert only_token(mask) is None
