"""Devices and dtypes: what is asked for is honoured or refused."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from inferno import compiled_kernels
from inferno.compiled_kernels import why_not
from inferno.engine.execution import device
from inferno.errors import ConfigError, DeviceUnavailable, InvalidRequest
from inferno.options import EngineOptions

CPU = torch.device("cpu")


def test_a_named_dtype_is_taken() -> None:
    assert device.choose_dtype("bfloat16", {"torch_dtype": "float32"}, CPU) is torch.bfloat16


@pytest.mark.parametrize("key", ["dtype", "torch_dtype"])
def test_auto_is_the_checkpoints_dtype(monkeypatch: pytest.MonkeyPatch, key: str) -> None:
    monkeypatch.setattr(device, "computes_bfloat16", lambda: True)
    assert device.choose_dtype("auto", {key: "bfloat16"}, CPU) is torch.bfloat16
    assert device.choose_dtype("auto", {key: "float32"}, CPU) is torch.float32
    assert device.choose_dtype("auto", {key: "float16"}, torch.device("cuda")) is torch.float16


def test_auto_is_float32_where_the_cpu_has_no_16_bit_products(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(device, "computes_bfloat16", lambda: False)
    assert device.choose_dtype("auto", {"dtype": "bfloat16"}, CPU) is torch.float32
    assert device.choose_dtype("auto", {"dtype": "float16"}, CPU) is torch.float32


@pytest.mark.parametrize(
    ("multiplies", "kernels", "computes"),
    [(True, False, True), (False, True, True), (False, False, False)],
)
def test_kernels_compute_in_bfloat16_on_any_cpu(
    monkeypatch: pytest.MonkeyPatch, multiplies: bool, kernels: bool, computes: bool
) -> None:
    """It was float32 on CPUs without instructions for it: twice the memory, and slower."""
    monkeypatch.setattr(compiled_kernels, "has_bfloat16", lambda: multiplies)
    monkeypatch.setattr(compiled_kernels, "why_not", lambda: None if kernels else "switched off")
    assert compiled_kernels.computes_bfloat16() is computes


@pytest.mark.parametrize(("has_bfloat16", "kept"), [(True, "bfloat16"), (False, "float16")])
def test_quantized_models_keep_keys_in_what_the_cpu_multiplies(
    monkeypatch: pytest.MonkeyPatch, has_bfloat16: bool, kept: str
) -> None:
    monkeypatch.setattr(device, "has_bfloat16", lambda: has_bfloat16)
    for quantize, dtype in (("none", torch.float32), ("int8", getattr(torch, kept))):
        options = EngineOptions(model=Path("model"), quantize=quantize)
        assert device.choose_kv_dtype(options, {}, torch.float32, CPU) is dtype
    options = EngineOptions(model=Path("model"))
    stored = {"quantization_config": {"quant_method": "gguf"}}
    found = device.choose_kv_dtype(options, stored, torch.float32, CPU)
    assert found is getattr(torch, kept), "a checkpoint's own codes count as well"
    in_fp8 = {"quantization_config": {"quant_method": "fp8"}}
    found = device.choose_kv_dtype(options, in_fp8, torch.float32, CPU)
    assert found is torch.float32, "a CPU makes floats of these"
    named = EngineOptions(model=Path("model"), quantize="int4", kv_dtype="float32")
    assert device.choose_kv_dtype(named, {}, torch.float32, CPU) is torch.float32


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("quantize", ["none", "int8", "fp8"])
def test_a_gpu_keeps_keys_in_what_its_kernels_take(dtype: torch.dtype, quantize: str) -> None:
    """Float16 models, quantized, had keys in bfloat16, which PyTorch's attention took."""
    paged_attention = pytest.importorskip("inferno.ops.cuda.paged_attention")
    options = EngineOptions(model=Path("model"), quantize=quantize)
    kept = device.choose_kv_dtype(options, {}, dtype, torch.device("cuda"))
    assert kept in paged_attention.CACHED[dtype]
    assert kept is (
        torch.bfloat16 if (dtype, quantize != "none") == (torch.float32, True) else dtype
    )


@pytest.mark.skipif(why_not() is not None, reason="no compiled kernels here")
def test_keys_in_int8_are_refused_beside_activations_that_no_kernel_takes() -> None:
    options = EngineOptions(model=Path("model"), kv_dtype="int8")
    with pytest.raises(InvalidRequest, match=r"goes with dtype float32 or bfloat16, not float16"):
        device.choose_kv_dtype(options, {}, torch.float16, CPU)
    for dtype in (torch.float32, torch.bfloat16):
        assert device.choose_kv_dtype(options, {}, dtype, CPU) is torch.int8


@pytest.mark.parametrize(
    ("where", "attention"),
    [("cpu", "auto"), ("mps", "auto"), ("cuda", "reference"), ("cuda", "flash")],
)
def test_keys_in_fp8_are_refused_where_no_kernel_reads_them(where: str, attention: str) -> None:
    options = EngineOptions(model=Path("model"), kv_dtype="fp8", attention=attention)
    with pytest.raises(InvalidRequest) as caught:
        device.choose_kv_dtype(options, {}, torch.bfloat16, torch.device(where))
    assert caught.value.param == "kv_dtype"
    assert f"on {where} with --attention {attention}; leave --kv-dtype out" in str(caught.value)


@pytest.mark.parametrize("quantize", ["none", "int8", "fp8"])
def test_keys_in_fp8_are_for_whatever_a_gpu_computes_in(quantize: str) -> None:
    paged_attention = pytest.importorskip("inferno.ops.cuda.paged_attention")
    options = EngineOptions(model=Path("model"), quantize=quantize, kv_dtype="fp8")
    for dtype, cached in paged_attention.CACHED.items():
        kept = device.choose_kv_dtype(options, {}, dtype, torch.device("cuda"))
        assert kept is torch.float8_e4m3fn
        assert kept in cached


@pytest.mark.parametrize("declared", ["int8", 3, ["float32"], "torch.float32"])
def test_a_strange_declared_dtype_is_refused(declared: object) -> None:
    with pytest.raises(ConfigError, match="--dtype"):
        device.choose_dtype("auto", {"dtype": declared}, CPU)


def test_metal_is_refused_where_it_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    with pytest.raises(DeviceUnavailable, match=r"mps was asked for, .*: use --device cpu\.$"):
        device.find_device("mps")
