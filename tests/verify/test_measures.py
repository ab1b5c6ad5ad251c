"""Errors of tensors are what their names say."""

from __future__ import annotations

import math

import pytest
import torch

from inferno.verify.checks.measures import Noise, Tolerances, measure, noise_between

INF = torch.inf


def test_errors_are_those_of_the_definitions() -> None:
    found, expected = torch.tensor([3.0, 4.0, 0.0]), torch.tensor([3.0, 0.0, 4.0])
    got = measure("tap", "name", found, expected, 1.0)
    assert got.max_error == 4
    assert got.mean_error == pytest.approx(8 / 3)
    assert got.relative_error == pytest.approx(math.sqrt(32) / 5)
    assert got.cosine == pytest.approx(9 / 25)
    assert not got.passed


def test_equal_tensors_have_no_error() -> None:
    x = torch.tensor([[1.0, -INF], [0.0, 2.0]])
    got = measure("tap", "name", x, x.clone(), 0.0)
    assert (got.max_error, got.mean_error, got.relative_error) == (0, 0, 0)
    assert got.cosine == pytest.approx(1)
    assert got.passed


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        ([1.0, 2.0], [1.0, -INF]),  # a key is seen that should be hidden
        ([1.0, -INF], [1.0, 2.0]),
        ([1.0, math.nan], [1.0, 2.0]),
        ([1.0, INF], [1.0, 2.0]),
        ([1.0, math.nan], [1.0, math.nan]),
        ([1.0], [1.0, 2.0]),  # another shape
    ],
)
def test_what_is_no_number_or_missing_never_passes(
    found: list[float], expected: list[float]
) -> None:
    got = measure("tap", "name", torch.tensor(found), torch.tensor(expected), 1e30)
    assert got.max_error == math.inf
    assert not got.passed


def test_all_zeros_and_nothing_at_all_can_be_compared() -> None:
    zeros, nothing = torch.zeros(3), torch.zeros(0)
    assert measure("", "", zeros, zeros, 0.0).passed
    assert measure("", "", nothing, nothing, 0.0).passed
    assert not measure("", "", zeros + 1, zeros, 0.5).passed


def test_an_error_where_none_is_allowed_is_as_severe_as_can_be() -> None:
    got = measure("", "", torch.ones(2), torch.zeros(2), 0.0, 0.0)
    assert not got.passed
    assert got.severity == math.inf


def test_tolerance_grows_with_depth_values_and_epsilon() -> None:
    def allowed(dtype: torch.dtype, scale: float, depth: int) -> float:
        tolerances = Tolerances(dtype=dtype, relative=None, noise={})
        return tolerances.of("q", torch.tensor([scale, -INF]), depth)

    one = allowed(torch.float32, 1.0, 1)
    assert one < 1e-5
    assert allowed(torch.float32, 10.0, 1) == pytest.approx(10 * one)
    assert allowed(torch.float32, 1.0, 4) == pytest.approx(4 * one)
    assert allowed(torch.bfloat16, 1.0, 1) == pytest.approx(2**16 * one)


def test_measured_noise_counts_thrice_in_16_bits() -> None:
    expected = torch.tensor([3.0, 4.0])
    tolerances = Tolerances(dtype=torch.bfloat16, relative=None, noise={"q": Noise(0.5, 0.01)})
    rounding = 2 * torch.finfo(torch.bfloat16).eps * math.sqrt(12.5)
    assert tolerances.of("q", expected, 7) == pytest.approx(1.5 + rounding)


def test_noise_widens_what_float32_allows_and_never_narrows_it() -> None:
    expected = torch.tensor([3.0, 4.0])
    plain = Tolerances(dtype=torch.float32, relative=None, noise={}).of("q", expected, 1)
    for noise, allowed in ((0.5, 3.0), (1e-9, plain)):
        measured = Tolerances(dtype=torch.float32, relative=None, noise={"q": Noise(noise, 0.0)})
        assert measured.of("q", expected, 1) == pytest.approx(allowed)


def test_an_asked_tolerance_is_a_share_of_the_largest_value() -> None:
    tolerances = Tolerances(dtype=torch.float32, relative=0.01, noise={"q": Noise(5.0, 5.0)})
    assert tolerances.of("q", torch.tensor([-200.0, 1.0]), 3) == pytest.approx(2.0)


def test_in_16_bits_a_tensor_as_a_whole_may_err_thrice_as_much_as_plain_maths() -> None:
    noise, epsilon = {"q": Noise(0.5, 0.01)}, torch.finfo(torch.bfloat16).eps
    sharp = Tolerances(dtype=torch.bfloat16, relative=None, noise=noise)
    assert sharp.relative_of("q") == pytest.approx(0.03 + epsilon / 2)
    assert sharp.relative_of("k") == math.inf
    float32 = Tolerances(dtype=torch.float32, relative=None, noise=noise)
    assert float32.relative_of("q") == math.inf


def test_a_tensor_that_is_off_as_a_whole_fails_though_none_of_its_values_is_far_off() -> None:
    expected = torch.ones(100)
    got = measure("tap", "name", expected + 0.05, expected, 0.1, 0.04)
    assert not got.passed
    assert got.words == "the relative error of name is 0.05, where 0.04 is allowed"
    assert measure("tap", "name", expected + 0.05, expected, 0.1, 0.06).passed


def test_noise_is_what_rounding_did() -> None:
    noise = noise_between(torch.tensor([3.0, 4.5]), torch.tensor([3.0, 4.0]))
    assert noise.largest == 0.5
    assert noise.relative == pytest.approx(0.1)
