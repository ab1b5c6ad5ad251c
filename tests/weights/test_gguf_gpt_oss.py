"""gpt-oss in GGUF: the same model as in safetensors, and of `transformers`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch
from gguf.quants import dequantize
from torch import Tensor

from inferno import LLM, SamplingParams, ops
from inferno.engine.build import build_engine
from inferno.engine.engine import Engine
from inferno.errors import ConfigError, WeightsMismatch
from inferno.ops import matrices
from inferno.ops.cpu.panels import PanelExperts
from inferno.options import EngineOptions
from inferno.quantization import INT8, MXFP4
from tests.engine.local import executor_of
from tests.gguf.convert import gguf_tensors, gpt_oss_blocks, rewrite, write_gguf
from tests.models.test_against_transformers import GPT_OSS, TOLERANCE
from tests.mxfp4 import save_tiny_mxfp4
from tests.tiny import expected_logits, save_tiny
from tests.weights.test_gguf import IDS, logits

needs_kernels = pytest.mark.skipif(
    not ops.has_kernels(torch.device("cpu"), INT8), reason="no kernels here"
)
# The limit of the activation is in no GGUF file; with weights this large it clamps.
CONFIG = {**GPT_OSS, "swiglu_limit": 7.0}


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Path, Path]:
    """Write a model with packed experts: that of transformers, its folder, its GGUF file."""
    folder = tmp_path_factory.mktemp("gpt_oss")
    model = save_tiny_mxfp4(folder / "hf", **CONFIG)
    blocks = gpt_oss_blocks(folder / "hf" / "model.safetensors")
    for name, rows in blocks.items():  # the library reads what was written
        due = dict(gguf_tensors(model))[name]
        assert np.array_equal(dequantize(rows, gguf.GGMLQuantizationType.MXFP4), due), name
    return model, folder / "hf", write_gguf(folder / "model.gguf", model, mxfp4=blocks)


VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    "as published": ("gpt_oss", {}),
    "no biases": ("gpt_oss", {"attention_bias": False}),
    "all experts, six heads": ("gpt_oss", {"num_experts_per_tok": 6, "num_attention_heads": 6}),
}


@pytest.mark.parametrize("name", VARIANTS)
def test_logits_are_those_of_transformers(name: str, tmp_path: Path) -> None:
    kind, config = VARIANTS[name]
    model = save_tiny(tmp_path / "hf", kind, **{**CONFIG, **config})
    path = write_gguf(tmp_path / "model.gguf", model)
    found, due = logits(path, IDS), expected_logits(model, IDS)
    assert (found - due).abs().max() <= TOLERANCE * due.abs().max()
    assert torch.equal(found, logits(tmp_path / "hf", IDS))


@needs_kernels
def test_packed_experts_are_those_of_the_checkpoint_bit_for_bit(
    packed: tuple[Any, Path, Path],
) -> None:
    _, folder, path = packed
    engines = [engine_of(one) for one in (folder, path)]
    ours, theirs = (dict(packed_experts(engine)) for engine in engines)
    assert len(ours) == 2 * 3  # both products of each layer
    assert ours.keys() == theirs.keys()
    for name in ours:
        for one, other in zip(ours[name], theirs[name], strict=True):
            assert one.format is other.format is MXFP4
            assert torch.equal(one.codes, other.codes)
            assert torch.equal(one.scales, other.scales)
    assert torch.equal(engines[1].logits(IDS), engines[0].logits(IDS))


@pytest.mark.usefixtures("reference_kernels")
def test_packed_experts_are_exact_without_kernels(packed: tuple[Any, Path, Path]) -> None:
    model, folder, path = packed
    found, due = logits(path, IDS), expected_logits(model, IDS)
    assert (found - due).abs().max() <= TOLERANCE * due.abs().max()
    assert torch.equal(found, logits(folder, IDS))


@pytest.mark.usefixtures("reference_kernels")
def test_its_greedy_text_is_that_of_transformers(packed: tuple[Any, Path, Path]) -> None:
    model, _, path = packed
    prompt = IDS[:12]
    with torch.inference_mode():
        ids = model.generate(
            torch.tensor([prompt]), do_sample=False, max_new_tokens=30, eos_token_id=None
        )
    params = SamplingParams(temperature=0.0, max_tokens=30, ignore_eos=True)
    with LLM(path, threads=1, dtype="float32", num_blocks=32) as llm:
        [completion] = llm.generate([prompt], params)
    assert list(completion.token_ids) == ids[0, len(prompt) :].tolist()


@needs_kernels
@pytest.mark.parametrize(
    "types",
    [
        {"_exps": "Q8_0"},
        {"_exps": "Q5_0"},
        {"gate_exps": "Q8_0", "up_exps": "Q5_0", "down_exps": "MXFP4"},
        {"gate_exps": "MXFP4", "down_exps": "MXFP4"},
    ],
    ids=str,
)
def test_experts_of_other_types_have_the_librarys_values(
    types: dict[str, str], tmp_path: Path
) -> None:
    sizes = {"hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2}
    model = save_tiny(tmp_path / "hf", "gpt_oss", **{**CONFIG, **sizes})
    path = write_gguf(tmp_path / "model.gguf", model, types=types)
    found = dict(packed_experts(engine_of(path)))
    stem = "model.layers.1.mlp.experts."
    gate, up = (model.get_parameter(f"{stem}gate_up_proj")[3].T[half::2] for half in (0, 1))
    down = model.get_parameter(f"{stem}down_proj")[3].T
    parts = [
        quantized(part, next((types[key] for key in types if key in f"{name}_exps"), "F32"))
        for name, part in (("gate", gate), ("up", up), ("down", down))
    ]
    due = {"gate_up_proj": torch.cat(parts[:2]), "down_proj": parts[2]}
    for name, values in due.items():
        assert torch.equal(found[f"{stem}{name}"][3].unpack(torch.float32), values), name


def quantized(values: Tensor, type_name: str) -> Tensor:
    """Return the values that the format's library gives them in a type."""
    block_type = gguf.GGMLQuantizationType[type_name]
    rows = np.ascontiguousarray(values.detach().numpy())
    return torch.from_numpy(dequantize(gguf.quants.quantize(rows, block_type), block_type))


