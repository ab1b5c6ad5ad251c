"""Tokens from logits in Triton: to the bit the reference's, whatever the tiles and the rows."""

from __future__ import annotations

import itertools
import math
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import cast

import pytest
import torch
from torch import Tensor

from inferno.ops import Purpose, SamplingSpec, reference
from inferno.ops.cuda import random_numbers, sampling
from inferno.ops.cuda.chips import CHIPS
from inferno.ops.cuda.sampling import Tiles
from inferno.ops.reference.sampling import exponential
from tests.fuzz import device_sampling

pytestmark = [
    pytest.mark.gpu,
    # The interpreter is numpy, which tells of infinity times 0 in rows that aren't drawn.
    pytest.mark.filterwarnings("ignore::RuntimeWarning"),
]

INF, NAN = float("inf"), float("nan")
CPU = torch.device("cpu")
ALMOST_ONE = 1 - 2.0**-53
NONE = SamplingSpec(0.0, top_k=0, top_p=1.0, min_p=0.0)
RULES = (
    SamplingSpec(1.0, top_k=0, top_p=1.0, min_p=0.0),
    SamplingSpec(0.7, top_k=5, top_p=1.0, min_p=0.0),
    SamplingSpec(0.7, top_k=0, top_p=0.9, min_p=0.0),
    SamplingSpec(1.3, top_k=0, top_p=1.0, min_p=0.1),
    SamplingSpec(1.0, top_k=20, top_p=0.8, min_p=0.01),
    SamplingSpec(1.0, top_k=0, top_p=ALMOST_ONE, min_p=0.0),
    SamplingSpec(2.0, top_k=0, top_p=1e-300, min_p=0.0),
    SamplingSpec(1.1754944e-38, top_k=0, top_p=0.5, min_p=0.0),
    SamplingSpec(1.1754944e-38, top_k=7, top_p=1.0, min_p=0.0),
    # So hot that every weight is exactly the same, whatever the logit; its rank still counts.
    SamplingSpec(1e30, top_k=0, top_p=1.0, min_p=0.0),
    SamplingSpec(1e30, top_k=23, top_p=0.5, min_p=0.0),
    SamplingSpec(1e30, top_k=0, top_p=0.3, min_p=0.0),
    SamplingSpec(1e38, top_k=0, top_p=ALMOST_ONE, min_p=1.0),
)
WIDTH = 100
# Rows in one chunk and in many, that are listed whole, in part or not at all.
TILES = (
    Tiles(rows=32, block=128, tile=128, capacity=WIDTH, chunks=16),
    Tiles(rows=32, block=16, tile=32, capacity=WIDTH, chunks=16),
    Tiles(rows=32, block=32, tile=64, capacity=6, chunks=16),
    Tiles(rows=1, block=64, tile=128, capacity=50, chunks=16),
)


def on(device: torch.device, tiles: Tiles) -> Tiles:
    """Return tiles as a device has them: many rows of one are for the interpreter alone.

    Compiled they would take minutes each, and all of a GPU's registers.
    """
    return tiles if device.type == "cpu" else replace(tiles, rows=1)


def drawn(
    logits_RV: Tensor,
    specs: Sequence[SamplingSpec],
    uniform_R: Tensor,
    tiles: Tiles | None = None,
    allowed_RW: Tensor | None = None,
    backend: object = sampling,
) -> list[int]:
    """The tokens; -1 for rows that are not drawn."""
    device = logits_RV.device
    peak_R, _ = reference.argmax(logits_RV, allowed_RW=allowed_RW)
    prepared = backend.sampling_specs(specs, device)  # type: ignore[attr-defined]
    out_R = torch.full((len(specs),), -1, device=device)
    args = logits_RV, peak_R, prepared, uniform_R
    if tiles is None:
        backend.draw(*args, allowed_RW=allowed_RW, out=out_R)  # type: ignore[attr-defined]
    else:
        sampling.draw_by_tiles(*args, allowed_RW, out_R, on(device, tiles))
    return out_R.tolist()


def wanted(
    logits_RV: Tensor,
    specs: Sequence[SamplingSpec],
    uniform_R: Tensor,
    allowed_RW: Tensor | None = None,
) -> list[int]:
    on_cpu = None if allowed_RW is None else allowed_RW.cpu()
    return drawn(logits_RV.cpu(), specs, uniform_R.cpu(), None, on_cpu, reference)


