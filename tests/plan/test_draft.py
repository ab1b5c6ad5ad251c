"""A draft model is part of the plan: to the byte what is allocated, and what is given up first."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from inferno import machine, ops
from inferno.config.families import read_model_config
from inferno.demo import MODEL_FOLDERS
from inferno.engine.planning import plan_engine
from inferno.engine.proposers.load_draft import load_draft, open_draft
from inferno.errors import NotEnoughMemory
from inferno.model_files import CONFIG, model_files
from inferno.options import EngineOptions
from inferno.plan.memory import DRAFT_FLOOR_TOKENS, Plan, make_plan
from inferno.plan.report import cures, memory_table
from inferno.plan.shape import read_shape
from tests.tiny import save_tiny

DEMO, DRAFT = MODEL_FOLDERS["demo"], MODEL_FOLDERS["demo-draft"]


def planned(memory: str = "8GB", draft: Path | None = DRAFT, **given: Any) -> Plan:
    # Asked for, or else the sizes would be another CPU's.
    options = EngineOptions(model=DEMO, memory=memory, dtype="bfloat16", **given)
    shape = None if draft is None else read_shape(draft)
    return make_plan(read_shape(DEMO), options, 2**40, base=200_000_000, draft=shape)


def tokens(plan: Plan) -> tuple[int, int]:
    """Return the tokens that the caches of the model and of its draft hold."""
    assert plan.draft is not None
    size = plan.cache.block_size
    own = plan.num_blocks * size // len(plan.cache.windows)
    return own, plan.draft.num_blocks * size // len(plan.draft.cache.windows)


@pytest.mark.parametrize("quantize", ["none", "int8"])
def test_a_plan_is_what_a_draft_allocates(
    quantize: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also of one whose layers see windows, so that its groups' blocks are counted."""
    monkeypatch.setattr(machine, "own_memory", lambda: 200_000_000)
    windows: dict[str, Any] = {"use_sliding_window": True, "sliding_window": 32}
    save_tiny(tmp_path / "t", "qwen3", head_dim=16, hidden_size=64, intermediate_size=128)
    save_tiny(
        tmp_path / "d",
        "qwen3",
        **{**windows, "max_window_layers": 1, "head_dim": 16, "hidden_size": 64},
        intermediate_size=128,
    )
    options = EngineOptions(
        model=tmp_path / "t", quantize=quantize, max_num_seqs=2, max_model_len=128
    )
    hf_config = model_files(options.model).json(CONFIG, error=NotImplementedError)  # type: ignore[arg-type]
    draft = open_draft(tmp_path / "d", options)
    plan = plan_engine(options, hf_config, read_model_config(hf_config), 0, draft)
    assert plan.draft is not None
    proposer = load_draft(
        draft,
        vocab_size=96,
        max_model_len=128,
        num_tokens=0,
        plan=plan.draft,
        device=torch.device("cpu"),
        kernels=ops.kernel_context(1),
        records=False,
    )
    actual = proposer.footprint
    assert (plan.draft.dtype, plan.draft.kv_dtype) == (actual.dtype, actual.kv_dtype)
    assert plan.draft.weights_bytes == actual.weights_bytes
    assert plan.draft.cache_bytes == actual.kv_cache_bytes
    assert proposer.num_bytes == actual.weights_bytes + actual.kv_cache_bytes
    own, of_draft = tokens(plan)
    assert of_draft == own == 2 * 128
    assert plan.draft.num_blocks == 2 * plan.num_blocks, "two groups"


def test_both_caches_hold_the_same_tokens_where_there_is_room() -> None:
    assert tokens(planned()) == (64 * 1024, 64 * 1024)
    alone = planned(draft=None)
    both = planned()
    assert both.num_blocks == alone.num_blocks
    assert both.total_bytes > alone.total_bytes


