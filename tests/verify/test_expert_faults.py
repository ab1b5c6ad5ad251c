"""Mistakes of mixtures of experts are found and named, in the choice and in the kernel."""

from __future__ import annotations

import pytest

from inferno.ops import reference
from tests.verify.faults import in_op
from tests.verify.faults_experts import (
    equal_weights,
    in_choice,
    in_combining,
    lowest,
    next_experts,
    only_in_layer,
    reversed_weights,
    without_expert,
)
from tests.verify.planted import Fault, Folders, check

REVERSED = "weights are in reverse order"
EQUAL = "all of a token's experts have the same weight"
NEXT = "experts are off by one: each token has the next"
FAULTS = {
    "weights reversed": Fault(
        "qwen3_moe", in_op("route", in_choice(reversed_weights)), "6", 0, REVERSED
    ),
    "weights reversed in a kernel": Fault(
        "gpt_oss", in_op("experts", in_combining(reversed_weights)), "6", 0, REVERSED
    ),
    "equal weights": Fault("qwen3_moe", in_op("route", in_choice(equal_weights)), "6", 0, EQUAL),
    "equal weights in a kernel": Fault(
        "mixtral", in_op("experts", in_combining(equal_weights)), "6", 0, EQUAL
    ),
    "the next expert": Fault("qwen3_moe", in_op("route", in_choice(next_experts(6))), "6", 0, NEXT),
    "the next expert in a kernel": Fault(
        "qwen3_moe", in_op("experts", in_combining(next_experts(6))), "6", 0, NEXT
    ),
    "the worst experts": Fault("mixtral", in_op("route", lowest), "6", 0, "lowest logits"),
    "an expert that gives nothing": Fault(
        "mixtral",
        in_op("experts", without_expert(3)),
        "6",
        0,
        "the FFN's output",
        "exactly those that use expert 3",
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_is_found_and_named(
    folders: Folders, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    check(folders, monkeypatch, FAULTS[fault])


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_wrong_choice_is_found_where_the_oracle_follows_it_and_nobody_looks(
    folders: Folders, monkeypatch: pytest.MonkeyPatch, dtype: str
) -> None:
    plant = in_op("route", only_in_layer(1, 3, lowest(reference.route)))
    fault = Fault("mixtral", plant, "6", 1, "leaves out an expert")
    check(folders, monkeypatch, fault, layers=(0, 2), dtype=dtype)