def random_rows(num_rows: int, width: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Logits with many ties, and numbers, among them both ends of the range."""
    generator = torch.Generator().manual_seed(width)
    logits_RV = torch.randn(num_rows, width, generator=generator) * 3
    logits_RV[::2] = (logits_RV[::2] * 2).round() / 2
    uniform_R = torch.rand(num_rows, dtype=torch.float64, generator=generator)
    uniform_R[:5], uniform_R[5:10] = 0.0, ALMOST_ONE
    return logits_RV.to(device), uniform_R.to(device)


def repeated(specs: Sequence[SamplingSpec], count: int) -> list[SamplingSpec]:
    return list(itertools.islice(itertools.cycle(specs), count))


def random_words(num_rows: int, width: int, device: torch.device) -> Tensor:
    random = device_sampling.Random(width)
    words_RW = device_sampling.random_mask(random, num_rows, width)
    words_RW[1] = 0  # a row of which nothing is allowed
    return words_RW.to(device)


@pytest.mark.parametrize("tiles", TILES)
def test_tokens_are_the_references(tiles: Tiles, device: torch.device) -> None:
    num_rows = 28 if tiles.rows > 1 else 5
    logits_RV, uniform_R = random_rows(num_rows, WIDTH, device)
    specs = repeated([*RULES, NONE], num_rows)
    expected = wanted(logits_RV, specs, uniform_R)
    assert drawn(logits_RV, specs, uniform_R, tiles) == expected


@pytest.mark.parametrize("tiles", TILES[:3])
@pytest.mark.parametrize("width", [1, 31, 97])
def test_masks_are_heeded(width: int, tiles: Tiles, device: torch.device) -> None:
    logits_RV, uniform_R = random_rows(26, width, device)
    words_RW = random_words(26, width, device)
    banned_RV = reference.sampling._where_allowed(logits_RV, words_RW)
    is_stuck_R = banned_RV.amax(1) == -INF
    specs = repeated([spec._replace(top_k=min(spec.top_k, width)) for spec in RULES], 26)
    expected = wanted(logits_RV, specs, uniform_R, words_RW)
    logits_RV[banned_RV == -INF] = NAN  # what isn't allowed is no matter
    found = sampling.argmax_by_tiles(logits_RV, words_RW, on(device, tiles))
    assert found[0].tolist() == banned_RV.amax(1).tolist()
    assert found[1].tolist() == banned_RV.argmax(1).tolist()
    tokens = drawn(logits_RV, specs, uniform_R, tiles, words_RW)
    assert [token for token, is_stuck in zip(tokens, is_stuck_R, strict=True) if is_stuck] == [
        -1
    ] * int(is_stuck_R.sum())
    for token, other, is_stuck in zip(tokens, expected, is_stuck_R.tolist(), strict=True):
        assert is_stuck or token == other


@pytest.mark.parametrize("tiles", TILES[1:3])
def test_rows_of_equal_logits_draw_by_id(tiles: Tiles, device: torch.device) -> None:
    logits_RV = torch.full((26, WIDTH), 2.5, device=device)
    logits_RV[::3, 70:] = -INF
    _, uniform_R = random_rows(26, WIDTH, device)
    specs = RULES * 2
    expected = wanted(logits_RV, specs, uniform_R)
    assert drawn(logits_RV, specs, uniform_R, tiles) == expected


@pytest.mark.parametrize("tiles", TILES[:3])
def test_equally_likely_tokens_share_the_random_numbers_equally(
    tiles: Tiles, device: torch.device
) -> None:
    possible = list(range(2, 98, 12))  # some in a chunk
    logits_RV = torch.full((24, WIDTH), -500.0, device=device)
    logits_RV[:, possible] = 7.0
    # Each number is the first that is its token's.
    start_R = torch.arange(8, dtype=torch.float64, device=device).repeat(3) / 8
    whole, top_p, top_k = (
        RULES[0],
        SamplingSpec(1.0, 0, 0.999999, 0.0),
        SamplingSpec(1.0, 8, 1.0, 0.5),
    )
    specs = [spec for spec in (whole, top_p, top_k) for _ in possible]
    assert drawn(logits_RV, specs, start_R, tiles) == possible * 3


def test_a_weight_is_the_references_to_the_bit(device: torch.device) -> None:
    """Of two tokens with a mass of m, u draws the second where u m reaches the first's weight."""
    unit = 2.0**51
    logits = [-0.0, -1e-8, -1e-3, -0.1, -0.3466, -0.34658, -1.0, -3.3, -17.0, -30.0, -87.0, -90.0]
    logits += torch.linspace(-36, -20, 60).tolist()
    weights = exponential(torch.tensor(logits)).mul(unit).round().double().tolist()
    rows, numbers, expected = [], [], []
    for logit, weight in zip(logits, weights, strict=True):
        mass = unit + weight
        for target in (unit - 1, min(unit, mass - 1), min(unit + 1, mass - 1), mass - 1):
            rows.append([0.0, logit])
            numbers.append((target + 0.5) / mass)
            expected.append(int(min(math.floor(numbers[-1] * mass), mass - 1) >= unit))
    tiles = Tiles(rows=512, block=16, tile=16, capacity=2, chunks=16)
    number_R = torch.tensor(numbers, dtype=torch.float64, device=device)
    logits_RV = torch.tensor(rows, device=device)
    for spec in (RULES[0], RULES[0]._replace(top_p=ALMOST_ONE)):
        assert drawn(logits_RV, [spec] * len(rows), number_R, tiles) == expected


@pytest.mark.parametrize("bad", [NAN, INF, -INF])
def test_rows_without_a_peak_are_left_alone_and_harm_nobody(
    bad: float, device: torch.device
) -> None:
    logits_RV, uniform_R = random_rows(13, WIDTH, device)
    specs = repeated(RULES, 13)
    expected = wanted(logits_RV, specs, uniform_R)
    logits_RV[3], logits_RV[7, 99] = bad, NAN
    tokens = drawn(logits_RV, specs, uniform_R, TILES[2])
    assert [tokens[3], tokens[7]] == [-1, -1]
    assert [t for i, t in enumerate(tokens) if i not in (3, 7)] == [
        t for i, t in enumerate(expected) if i not in (3, 7)
    ]


def test_a_row_draws_the_same_alone_and_among_others(device: torch.device) -> None:
    logits_RV, uniform_R = random_rows(13, WIDTH, device)
    together = drawn(logits_RV, RULES, uniform_R, TILES[1])
    for i in (4, 11):
        row = slice(i, i + 1)
        assert drawn(logits_RV[row], [RULES[i]], uniform_R[row], TILES[3]) == [together[i]]


def test_a_large_vocabulary_is_drawn_as_the_backend_chooses(device: torch.device) -> None:
    logits_RV, _ = random_rows(2, 20_001, device)  # no multiple of anything
    uniform_R = torch.tensor([0.3, 0.9], dtype=torch.float64, device=device)
    specs = [RULES[0], SamplingSpec(1.0, top_k=50, top_p=0.9, min_p=0.0)]
    assert drawn(logits_RV, specs, uniform_R) == wanted(logits_RV, specs, uniform_R)


def test_rows_may_have_gaps_and_there_may_be_none(device: torch.device) -> None:
    logits_RV, uniform_R = random_rows(5, WIDTH, device)
    specs, tiles = RULES[:5], Tiles(rows=8, block=64, tile=128, capacity=WIDTH, chunks=16)
    expected = drawn(logits_RV, specs, uniform_R, tiles)
    spaced_RV = torch.full((5, WIDTH + 17), NAN, device=device)
    spaced_RV[:, 7:-10] = logits_RV
    assert drawn(spaced_RV[:, 7:-10], specs, uniform_R, tiles) == expected
    turned_RV = logits_RV.T.contiguous().T
    assert drawn(turned_RV, specs, uniform_R, tiles) == expected
    assert drawn(logits_RV[:0], [], uniform_R[:0]) == []
    assert [len(part) for part in sampling.argmax(logits_RV[:0])] == [0, 0]
    assert sampling.log_probabilities(logits_RV[:0], logits_RV[:0].long()).shape == (0, WIDTH)


def test_random_rows_of_all_kinds_draw_as_on_the_cpu() -> None:
    random = device_sampling.Random(3)
    for width in (1, 2, 40):
        tiles = Tiles(rows=128, block=16, tile=32, capacity=15, chunks=16)
        tiles = on(device_sampling.DEVICE, tiles)
        assert device_sampling.compare(random, 128, width, tiles) == 0


@pytest.mark.parametrize("tiles", TILES)
def test_the_largest_is_the_first_and_nan_where_a_row_has_one(
    tiles: Tiles, device: torch.device
) -> None:
    logits_RV = random_rows(12, WIDTH, device)[0].round()
    logits_RV[0], logits_RV[1, ::2] = -INF, -INF
    logits_RV[2], logits_RV[3] = 0.0, -0.0
    logits_RV[2, 0], logits_RV[3, 1] = -0.0, 0.0  # which are equal
    peak_R, token_R = sampling.argmax_by_tiles(logits_RV, None, on(device, tiles))
    assert torch.equal(peak_R, logits_RV.amax(1))
    assert torch.equal(token_R, logits_RV.argmax(1))
    logits_RV[4:6, 99], logits_RV[6, 5] = NAN, -NAN
    peak_R, _ = sampling.argmax_by_tiles(logits_RV, None, on(device, tiles))
    assert peak_R.isnan().tolist() == [row in (4, 5, 6) for row in range(12)]


@pytest.mark.parametrize("count", [1, 20, 100, 4000])
def test_top_tokens_are_ranked_by_logit_and_then_by_id(count: int, device: torch.device) -> None:
    logits_RV = random_rows(5, WIDTH, device)[0].round()
    logits_RV[0], logits_RV[1, ::3] = 0.0, -INF
    logits_RV[2, ::2] = -0.0
    expected_RC = logits_RV.argsort(descending=True, stable=True, dim=1)[:, :count]
    assert torch.equal(sampling.top_tokens(logits_RV, count), expected_RC)


@pytest.mark.parametrize("tiles", TILES)
def test_log_probabilities_are_the_references(tiles: Tiles, device: torch.device) -> None:
    logits_RV, _ = random_rows(12, WIDTH, device)
    ids_RC = torch.arange(48, device=device).view(12, 4) * 2
    found_RC = sampling.log_probabilities_by_tiles(logits_RV, ids_RC, on(device, tiles))
    expected_RC = reference.log_probabilities(logits_RV.cpu(), ids_RC.cpu())
    # A bit for the logarithm of a mass, which is below 2**3, and one for the difference.
    torch.testing.assert_close(found_RC.cpu(), expected_RC, rtol=2.0**-52, atol=2.0**-50)


@pytest.mark.parametrize("bad", [[NAN, 0.0], [0.0, NAN], [INF, 0.0], [-INF, -INF]])
def test_log_probabilities_of_a_broken_row_are_nan(bad: list[float], device: torch.device) -> None:
    logits_RV = torch.zeros(2, WIDTH, device=device)
    logits_RV[1] = -INF
    logits_RV[1, :2] = torch.tensor(bad)
    ids_RC = torch.zeros(2, 1, dtype=torch.int64, device=device)
    found_RC = sampling.log_probabilities(logits_RV, ids_RC)
    assert found_RC.isnan().flatten().tolist() == [False, True]


@pytest.mark.parametrize("number", [Purpose.SAMPLE, 1, 2**31 - 1])
def test_random_numbers_are_the_references(number: int, device: torch.device) -> None:
    purpose = cast(Purpose, number)
    generator = torch.Generator().manual_seed(5)
    seeds = [-(2**63), 2**63 - 1, -1, 0]
    seeds += torch.randint(-(2**62), 2**62, (200,), generator=generator).tolist()
    indices, positions = (
        torch.randint(2**32, (204,), generator=generator).tolist() for _ in range(2)
    )
    found_R = random_numbers.uniform(seeds, indices, positions, purpose, device)
    expected_R = reference.uniform(seeds, indices, positions, purpose, CPU)
    assert found_R.tolist() == expected_R.tolist()
    assert random_numbers.uniform([], [], [], purpose, device).shape == (0,)


_COMPILE = """
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from inferno.ops.cuda import sampling
from inferno.ops.cuda.chips import CHIPS
for variant in sampling.variants(CHIPS[0]):
    if variant.is_in_check and variant.name.startswith(("weigh", "pick")):
        types = {name: "constexpr" for name in variant.kernel.arg_names}
        types |= {name: kind.split(":")[0] for name, kind in variant.signature.items()}
        source = ASTSource(variant.kernel, types, dict(variant.constants))
        options = {"num_warps": variant.num_warps, "enable_fp_fusion": False}
        print(triton.compile(source, target=GPUTarget("cuda", 80, 32), options=options).asm["ptx"])
"""


@pytest.mark.slow
def test_no_two_steps_are_rounded_once() -> None:
    """Where an instruction names its rounding, ptxas may not join it with another."""
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    ptx = subprocess.run(
        [sys.executable, "-c", _COMPILE],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert ptx.count(".visible .entry") == 3
    steps = re.findall(r"\b(?:mul|add|sub|fma|mad)\.\S*f(?:32|64)\b", ptx)
    assert {"mul.rn.f32", "add.rn.f32", "sub.rn.f32", "mul.rn.f64"} <= set(steps)
    assert set(steps) <= {f"{op}.rn.f{bits}" for op in ("mul", "add", "sub") for bits in (32, 64)}


def test_every_variant_has_a_name_of_its_own_and_all_arguments() -> None:
    for chip in CHIPS:
        variants = [*sampling.variants(chip), *random_numbers.variants(chip)]
        assert len({variant.name for variant in variants}) == len(variants)
        for variant in variants:
            given = {*variant.signature, *variant.constants}
            assert given == set(variant.kernel.arg_names), variant.name
