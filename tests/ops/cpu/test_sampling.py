"""The compiled draw against the reference, and against formulas where weights are exact."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Sequence
from functools import cache
from typing import cast

import pytest
import torch
from torch import Tensor

from inferno import _native
from inferno.ops import Purpose, SamplingSpec, cpu, reference
from inferno.ops.backend import Backend
from inferno.ops.reference import philox
from inferno.ops.reference.sampling import exponential
from tests.ops.cpu.guarded import copied, guarded
from tests.ops.reference.test_philox import KNOWN_ANSWERS, hex_words

Draws = tuple[Tensor, Sequence[SamplingSpec], Tensor]
INF, NAN = float("inf"), float("nan")
CPU = torch.device("cpu")
WIDTHS = [1, 2, 15, 16, 17, 255, 256, 257, 1000, 4097]
ALL, TOP_K, TOP_P, MIN_P, BOTH = RULES = (
    SamplingSpec(1.0, top_k=0, top_p=1.0, min_p=0.0),
    SamplingSpec(0.7, top_k=5, top_p=1.0, min_p=0.0),
    SamplingSpec(0.7, top_k=0, top_p=0.9, min_p=0.0),
    SamplingSpec(1.3, top_k=0, top_p=1.0, min_p=0.1),
    SamplingSpec(1.0, top_k=40, top_p=0.8, min_p=0.01),
)
NONE = SamplingSpec(0.0, top_k=0, top_p=1.0, min_p=0.0)
# So hot that every weight is exactly the same, whatever the logit; its rank still counts.
HOT = [
    SamplingSpec(1e30, *cut, min_p=0.0)
    for cut in ((0, 1.0), (3, 1.0), (300, 0.5), (0, 0.001), (0, 0.01), (0, 0.3), (4500, 0.99))
]


@pytest.fixture(autouse=True)
def at_every_level(level: str) -> None:
    """Every test here."""


def random_logits(num_rows: int, width: int, spread: float = 3.0) -> Tensor:
    return torch.randn(num_rows, width, generator=torch.Generator().manual_seed(width)) * spread


def random_numbers(count: int) -> Tensor:
    generator = torch.Generator().manual_seed(count)
    return torch.rand(count, dtype=torch.float64, generator=generator)


def repeated(specs: Sequence[SamplingSpec], count: int) -> list[SamplingSpec]:
    return list(itertools.islice(itertools.cycle(specs), count))


def fitting(spec: SamplingSpec, width: int) -> SamplingSpec:
    return spec._replace(top_k=spec.top_k if spec.top_k < width else 0)


def drawn(
    backend: object,
    logits_RV: Tensor,
    specs: Sequence[SamplingSpec],
    uniform_R: Tensor,
    allowed_RW: Tensor | None = None,
) -> list[int]:
    """The tokens; -1 for rows that are not drawn."""
    peak_R, _ = backend.argmax(logits_RV, allowed_RW=allowed_RW)  # type: ignore[attr-defined]
    specs = [fitting(spec, logits_RV.shape[1]) for spec in specs]
    prepared = backend.sampling_specs(specs, CPU)  # type: ignore[attr-defined]
    out_R = torch.full((len(specs),), -1)
    backend.draw(  # type: ignore[attr-defined]
        logits_RV, peak_R, prepared, uniform_R, allowed_RW=allowed_RW, out=out_R
    )
    return out_R.tolist()


def random_masks(num_rows: int, width: int) -> tuple[Tensor, Tensor]:
    """Masks of one, few, many and all tokens, by turns, each of one token at least.

    As numbers of which those that aren't allowed are minus infinity, and as words.
    """
    generator = torch.Generator().manual_seed(width)
    shares_R1 = torch.tensor([0.0, 0.01, 0.5, 0.99, 1.0]).repeat(num_rows)[:num_rows, None]
    is_allowed_RV = torch.rand(num_rows, width, generator=generator) < shares_R1
    is_allowed_RV[torch.arange(num_rows), torch.arange(num_rows) % width] = True
    words_RW = [
        [
            sum(int(is_set) << bit for bit, is_set in enumerate(row[first : first + 32]))
            for first in range(0, width, 32)
        ]
        for row in is_allowed_RV.tolist()
    ]
    ban_RV = torch.zeros(num_rows, width).masked_fill(~is_allowed_RV, -INF)
    return ban_RV, torch.tensor(words_RW).to(torch.int32)


@pytest.mark.parametrize("width", WIDTHS)
def test_largest_is_the_first_of_the_largest(width: int) -> None:
    logits_RV = random_logits(50, width).round()  # many ties
    logits_RV[0] = -INF
    logits_RV[1, ::2] = -INF
    peak_R, token_R = cpu.argmax(copied(logits_RV))
    assert torch.equal(peak_R, logits_RV.amax(1))
    assert torch.equal(token_R, logits_RV.argmax(1))


@pytest.mark.parametrize("logits", [[-0.0, 0.0], [0.0, -0.0]])
def test_zeros_of_both_signs_are_equal(logits: list[float]) -> None:
    logits_RV = torch.tensor([[*logits, -1.0]])
    assert cpu.argmax(logits_RV)[1].item() == 0
    assert cpu.top_tokens(logits_RV, 3).tolist() == [[0, 1, 2]]


@pytest.mark.parametrize("width", WIDTHS)
def test_largest_is_nan_where_a_row_has_one(width: int) -> None:
    for place in {0, width // 2, width - 1}:
        logits_RV = random_logits(3, width)
        logits_RV[1, place] = NAN
        peak_R, _ = cpu.argmax(logits_RV)
        assert peak_R.isnan().tolist() == [False, True, False]


@pytest.mark.parametrize("width", [1, 5, 300, 6000])
def test_where_weights_are_equal_the_token_is_the_references(width: int) -> None:
    draws, expected = _tied(width)
    assert drawn(cpu, *draws) == expected


@cache
def _tied(width: int) -> tuple[Draws, list[int]]:
    """Draws, and the reference's tokens, which are the same at every level."""
    num_rows = 500
    logits_RV = (random_logits(20, width) * 2).round() / 2  # many ties
    logits_RV = logits_RV.repeat(num_rows // 20, 1)
    specs, uniform_R = repeated(HOT, num_rows), random_numbers(num_rows)
    uniform_R[:7], uniform_R[7:14] = 0.0, 1 - 2.0**-53
    return (logits_RV, specs, uniform_R), drawn(reference, logits_RV, specs, uniform_R)


@pytest.mark.parametrize("backend", [cpu, reference])
@pytest.mark.parametrize("width", WIDTHS)
def test_of_what_is_allowed_the_likeliest_is_found(backend: Backend, width: int) -> None:
    logits_RV = random_logits(50, width).round()  # many ties
    ban_RV, words_RW = random_masks(50, width)
    expected_RV = logits_RV + ban_RV
    logits_RV[ban_RV == -INF] += 100.0  # the others would win, and NaN would spread
    logits_RV[4::9][ban_RV[4::9] == -INF] = NAN
    peak_R, token_R = backend.argmax(copied(logits_RV), allowed_RW=copied(words_RW))
    assert torch.equal(peak_R, expected_RV.amax(1))
    assert torch.equal(token_R, expected_RV.argmax(1))


@pytest.mark.parametrize("backend", [cpu, reference])
@pytest.mark.parametrize("width", [1, 31, 32, 300, 4097])
def test_what_is_not_allowed_is_drawn_as_if_it_were_minus_infinity(
    backend: Backend, width: int
) -> None:
    num_rows = 210
    logits_RV = (random_logits(num_rows, width) * 2).round() / 2
    ban_RV, words_RW = random_masks(num_rows, width)
    specs, uniform_R = repeated([*RULES, *HOT, NONE], num_rows), random_numbers(num_rows)
    expected = drawn(backend, logits_RV + ban_RV, specs, uniform_R)
    kept_RV = logits_RV.clone()
    assert drawn(backend, logits_RV, specs, uniform_R, words_RW) == expected
    assert torch.equal(logits_RV, kept_RV), "the logits are left as they were"


@pytest.mark.parametrize("num_possible", [1, 2, 8, 256])
def test_equally_likely_tokens_share_the_random_numbers_equally(num_possible: int) -> None:
    possible = list(range(2, 3 * num_possible + 2, 3))
    logits_V = torch.full((3 * num_possible + 5,), -500.0)
    logits_V[possible] = 7.0
    logits_RV = logits_V.repeat(num_possible, 1)
    start_R = torch.arange(num_possible, dtype=torch.float64) / num_possible
    specs = ALL, SamplingSpec(1.0, 0, 0.999999, 0.0), SamplingSpec(1.0, num_possible, 1.0, 0.5)
    for spec, offset in itertools.product(specs, (0.0, 0.999 / num_possible)):
        assert drawn(cpu, logits_RV, [spec] * num_possible, start_R + offset) == possible


@pytest.mark.parametrize("width", [7, 300, 5000])
@pytest.mark.parametrize("spread", [0.1, 3.0, 25.0])
def test_tokens_are_the_references(width: int, spread: float) -> None:
    """Every one of them, for the weights are the same to the bit."""
    draws, expected = _random(width, spread)
    assert drawn(cpu, *draws) == expected


@cache
def _random(width: int, spread: float) -> tuple[Draws, list[int]]:
    """Draws, and the reference's tokens, which are the same at every level."""
    num_rows = 2000
    logits_RV = random_logits(20, width, spread).repeat(num_rows // 20, 1)
    specs, uniform_R = repeated(RULES, num_rows), random_numbers(num_rows)
    return (logits_RV, specs, uniform_R), drawn(reference, logits_RV, specs, uniform_R)


def test_a_weight_is_the_references_to_the_bit() -> None:
    """Of one token beside the likeliest, the weight decides the last random number that is its own.

    With two tokens whose weights add up to m, the number u draws the second where u m reaches the
    first's weight, which is `unit`: so it is found by bisection, exactly.
    """
    unit = 2.0**51
    logits = [-0.0, -1e-8, -1e-3, -0.1, -0.3466, -0.34658, -1.0, -3.3, -17.0, -30.0, -87.0, -90.0]
    weights = exponential(torch.tensor(logits)).mul(unit).round().double().tolist()
    for logit, weight in zip(logits, weights, strict=True):
        mass = unit + weight
        for target in {unit - 1, unit, min(unit + 1, mass - 1), mass - 1}:
            number = (target + 0.5) / mass
            rows = torch.tensor([[0.0, logit]])
            expected = int(min(math.floor(number * mass), mass - 1) >= unit)
            found = drawn(cpu, rows, [ALL], torch.tensor([number], dtype=torch.float64))
            assert found == [expected], (logit, target)


@pytest.mark.parametrize("spread", [0.01, 3.0])  # flat rows need all tokens sorted
def test_a_row_draws_the_same_alone_and_among_others_on_any_number_of_threads(
    spread: float,
) -> None:
    num_rows = 20
    logits_RV, uniform_R = random_logits(num_rows, 33_000, spread), random_numbers(num_rows)
    specs = repeated([*RULES, *HOT], num_rows)
    alone = [
        drawn(cpu, logits_RV[i : i + 1], [specs[i]], uniform_R[i : i + 1])[0]
        for i in range(num_rows)
    ]
    for num_threads in (1, 2, 3):
        with _native.KernelContext(num_threads):
            assert drawn(cpu, logits_RV, specs, uniform_R) == alone


@pytest.mark.parametrize("width", WIDTHS)
def test_nothing_beyond_a_row_is_read_or_written(width: int) -> None:
    specs = [fitting(spec, width) for spec in (*RULES, *HOT)]
    num_rows = len(specs)
    logits_RV = copied(random_logits(num_rows, width))
    uniform_R = copied(random_numbers(num_rows))
    peak_R = copied(cpu.argmax(logits_RV)[0])
    out_R = guarded((num_rows,), torch.int64)
    cpu.draw(logits_RV, peak_R, cpu.sampling_specs(specs, CPU), uniform_R, out=out_R)
    assert ((out_R >= 0) & (out_R < width)).all()
    cpu.log_probabilities(logits_RV, copied(torch.zeros(num_rows, 1, dtype=torch.int64)))
    cpu.top_tokens(logits_RV, width)


def test_rows_may_have_gaps() -> None:
    logits_RV = random_logits(12, 300)
    spaced_RV = copied(logits_RV, stride=317)
    specs, uniform_R = repeated(RULES, 12), random_numbers(12)
    assert drawn(cpu, spaced_RV, specs, uniform_R) == drawn(cpu, logits_RV, specs, uniform_R)
    assert torch.equal(cpu.top_tokens(spaced_RV, 9), cpu.top_tokens(logits_RV, 9))


@pytest.mark.parametrize("bad", [NAN, INF, -INF])
@pytest.mark.parametrize("width", [3, 300, 5000])
def test_rows_without_a_peak_and_rows_that_are_not_drawn_are_left_alone(
    bad: float, width: int
) -> None:
    logits_RV = random_logits(4, width)
    logits_RV[1] = bad
    uniform_R = random_numbers(4)
    for spec in (*RULES, *HOT):
        tokens = drawn(cpu, logits_RV, [spec, spec, NONE, spec], uniform_R)
        assert tokens[1:3] == [-1, -1]
        assert [tokens[0], tokens[3]] == drawn(
            cpu, logits_RV[[0, 3]], [spec] * 2, uniform_R[[0, 3]]
        )
        assert min(tokens[0], tokens[3]) >= 0


def test_tokens_that_are_ruled_out_are_not_drawn() -> None:
    logits_RV = torch.full((200, 300), -INF)
    logits_RV[:, [3, 270]] = torch.tensor([1.0, 1.5])
    for spec in (*RULES, *HOT):
        assert set(drawn(cpu, logits_RV, [spec] * 200, random_numbers(200))) <= {3, 270}


@pytest.mark.parametrize("width", [1, 40, 5000, 30_000])
@pytest.mark.parametrize("count", [1, 2, 20, 300, 4096, 4097, 30_000])
def test_top_tokens_are_ranked_by_logit_and_then_by_id(width: int, count: int) -> None:
    logits_RV = (random_logits(5, width) * 4).round() / 4
    logits_RV[0] = 0.0
    logits_RV[1, ::3] = -INF
    logits_RV[2] = torch.arange(width)  # each beats all before it
    logits_RV[3] = -torch.arange(width)
    expected_RC = logits_RV.argsort(descending=True, stable=True, dim=1)[:, :count]
    assert torch.equal(cpu.top_tokens(logits_RV, count), expected_RC)


@pytest.mark.parametrize("width", WIDTHS)
def test_top_tokens_of_a_row_with_nan_are_tokens_and_its_neighbours_keep_theirs(
    width: int,
) -> None:
    logits_RV = random_logits(4, width)
    expected_RC = cpu.top_tokens(logits_RV, 20)
    logits_RV[0], logits_RV[2, width // 2] = NAN, NAN
    cpu.top_tokens(torch.arange(9000.0).view(1, -1), 3000)  # leaves ids that are no tokens here
    found_RC = cpu.top_tokens(logits_RV, 20)
    assert torch.equal(found_RC[1::2], expected_RC[1::2])
    assert ((found_RC >= 0) & (found_RC < width)).all()


@pytest.mark.parametrize("width", WIDTHS)
def test_log_probabilities_are_log_softmax(width: int) -> None:
    logits_RV = random_logits(9, width)
    ids_RC = torch.arange(36).view(9, 4) % width
    expected_RC = logits_RV.double().log_softmax(-1).gather(1, ids_RC)
    torch.testing.assert_close(
        cpu.log_probabilities(logits_RV, ids_RC), expected_RC, rtol=0, atol=1e-6
    )


@pytest.mark.parametrize("bad", [[NAN, 0.0], [0.0, NAN], [INF, 0.0], [-INF, -INF]])
def test_log_probabilities_of_a_broken_row_are_nan(bad: list[float]) -> None:
    logits_RV = torch.zeros(2, 300)
    logits_RV[1] = -INF
    logits_RV[1, :2] = torch.tensor(bad)
    logprob_RC = cpu.log_probabilities(logits_RV, torch.zeros(2, 1, dtype=torch.int64))
    assert logprob_RC.isnan().flatten().tolist() == [False, True]


@pytest.mark.parametrize(("counter", "key", "words"), KNOWN_ANSWERS)
def test_published_vectors_of_philox_come_out(counter: str, key: str, words: str) -> None:
    sequence_index, position, purpose, lane = hex_words(counter)
    low, high = hex_words(key)
    seed = (low + 2**32 * high + 2**63) % 2**64 - 2**63
    out_R = guarded((1,), torch.float64)
    _native.uniform([seed], [sequence_index], [position], purpose, lane, out_R.data_ptr())
    first, second, *_ = hex_words(words)
    assert out_R.item() == ((first >> 5) * 2**26 + (second >> 6)) / 2**53


@pytest.mark.parametrize("number", [Purpose.SAMPLE, 1, 2**31 - 1])
def test_random_numbers_are_the_references(number: int) -> None:
    purpose = cast(Purpose, number)
    rng = random.Random(5)
    seeds = [-(2**63), 2**63 - 1, -1, *(rng.randrange(-(2**63), 2**63) for _ in range(50))]
    samples, positions = ([rng.randrange(2**31) for _ in seeds] for _ in range(2))
    found = cpu.uniform(seeds, samples, positions, purpose, CPU)
    assert found.tolist() == philox.uniform(seeds, samples, positions, purpose).tolist()


def test_a_draw_is_never_recorded() -> None:
    context = _native.KernelContext(1)
    graph = _native.CapturedGraph(context)
    with context:
        graph.start()
        drawn(cpu, random_logits(2, 30), [ALL, TOP_K], random_numbers(2))
        graph.stop()
    assert len(graph) == 0


def test_a_row_without_a_rule_is_refused() -> None:
    logits_RV = random_logits(3, 30)
    specs = cpu.sampling_specs([ALL, TOP_P], CPU)
    with pytest.raises(ValueError, match="each row needs a SamplingSpec"):
        cpu.draw(logits_RV, logits_RV.amax(1), specs, random_numbers(3), out=torch.zeros(3).long())