@pytest.mark.parametrize("pattern", [2, 3, [True, False, False], [False, True, True]])
def test_the_pattern_of_windows_is_that_of_the_file(pattern: Any, tmp_path: Path) -> None:
    flags = pattern
    if isinstance(pattern, int):  # the last of so many sees all tokens
        flags = [(layer + 1) % pattern != 0 for layer in range(3)]
    kinds = ["sliding_attention" if flag else "full_attention" for flag in flags]
    model = save_tiny(tmp_path / "hf", "gpt_oss", **CONFIG, layer_types=kinds)
    path = write_gguf(tmp_path / "model.gguf", model)
    rewrite(path, {"gpt-oss.attention.sliding_window_pattern": pattern})
    found, due = logits(path, IDS), expected_logits(model, IDS)
    assert (found - due).abs().max() <= TOLERANCE * due.abs().max()


def test_the_ramp_of_yarn_is_that_of_the_file(tmp_path: Path) -> None:
    rope = {**CONFIG["rope_parameters"], "beta_fast": 16.0, "beta_slow": 2.0}
    model = save_tiny(tmp_path / "hf", "gpt_oss", **{**CONFIG, "rope_parameters": rope})
    path = write_gguf(tmp_path / "model.gguf", model)
    due = expected_logits(model, IDS)
    assert (logits(path, IDS) - due).abs().max() > 100 * TOLERANCE * due.abs().max()
    prefix = "gpt-oss.rope.scaling.yarn_"
    rewrite(path, {f"{prefix}beta_fast": 16.0, f"{prefix}beta_slow": 2.0})
    assert (logits(path, IDS) - due).abs().max() <= TOLERANCE * due.abs().max()


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("rope.scaling.type", None, "rope.scaling.type is 'linear', expected yarn"),
        ("rope.scaling.type", "linear", "rope.scaling.type is 'linear', expected yarn"),
        ("rope.scaling.yarn_ext_factor", 0.5, "yarn_ext_factor is 0.5, expected 1 or -1"),
        ("rope.scaling.attn_factor", -0.5, "attention_factor must be a finite number above 0"),
        ("rope.freq_base_swa", 1e4, "freq_base_swa is 10000, expected 50000"),
        ("attention.sliding_window_pattern", [True], "layer_types must name"),
        ("attention.sliding_window_pattern", "two", "an integer of at least 1, or truth values"),
        ("attention.sliding_window", None, "lacks gpt-oss.attention.sliding_window"),
        ("expert_count", None, "lacks gpt-oss.expert_count"),
        ("expert_weights_scale", 2.0, "expert_weights_scale"),
        ("swiglu_clamp_exp", 5.0, "swiglu_clamp_exp"),
    ],
)
def test_metadata_that_changes_the_maths_is_refused(
    key: str, value: Any, words: str, packed: tuple[Any, Path, Path], tmp_path: Path
) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(packed[2].read_bytes())
    rewrite(path, {f"gpt-oss.{key}": value})
    with pytest.raises(ConfigError, match=words):
        build_engine(EngineOptions(model=path, device="cpu"))


def test_a_tensor_of_another_architecture_is_named(tmp_path: Path) -> None:
    model = save_tiny(tmp_path / "hf", "gpt_oss", **CONFIG)
    path = write_gguf(tmp_path / "model.gguf", model)
    content = path.read_bytes()
    path.write_bytes(content.replace(b"blk.1.post_attention_norm", b"blk.1.not_attention_norm_"))
    with pytest.raises(WeightsMismatch, match=r"blk\.1\.not_attention_norm_"):
        build_engine(EngineOptions(model=path, device="cpu"))


def engine_of(path: Path) -> Engine:
    options = EngineOptions(model=path, device="cpu", dtype="float32", threads=1, num_blocks=32)
    return build_engine(options)


def packed_experts(engine: Engine) -> Iterator[tuple[str, list[Any]]]:
    """Yield the weights of each product of experts, by the product's name."""
    for name, module in executor_of(engine)._runner._model.named_modules():
        if isinstance(vars(module).get("weight"), PanelExperts):
            yield name, matrices(vars(module)["weight"])