def test_less_memory_takes_from_both_until_a_request_of_the_whole_context_is_at_stake() -> None:
    """From then on the draft's cache has its least, which it always has."""
    megabytes = range(222, 310)
    found = [planned(f"{size}MB") for size in megabytes]
    fitting = [plan for plan in found if plan.fits]
    assert len(fitting) > 20
    before = (0, 0)
    for plan in fitting:
        assert plan.room is not None
        assert plan.total_bytes <= plan.room
        own, of_draft = tokens(plan)
        assert own >= before[0]
        assert of_draft >= before[1], "more memory is never less for anybody"
        before = own, of_draft
        assert of_draft >= DRAFT_FLOOR_TOKENS
        if own < plan.context:
            assert of_draft == DRAFT_FLOOR_TOKENS
        else:
            assert of_draft > 0.98 * own
    assert not all(plan.fits for plan in found)
    assert tokens(fitting[0])[1] == DRAFT_FLOOR_TOKENS


def test_a_cache_of_an_asked_size_keeps_it_and_the_drafts_shrinks() -> None:
    whole = planned(num_blocks=3000)
    part = planned("280MB", num_blocks=3000)
    least = planned("268MB", num_blocks=3000)
    assert [tokens(plan)[0] for plan in (whole, part, least)] == [48000] * 3
    assert tokens(whole)[1] == 48000 > tokens(part)[1] > tokens(least)[1] == DRAFT_FLOOR_TOKENS
    assert part.fits
    assert not least.fits


def test_a_draft_of_a_short_context_has_no_larger_least(tmp_path: Path) -> None:
    save_tiny(tmp_path, "llama", max_position_embeddings=100)
    assert tokens(planned("215MB", tmp_path))[1] == 112


def test_what_does_not_fit_is_refused_with_the_drafts_part(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "own_memory", lambda: 200_000_000)
    options = EngineOptions(model=DEMO, memory="222MB", dtype="bfloat16")
    hf_config = model_files(DEMO).json(CONFIG, error=NotImplementedError)  # type: ignore[arg-type]
    draft = open_draft(DRAFT, options)
    with pytest.raises(NotEnoughMemory) as refused:
        plan_engine(options, hf_config, read_model_config(hf_config), 0, draft)
    message = str(refused.value)
    assert "the model and its draft model don't fit in --memory 222MB" in message
    assert "draft's weights, " in message
    assert "draft's cache, " in message
    assert "(no draft model)" in message
    plan_engine(options, hf_config, read_model_config(hf_config), 0)


def test_cures_leave_the_draft_out_first() -> None:
    options = EngineOptions(model=DEMO, memory="224MB", dtype="bfloat16")
    shape, draft = read_shape(DEMO), read_shape(DRAFT)
    plan = make_plan(shape, options, 2**40, base=200_000_000, draft=draft)
    found = list(cures(shape, options, plan, draft))
    assert found[0].flags == "(no draft model)"
    assert found[0].plan.draft is None
    assert all(cure.plan.draft is None for cure in found)


def test_shorter_contexts_are_said_to_fit_without_the_draft() -> None:
    shape, draft = read_shape(DEMO), read_shape(DRAFT)
    shape = replace(shape, decoder=replace(shape.decoder, max_model_len=10**9))
    options = EngineOptions(model=DEMO)
    plan = make_plan(shape, options, 20 * 10**9, draft=draft)
    found = [cure.flags for cure in cures(shape, options, plan, draft)]
    assert found == ["(no draft model) --max-model-len 2048"]


def test_the_table_has_all_of_it() -> None:
    plan = planned()
    assert plan.draft is not None
    of_draft = plan.draft.weights_bytes + plan.draft.cache_bytes + plan.draft.workspace
    rest = replace(plan, draft=None)
    assert plan.total_bytes == rest.total_bytes + of_draft
    assert plan.loaded_bytes == rest.loaded_bytes + plan.draft.weights_bytes
    lines = "\n".join(memory_table(plan))
    assert "draft's weights, bfloat16" in lines or "draft's weights, float32" in lines
