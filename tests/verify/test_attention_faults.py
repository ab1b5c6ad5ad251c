"""Mistakes of positions, rotation and attention kernels are found, placed and named."""

from __future__ import annotations

from typing import Any

import pytest

from inferno.models import gpt_oss
from tests.verify.faults import in_call, in_layers, in_model, in_op, set_on
from tests.verify.faults_attention import (
    blind_to_earlier_steps,
    in_batch,
    kernel,
    only_in_head,
    restarted_in_each_chunk,
    rolled_sinks,
    rounded_cache,
    shifted_while_decoding,
    tiled,
    wrong_yarn_factor,
)
from tests.verify.planted import Fault, Folders, check


def roll(named: dict[str, Any]) -> None:
    named["sinks_H"] = named["sinks_H"].roll(1)


FAULTS = {
    "positions off by one while decoding": Fault(
        "llama",
        in_batch(shifted_while_decoding),
        "1B",
        0,
        "each token is turned by the angle of the next",
        "positions 48 to 62, those computed one by one",
    ),
    "positions that begin anew in each chunk": Fault(
        "llama",
        in_batch(restarted_in_each_chunk),
        "1B",
        0,
        "positions are counted anew",
        "from 16 on, where the second chunk of the prompt begins",
    ),
    "a wrong YaRN attention factor": Fault(
        "llama, yarn",
        in_model(wrong_yarn_factor),
        "1B",
        0,
        "are multiplied by 1, and should be by 1.139: YaRN's attention factor",
    ),
    "a scale of the model's width": Fault(
        "qwen3",
        in_layers(set_on("self_attn.scale", 48**-0.5)),
        "4",
        0,
        "the scale is 1/sqrt(E) = 0.1443 instead of 1/sqrt(D) = 0.2236",
    ),
    "a scale of no name": Fault(
        "qwen3", in_layers(set_on("self_attn.scale", 0.37)), "4", 0, "the scale is 0.37 instead"
    ),
    "sinks rolled": Fault(
        "gpt_oss",
        in_call(gpt_oss, "attention", roll),
        "4",
        0,
        "each head has the sink of the head before",
    ),
    "sinks rolled in a kernel": Fault(
        "gpt_oss",
        in_op("attention", rolled_sinks),
        "5",
        0,
        "each head has the sink of the head before",
    ),
    "key heads tiled": Fault(
        "llama",
        in_op("attention", kernel(lambda q, k, v: (q, tiled(k, q), v))),
        "5",
        0,
        "read the wrong key heads, h % K instead of h // (H/K); values are right",
        "2 of 4 heads: 1, 2",
    ),
    "value heads tiled": Fault(
        "llama",
        in_op("attention", kernel(lambda q, k, v: (q, k, tiled(v, q)))),
        "5",
        0,
        "read the wrong value heads, h % K instead of h // (H/K); keys are right",
    ),
    "a kernel that forgets the cache": Fault(
        "llama",
        in_op("attention", blind_to_earlier_steps),
        "5",
        0,
        "queries see no key of an earlier step",
    ),
    "values that lose precision": Fault(
        "llama", in_op("rotate_and_store", rounded_cache), "3", 0, "are rounded to bfloat16"
    ),
    "the scale of one head": Fault(
        "llama",
        in_op("attention", only_in_head(2, 12**0.5)),
        "5",
        0,
        "the scale is 1 = 1 instead",
        "1 of 4 heads: 2",
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_is_found_and_named(
    folders: Folders, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    check(folders, monkeypatch, FAULTS[fault])
