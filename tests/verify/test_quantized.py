"""Quantized models: right ones pass, mistakes in weights or kernels are found where they are."""

from __future__ import annotations

import json
import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch

from inferno import ops
from inferno.demo import MODEL_FOLDERS
from inferno.errors import InvalidRequest
from inferno.model_files import FolderFiles
from inferno.ops import PackedWeight
from inferno.quantization import FORMATS, FP8_DYNAMIC, INT8, InputRounding, WeightFormat
from inferno.text.tokenizer import load_tokenizer
from inferno.verify.checks.quality import precision_row
from inferno.verify.checks.quantized import (
    far_off,
    num_coarse_groups,
    rounding_beside,
    steps_of,
    values_of,
)
from inferno.verify.outcome import Row
from tests.data import data_path
from tests.tiny import expected_logits, save_tiny_model
from tests.verify.faults import in_layers, in_model, set_on, wrong_theta
from tests.verify.faults_quantized import (
    coarse_inputs,
    dropped_group,
    in_kernel,
    in_weight,
    narrow_head,
    one_swapped_byte,
    quantized_router,
    swapped_groups,
    swapped_nibbles,
    unsigned,
    wrong_scale,
)
from tests.verify.faults_stream import without_layer
from tests.verify.planted import Fault, Folders, check
from tests.verify.random_models import draw_model
from tests.verify.tiny_models import verified

pytestmark = pytest.mark.skipif(
    not ops.has_kernels(torch.device("cpu"), INT8), reason="no compiled kernels run here"
)

KINDS = ["int8", "int4"]
MODELS = [
    "llama",
    "llama, tied, biases",
    "mistral",
    "qwen3",
    "qwen3_moe",
    "mixtral",
    "gpt_oss",
    "gpt_oss, mxfp4",
]


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INFERNO_HOME", str(tmp_path / "home"))


@pytest.mark.parametrize("quantize", KINDS)
@pytest.mark.parametrize("model", MODELS)
def test_a_right_model_passes(folders: Folders, model: str, quantize: str) -> None:
    report = verified(folders[model], quantize=quantize)
    assert report.passed, report.verdict
    assert f"with {quantize} weights" in report.subject
    assert f"over the weights as {quantize} holds them" in report.oracle


@pytest.mark.parametrize("quantize", KINDS)
@pytest.mark.parametrize("model", ["llama", "gpt_oss, mxfp4"])
def test_a_right_model_passes_in_bfloat16(folders: Folders, model: str, quantize: str) -> None:
    report = verified(folders[model], quantize=quantize, dtype="bfloat16")
    assert report.passed, report.verdict


