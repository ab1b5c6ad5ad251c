"""A mistake in any product of any layer is found, in that layer, and the product is named."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from inferno import ops
from inferno.config.families import read_model_config
from inferno.engine.build import read_hf_config
from inferno.engine.execution.loading import load_model
from inferno.options import EngineOptions
from inferno.quantization import INT8
from inferno.verify.case import choose_prompt, open_case
from inferno.verify.checks.products import product_measures
from inferno.verify.options import VerifyOptions
from inferno.verify.outcome import Report
from inferno.verify.run import product_check
from inferno.verify.runs.engine_run import observe
from inferno.verify.runs.observer import ProductCalls
from tests.mxfp4 import save_tiny_mxfp4
from tests.verify.faults_products import Harmless, Target, faults_of, plant, targets
from tests.verify.planted import Folders
from tests.verify.tiny_models import GPT_OSS, verified

native = pytest.importorskip("inferno._native")

pytestmark = pytest.mark.skipif(
    not ops.has_kernels(torch.device("cpu"), INT8), reason="no compiled kernels run here"
)

LLAMA, MXFP4, MIXTRAL = "llama, tied, biases", "gpt_oss, mxfp4", "mixtral"
# Once the mistakes of later layers were lost in what earlier ones had rounded.
FAULTS = [
    ("int4", "o_proj", "one scale x2"),
    ("int4", "down_proj", "all scales x1.25"),
    ("int4", "k_proj", "one scale x1.25"),
    ("int4", "gate_proj", "halves of bytes exchanged"),
    ("int4", "o_proj", "no bias"),
    ("int4", "embed_tokens", "a zeroed panel"),
    ("int8", "down_proj", "one scale x1.25"),
    ("int8", "v_proj", "one row x1.25"),
    ("int8", "o_proj", "two columns exchanged"),
    ("int8", "up_proj", "two rows exchanged"),
]
FAULTS_BESIDE_EXPERTS = [
    ("down_proj", "one scale x2"),
    ("gate_up_proj", "two experts exchanged"),
    ("down_proj", "no bias"),
    ("router", "one row x1.25"),
    ("lm_head", "a dropped group"),
]
SWEEPS = [
    (model, quantize, dtype, place)
    for model, quantize in (
        (LLAMA, "int8"),
        (LLAMA, "int4"),
        (MXFP4, "none"),
        (MXFP4, "int4"),
        (MIXTRAL, "int8"),
    )
    for dtype in ("float32", "bfloat16")
    for place in ("memory", "kernel")
]


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INFERNO_HOME", str(tmp_path / "home"))


def targets_of(folder: Path, quantize: str) -> list[Target]:
    hf_config, options = read_hf_config(folder), EngineOptions(model=folder, quantize=quantize)
    config, device = read_model_config(hf_config), torch.device("cpu")
    return targets(load_model(options, hf_config, config, device, torch.float32, None))


def target_of(folder: Path, quantize: str, name: str, layer: int) -> Target:
    found = [one for one in targets_of(folder, quantize) if one.name == name]
    return next(one for one in found if one.layer in (None, layer))


def is_named(report: Report, target: Target) -> bool:
    """Whether the verdict has the right product, and the right layer if there is one."""
    failed = report.first_failure
    if failed is None or target.name not in report.verdict:
        return False
    is_of_file = failed.number == "0" and f"layers.{target.layer}." in report.verdict
    return target.layer is None or is_of_file or failed.layer == target.layer


@pytest.mark.parametrize(("quantize", "name", "fault"), FAULTS)
def test_a_kernel_that_misreads_one_weight_is_found(
    folders: Folders, monkeypatch: pytest.MonkeyPatch, quantize: str, name: str, fault: str
) -> None:
    target = target_of(folders[LLAMA], quantize, name, layer=2)
    plant(monkeypatch, target, fault, in_kernel=True)
    report = verified(folders[LLAMA], quantize=quantize)
    assert is_named(report, target), report.verdict


@pytest.mark.parametrize(("name", "fault"), FAULTS_BESIDE_EXPERTS)
def test_a_kernel_that_misreads_one_weight_of_a_layer_that_nobody_looks_into_is_found(
    folders: Folders, monkeypatch: pytest.MonkeyPatch, name: str, fault: str
) -> None:
    target = target_of(folders[MXFP4], "none", name, layer=1)
    plant(monkeypatch, target, fault, in_kernel=True)
    report = verified(folders[MXFP4], layers=(0,))
    assert is_named(report, target), report.verdict


def test_an_expert_that_no_token_chose_is_tried_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = {**GPT_OSS, "num_local_experts": 32, "num_experts_per_tok": 1}
    save_tiny_mxfp4(tmp_path, **config)
    sizes = read_model_config(read_hf_config(tmp_path))
    prompt = choose_prompt(None, None, windows=[9], vocab_size=sizes.vocab_size, max_model_len=256)
    options = EngineOptions(model=tmp_path, dtype="float32")
    taps = observe(options, prompt.token_ids, 16, ()).taps
    idle = int((taps["1.experts"] == 0).all(0).nonzero()[0])
    target = replace(target_of(tmp_path, "none", "down_proj", 1), expert=idle)
    plant(monkeypatch, target, "all scales x0.5", in_kernel=True)
    report = verified(tmp_path)
    assert is_named(report, target), report.verdict
    assert f"of expert {idle} " in report.verdict


def test_an_expert_of_a_small_share_is_judged_by_itself(
    folders: Folders, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One token chose it, and what it gives is less than the sum's rounding to bfloat16."""
    folder, where = folders[MIXTRAL], "model.layers.1.mlp.experts"
    target = replace(target_of(folder, "int8", "down_proj", 1), expert=4)
    plant(monkeypatch, target, "one scale negated", in_kernel=True)
    options = VerifyOptions(model=folder, quantize="int8", dtype="bfloat16", threads=1)
    with open_case(options, lambda _: None) as case:
        observed = observe(case.engine, range(40), 1, ())
        calls: ProductCalls = observed.products[where]
        experts: Any = observed.model.get_submodule(where)
        x, shares = torch.cat(calls.inputs), torch.tensor([[0.6, 0.4]]).repeat(40, 1)
        chosen = torch.tensor([[0, 1], [2, 3]]).repeat(20, 1)
        chosen[0], shares[0] = torch.tensor([0, 4]), torch.tensor([0.9999, 0.0001])
        given = (chosen, shares, experts.gate_up_proj.weight, experts.down_proj.weight)
        calls.inputs, calls.experts, calls.shares = [x], [chosen], [shares]
        calls.outputs = [ops.experts(x, *given, activation=calls.activation)]
        check = product_check(case, observed)
        found = product_measures(check, {where: calls}, lambda _: None)[where]
    wrong = [one.problem for one in found if not one.passed]
    assert wrong
    assert all("down_proj of expert 4 " in problem for problem in wrong)


