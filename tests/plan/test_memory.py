"""A plan's weights and cache are, to the byte, what an engine has allocated."""

from __future__ import annotations

import pytest

from inferno import LLM
from inferno.demo import MODEL_FOLDERS
from inferno.options import EngineOptions
from inferno.plan.memory import make_plan


@pytest.mark.parametrize("quantize", ["none", "int8", "int4"])
def test_a_plan_is_what_an_engine_allocates(quantize: str) -> None:
    options = EngineOptions(
        model=MODEL_FOLDERS["demo"], quantize=quantize, max_num_seqs=2, max_model_len=128
    )
    plan = make_plan(options.model, options, 2**34)
    with LLM("demo", quantize=quantize, max_num_seqs=2, max_model_len=128) as llm:
        actual = llm.footprint
    assert (plan.dtype, plan.kv_dtype) == (actual.dtype, actual.kv_dtype)
    assert (plan.weights_bytes, plan.cache_bytes) == (actual.weights_bytes, actual.kv_cache_bytes)


def test_a_plan_that_leaves_no_block_does_not_fit() -> None:
    options = EngineOptions(model=MODEL_FOLDERS["demo"])
    assert not make_plan(options.model, options, 1000).fits