@pytest.mark.parametrize("quantize", KINDS)
def test_real_models_pass(quantize: str) -> None:
    for folder in (MODEL_FOLDERS["demo"], data_path("stories260K")):
        report = verified(folder, quantize=quantize, dtype="auto")
        assert report.passed, report.verdict


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1000, 1016))
def test_a_random_model_that_is_right_passes(tmp_path: Path, seed: int) -> None:
    model = draw_model(seed)
    dtype = "auto" if model.dtype == "float16" else model.dtype  # which kernels don't quantize
    quantize = KINDS[seed // 8 % 2]  # two seeds of each family, one for each kind
    report = verified(model.save(tmp_path), quantize=quantize, dtype=dtype, invariance=1)
    assert report.passed, (model, report.verdict)


@pytest.mark.parametrize("against", ["transformers", "cpu"])
def test_a_right_model_passes_against_others(folders: Folders, against: str) -> None:
    report = verified(folders["llama"], quantize="int4", against=against)
    assert report.passed, report.verdict
    assert not any(row.number == "P" for row in report.rows)


@pytest.mark.parametrize("saved", ["none", "int8"])
def test_a_saved_run_serves_too(folders: Folders, tmp_path: Path, saved: str) -> None:
    path = tmp_path / "saved.safetensors"
    verified(folders["llama"], quantize=saved, save=path)
    assert verified(folders["llama"], quantize="int8", against=str(path)).passed


def test_a_run_that_was_quantized_otherwise_does_not_serve(
    folders: Folders, tmp_path: Path
) -> None:
    path = tmp_path / "saved.safetensors"
    verified(folders["llama"], quantize="int8", save=path)
    with pytest.raises(InvalidRequest, match="saved with --quantize int8"):
        verified(folders["llama"], quantize="int4", against=str(path))


FAULTS: dict[str, Fault] = {
    "a wrong scale": Fault(
        "llama",
        in_model(in_weight("model.layers.1.mlp.down_proj", wrong_scale)),
        "0",
        None,
        "layers.1.mlp.down_proj.weight in memory is not what its file holds",
    ),
    "two values exchanged": Fault(
        "llama",
        in_model(in_weight("model.layers.2.self_attn.o_proj", one_swapped_byte)),
        "0",
        None,
        "layers.2.self_attn.o_proj.weight",
    ),
    "a dropped group": Fault(
        "llama",
        in_model(in_weight("model.layers.0.self_attn.qkv_proj", dropped_group)),
        "0",
        None,
        "layers.0.self_attn.q_proj.weight",
    ),
    "a dropped group of the head": Fault(
        "llama",
        in_model(in_weight("lm_head", dropped_group)),
        "0",
        None,
        "lm_head.weight",
    ),
    "a quantized router": Fault("mixtral", quantized_router, "0", None, "gate.weight"),
    "a head in int4": Fault(
        "llama",
        narrow_head,
        "0",
        None,
        "model.embed_tokens.weight in memory is",
    ),
    "a kernel that exchanges values": Fault("llama", in_kernel(swapped_nibbles), "2", 0, "of q is"),
    "a kernel that drops a group": Fault("llama", in_kernel(dropped_group), "2", 0, "of q is"),
    "a kernel that takes another group's scale": Fault(
        "llama", in_kernel(swapped_groups), "2", 0, "of q is"
    ),
    "a kernel that takes scales to be positive": Fault(
        "llama", in_kernel(unsigned), "2", 0, "of q is"
    ),
    "a kernel that drops the last group of long rows": Fault(
        "llama", in_kernel(dropped_group, num_inputs=80), "6", 0, "FFN's output"
    ),
    "a kernel with one wrong scale": Fault(
        "llama", in_kernel(wrong_scale, num_inputs=80), "6", 0, "FFN's output"
    ),
    "inputs rounded too coarsely": Fault("llama", coarse_inputs, "2", 0, "of q is"),
    "wrong theta": Fault(
        "llama", in_model(wrong_theta), "1B", 0, "theta is 1e+06 instead of 10000"
    ),
    "wrong eps": Fault(
        "llama",
        in_layers(set_on("input_layernorm.eps", 1e-6)),
        "1",
        0,
        "eps differs: it is 1e-06 instead of 1e-05",
    ),
    "bias dropped": Fault(
        "qwen2", in_layers(set_on("self_attn.qkv_proj.bias", None)), "2", 0, "bias is left out"
    ),
    "wrong scale of attention": Fault(
        "llama", in_layers(set_on("self_attn.scale", 1 / 12)), "4", 0, "the scale is 1/D"
    ),
    "experts' weights made to sum to one": Fault(
        "qwen3_moe",
        in_model(lambda m: set_on("renormalize", True)(m.model.layers[0].mlp)),
        "6",
        0,
        "made to sum to one",
    ),
    "a layer left out": Fault(
        "llama, five layers", without_layer(2), "1", 2, "the model never ran layer 2"
    ),
    "the head ignored": Fault(
        "llama", in_model(set_on("lm_head", None)), "8", None, "serves as head"
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_is_found_and_named(
    folders: Folders, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    check(folders, monkeypatch, FAULTS[fault], quantize="int4")


@pytest.mark.parametrize(
    "fault", ["a wrong scale", "a kernel that drops a group", "wrong theta", "wrong eps"]
)
def test_int8_hides_no_fault_either(
    folders: Folders, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    check(folders, monkeypatch, FAULTS[fault], quantize="int8")


@pytest.mark.parametrize("kind", KINDS)
def test_a_scale_twice_as_large_as_it_has_to_be_is_told(kind: str) -> None:
    values = torch.randn(32, 70, generator=torch.Generator().manual_seed(0))
    weight = cast(PackedWeight, ops.pack(values, FORMATS[kind]))
    found, steps = weight.unpack(torch.float32), weight.steps()
    assert steps is not None
    assert not far_off(found, values, steps, kind).any()
    assert num_coarse_groups(found, steps, kind) == 0
    found[5, 64:] = (values[5, 64:] / (2 * steps[5, 64:])).round() * 2 * steps[5, 64:]
    steps[5, 64:] *= 2
    assert not far_off(found, values, steps, kind).any()
    assert num_coarse_groups(found, steps, kind) == 1


def test_the_error_against_float32_is_at_most_twice_that_of_plain_maths() -> None:
    generator = torch.Generator().manual_seed(0)
    names = ("0.residual", "hidden", "logits")
    original = {name: torch.randn(9, 50, generator=generator) for name in names}
    noise = {name: torch.randn(9, 50, generator=generator) for name in names}

    def row(times: float) -> Row:
        found = {name: original[name] + times * noise[name] for name in names}
        rounded = {name: original[name] + noise[name] for name in names}
        return precision_row(found, rounded, original, 1)

    assert row(1.9).passed
    assert not row(2.1).passed


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any]:
    folder = tmp_path_factory.mktemp("model")
    return folder, save_tiny_model(folder)


def test_quality_is_compared_with_the_model_as_it_was(
    model: tuple[Path, Any], tmp_path: Path
) -> None:
    folder, oracle = model
    text = tmp_path / "text.txt"
    text.write_text("The sun is up. A little dog runs to the river, and it is happy.")
    ids = load_tokenizer(FolderFiles(folder)).encode(text.read_text())
    loss = torch.nn.functional.cross_entropy(
        expected_logits(oracle, ids)[:-1], torch.tensor(ids[1:])
    )
    report = verified(folder, quantize="int4", quality=text, threshold=1e-3)
    [row] = [row for row in report.rows if row.number == "Q"]
    assert f"the oracle's {math.exp(float(loss)):.2f}" in json.dumps(row.findings)
    assert row.measures[0].mean_error > 1e-3
    assert not row.passed


class Far(torch.Tensor):
    """A tensor of another device, with which the CPU can't compute."""

    def cpu(self, *_: Any, **__: Any) -> torch.Tensor:
        return self.as_subclass(torch.Tensor)


def test_weights_of_a_gpu_are_compared_on_the_cpu() -> None:
    far = torch.ones(2, 3).as_subclass(Far)
    weight: Any = SimpleNamespace(shape=far.shape, unpack=lambda _: far, steps=lambda: far)
    for found in (values_of(weight, torch.float32), steps_of(weight)):
        assert type(found) is torch.Tensor


@pytest.mark.parametrize("format", [INT8, FP8_DYNAMIC], ids=str)
def test_a_gpu_rounds_what_meets_weights_to_fp8_alone(format: WeightFormat) -> None:
    assert rounding_beside(format, torch.device("cpu")) is format.inputs
    on_gpu = InputRounding.NOTHING if format == INT8 else InputRounding.TO_FP8
    assert rounding_beside(format, torch.device("cuda:1")) is on_gpu