@pytest.mark.parametrize("level", native.isas())
@pytest.mark.parametrize(
    ("model", "quantize", "dtype"),
    [(LLAMA, "int8", "float32"), (MXFP4, "int4", "float32"), (MIXTRAL, "int4", "bfloat16")],
)
def test_right_products_pass_at_every_level_of_instructions(
    folders: Folders, level: str, model: str, quantize: str, dtype: str
) -> None:
    before = native.isa()
    native.set_isa(level)
    try:
        report = verified(folders[model], quantize=quantize, dtype=dtype)
    finally:
        native.set_isa(before)
    assert report.passed, report.verdict
    assert sum(len(row.products) for row in report.rows) > 10


@pytest.mark.skipif(
    "INFERNO_FULL_SWEEP" not in os.environ,
    reason="each takes many minutes; set INFERNO_FULL_SWEEP=1",
)
@pytest.mark.slow
@pytest.mark.parametrize(("model", "quantize", "dtype", "place"), SWEEPS)
def test_of_all_mistakes_in_all_products_nineteen_of_twenty_are_found(
    folders: Folders, model: str, quantize: str, dtype: str, place: str
) -> None:
    missed, num_planted = sweep(folders[model], quantize, dtype, in_kernel=place == "kernel")
    assert num_planted > 100
    assert len(missed) <= num_planted / 20, missed


def sweep(folder: Path, quantize: str, dtype: str, *, in_kernel: bool) -> tuple[Sequence[str], int]:
    """What was missed, and how many were planted."""
    missed, num_planted = [], 0
    for target in targets_of(folder, quantize):
        for fault in faults_of(target):
            with pytest.MonkeyPatch.context() as patch:
                plant(patch, target, fault, in_kernel=in_kernel)
                try:
                    report = verified(folder, quantize=quantize, dtype=dtype)
                except Harmless:
                    continue
            num_planted += 1
            if not is_named(report, target):
                missed.append(f"{fault} in {target.path}, {target.name}: {report.verdict}")
    return missed, num_planted
