"""Write a model of `transformers` as GGUF, by the names and the writer of the format's library."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch
from gguf.quants import dequantize, quantize
from safetensors.torch import load_file

_PERMUTED = ("llama", "mixtral")  # whose heads' rows are rotary pairs
_ARCHITECTURES = {
    "llama": gguf.MODEL_ARCH.LLAMA,
    "qwen2": gguf.MODEL_ARCH.QWEN2,
    "qwen3": gguf.MODEL_ARCH.QWEN3,
    "qwen3_moe": gguf.MODEL_ARCH.QWEN3MOE,
    "mixtral": gguf.MODEL_ARCH.LLAMA,
    "gpt_oss": gguf.MODEL_ARCH.GPT_OSS,
}


def write_gguf(
    path: Path,
    model: Any,
    *,
    type_name: str = "F32",
    types: Mapping[str, str] | None = None,
    mxfp4: Mapping[str, np.ndarray[Any, Any]] | None = None,
    vocab: bool = True,
    blocks: Mapping[str, str] | None = None,
    are_experts_apart: bool = False,
) -> Path:
    """Write the file; matrices become `type_name` where their rows are whole blocks.

    types   other types by parts of GGUF's names.
    mxfp4   blocks of tensors by GGUF's whole names.
    blocks  types by parts of GGUF's names: such matrices get random blocks, where their rows are
            whole ones of 256, and the model, which is of transformers, their values.
    are_experts_apart  each expert's products are tensors of their own, as in older files.
    """
    config = model.config
    arch = _ARCHITECTURES[config.model_type]
    writer = gguf.GGUFWriter(path, gguf.MODEL_ARCH_NAMES[arch])
    _add_sizes(writer, config)
    if vocab:
        add_vocabulary(writer, config.vocab_size)
    factors = _rope_factors(config)
    if factors is not None:
        writer.add_tensor("rope_freqs.weight", factors)

    def add(name: str, content: np.ndarray[Any, Any], raw_dtype: Any = None) -> None:
        if are_experts_apart and "_exps." in name:
            for expert, one in enumerate(content):
                writer.add_tensor(name.replace("_exps.", f".{expert}."), one, raw_dtype=raw_dtype)
        else:
            writer.add_tensor(name, content, raw_dtype=raw_dtype)

    for name, hf_name, values in _named(model):
        other = next((one for part, one in (types or {}).items() if part in name), type_name)
        block_type = gguf.GGMLQuantizationType[other]
        is_matrix = values.ndim > 1 and name.endswith(".weight")
        is_coded = is_matrix and values.shape[-1] % gguf.GGML_QUANT_SIZES[block_type][0] == 0
        chosen = next((one for part, one in (blocks or {}).items() if part in name), None)
        if mxfp4 and name in mxfp4:
            add(name, mxfp4[name], raw_dtype=gguf.GGMLQuantizationType.MXFP4)
        elif chosen and is_matrix and values.shape[-1] % 256 == 0:
            add(name, *_random(chosen, model, hf_name))
        elif is_coded and block_type.name != "F32" and "ffn_gate_inp" not in name:
            add(name, quantize(values, block_type), raw_dtype=block_type)
        else:
            add(name, values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def gguf_tensors(model: Any) -> Iterator[tuple[str, np.ndarray[Any, Any]]]:
    """Yield the tensors that a file has of a model, by GGUF's names."""
    return ((name, values) for name, _, values in _named(model))


def _named(model: Any) -> Iterator[tuple[str, str, np.ndarray[Any, Any]]]:
    arch = _ARCHITECTURES[model.config.model_type]
    names = gguf.get_tensor_name_map(arch, model.config.num_hidden_layers)
    for hf_name, values in _tensors(model):
        stem, _, suffix = hf_name.rpartition(".")
        yield f"{names.get_name(stem)}.{suffix}", hf_name, values


def _random(type_name: str, model: Any, hf_name: str) -> tuple[np.ndarray[Any, Any], Any]:
    """Return random blocks and their type, whose values the model gets."""
    block_type = gguf.GGMLQuantizationType[type_name]
    parameter = _parameter(model, hf_name)
    *leading, num_values = parameter.shape
    raw = random_blocks(type_name, math.prod(leading), num_values, seed=len(hf_name))
    values = dequantize(raw, block_type)
    if model.config.model_type in _PERMUTED and (".q_proj." in hf_name or ".k_proj." in hf_name):
        pairs = values.reshape(-1, _head_dim(model.config) // 2, 2, num_values)
        values = pairs.swapaxes(1, 2)
    with torch.no_grad():
        parameter.copy_(torch.from_numpy(np.ascontiguousarray(values.reshape(parameter.shape))))
    return raw.reshape(*leading, -1), block_type


def _parameter(model: Any, hf_name: str) -> torch.Tensor:
    """Return the parameter of a tensor, or the part that it is of what all experts share."""
    stem, _, product = hf_name.removesuffix(".weight").rpartition(".experts.")
    if not stem:
        return torch.as_tensor(model.get_parameter(hf_name))
    if product == "down_proj":
        return torch.as_tensor(model.get_parameter(f"{stem}.experts.{product}"))
    gate, up = model.get_parameter(f"{stem}.experts.gate_up_proj").chunk(2, 1)
    return torch.as_tensor(gate if product == "gate_proj" else up)


def add_vocabulary(writer: gguf.GGUFWriter, size: int) -> None:
    """Add a SentencePiece vocabulary of three special tokens and as many texts as are left.

    A large one has all bytes too, without which llama.cpp can't encode every text.
    """
    num_bytes = 256 if size >= 300 else 0
    num_words = size - 3 - num_bytes
    bytes_ = [f"<0x{byte:02X}>" for byte in range(num_bytes)]
    tokens = ["<unk>", "<s>", "</s>", *bytes_, *(f"▁w{i}" for i in range(num_words))]
    writer.add_tokenizer_model("llama")
    writer.add_token_list(tokens)
    writer.add_token_scores([0.0] * (3 + num_bytes) + [-float(i) for i in range(num_words)])
    writer.add_token_types([2, 3, 3] + [6] * num_bytes + [1] * num_words)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)


def _add_sizes(writer: gguf.GGUFWriter, config: Any) -> None:
    writer.add_block_count(config.num_hidden_layers)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    head_dim = _head_dim(config)
    writer.add_key_length(head_dim)
    writer.add_value_length(head_dim)
    rope = config.rope_parameters
    writer.add_rope_freq_base(rope["rope_theta"])
    if config.model_type in _PERMUTED:
        writer.add_rope_dimension_count(head_dim)
        writer.add_vocab_size(config.vocab_size)
    if rope["rope_type"] in ("linear", "yarn"):
        writer.add_rope_scaling_type(gguf.RopeScalingType(rope["rope_type"]))
        writer.add_rope_scaling_factor(rope["factor"])
    if rope["rope_type"] == "yarn":
        writer.add_rope_scaling_orig_ctx_len(rope["original_max_position_embeddings"])
    if config.model_type == "qwen3_moe":
        writer.add_expert_count(config.num_experts)
        writer.add_expert_used_count(config.num_experts_per_tok)
        writer.add_expert_feed_forward_length(config.moe_intermediate_size)
    if config.model_type == "mixtral":
        writer.add_expert_count(config.num_local_experts)
        writer.add_expert_used_count(config.num_experts_per_tok)
    if config.model_type == "gpt_oss":
        writer.add_expert_count(config.num_local_experts)
        writer.add_expert_used_count(config.num_experts_per_tok)
        writer.add_expert_feed_forward_length(config.intermediate_size)
        writer.add_sliding_window(config.sliding_window)


def _head_dim(config: Any) -> int:
    return int(
        getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    )


def _tensors(model: Any) -> Iterator[tuple[str, np.ndarray[Any, Any]]]:
    """Yield the tensors with Hugging Face's names, in the order of rows that GGUF has."""
    config = model.config
    for name, tensor in model.state_dict().items():
        values = tensor.float().numpy()
        if name == "lm_head.weight" and config.tie_word_embeddings:
            continue
        if config.model_type in _PERMUTED and (".q_proj." in name or ".k_proj." in name):
            # Rotary pairs side by side: row j of the first half, then row j of the second.
            halves = values.reshape(-1, 2, _head_dim(config) // 2, *values.shape[1:])
            values = np.ascontiguousarray(halves.swapaxes(1, 2).reshape(values.shape))
        if config.model_type == "gpt_oss" and ".experts." in name:
            yield from _gpt_oss_experts(name, values)
        elif name.endswith("self_attn.sinks"):
            yield f"{name}.weight", values
        elif name.endswith("experts.gate_up_proj"):
            gate, up = np.split(values, 2, axis=1)
            yield name.replace("gate_up_proj", "gate_proj") + ".weight", np.ascontiguousarray(gate)
            yield name.replace("gate_up_proj", "up_proj") + ".weight", np.ascontiguousarray(up)
        elif name.endswith("experts.down_proj"):
            yield f"{name}.weight", values
        else:
            yield name, values


def _gpt_oss_experts(
    name: str, values: np.ndarray[Any, Any]
) -> Iterator[tuple[str, np.ndarray[Any, Any]]]:
    """Yield products as rows of outputs: of gate_up, gates are the even ones and ups the odd."""
    stem = name.removesuffix("_bias")
    suffix = "weight" if stem == name else "bias"
    rows = values if suffix == "bias" else values.swapaxes(1, 2)
    if stem.endswith("down_proj"):
        yield f"{stem}.{suffix}", np.ascontiguousarray(rows)
        return
    for first, part in enumerate(("gate_proj", "up_proj")):
        new = stem.replace("gate_up_proj", part)
        yield f"{new}.{suffix}", np.ascontiguousarray(rows[:, first::2])


def gpt_oss_blocks(file: Path) -> dict[str, np.ndarray[Any, Any]]:
    """Return a checkpoint's experts as GGUF has them: a scale, and elements 16 apart in a byte."""
    found = {}
    tensors = {name: tensor.numpy() for name, tensor in load_file(file).items()}
    num_layers = sum(name.endswith("down_proj_blocks") for name in tensors)
    for layer in range(num_layers):
        for product, names in (("gate_up", ("gate", "up")), ("down", ("down",))):
            stem = f"model.layers.{layer}.mlp.experts.{product}_proj"
            pairs, scales = tensors[f"{stem}_blocks"], tensors[f"{stem}_scales"]
            elements = np.stack((pairs & 15, pairs >> 4), -1).reshape(*scales.shape, 32)
            codes = elements[..., :16] | elements[..., 16:] << 4
            rows = np.concatenate((scales[..., None], codes), -1).reshape(*scales.shape[:2], -1)
            for first, name in enumerate(names):
                part = np.ascontiguousarray(rows[:, first :: len(names)])
                found[f"blk.{layer}.ffn_{name}_exps.weight"] = part
    return found


def _rope_factors(config: Any) -> np.ndarray[Any, Any] | None:
    """What Llama 3.1's rule makes of each frequency, as a divisor."""
    rope = config.rope_parameters
    if rope["rope_type"] != "llama3":
        return None
    half = _head_dim(config) // 2
    factors = []
    for pair in range(half):
        wavelength = 2 * math.pi * rope["rope_theta"] ** (pair / half)
        turns = rope["original_max_position_embeddings"] / wavelength
        low, high = rope["low_freq_factor"], rope["high_freq_factor"]
        kept = min(max((turns - low) / (high - low), 0.0), 1.0)
        factors.append(1 / (kept + (1 - kept) / rope["factor"]))
    return np.array(factors, dtype=np.float32)


def random_blocks(
    type_name: str, num_rows: int, num_values: int, seed: int
) -> np.ndarray[Any, Any]:
    """Return rows of random blocks, uint8 [rows, bytes], of values of about 0.02."""
    block_values, block_bytes = gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[type_name]]
    generator = np.random.default_rng(seed)
    shape = (num_rows, num_values // block_values, block_bytes)
    if type_name == "F16":
        halves = generator.normal(0, 0.02, (num_rows, num_values)).astype(np.float16)
        return halves.view(np.uint8)
    blocks = generator.integers(0, 256, shape, dtype=np.uint8)
    unit, minimum = _UNITS.get(type_name, (0.0, 0.0))
    scales = np.array([unit, minimum], dtype=np.float16).view(np.uint8)
    if type_name == "MXFP4":
        blocks[..., 0] = generator.integers(120, 123, shape[:2])
    elif type_name in _UNITS_LAST:
        end = 4 if minimum else 2
        blocks[..., -end:] = scales[:end]
    else:
        end = 4 if minimum else 2
        blocks[..., :end] = scales[:end]
    return blocks.reshape(num_rows, -1)


_UNITS_LAST = ("Q2_K", "Q3_K", "Q6_K")

# A block's float16 scale, and that of its minimums, with which values are small and around zero.
_UNITS = {
    "Q8_0": (2e-4, 0.0),
    "Q4_0": (4e-3, 0.0),
    "Q4_1": (4e-3, -3e-2),
    "Q5_0": (2e-3, 0.0),
    "Q5_1": (2e-3, -3e-2),
    "Q4_K": (1e-4, 7e-4),
    "Q5_K": (5e-5, 7e-4),
    "Q6_K": (1e-5, 0.0),
    "Q2_K": (5e-4, 7e-4),
    "Q3_K": (3e-4, 0.0),
    "IQ4_NL": (2e-4, 0.0),
    "IQ4_XS": (1e-5, 0.0),
}


def rewrite(path: Path, changes: dict[str, Any]) -> None:
    """Change metadata of a file; None removes an entry."""
    reader = gguf.GGUFReader(path)
    other = path.with_suffix(".new")
    writer = gguf.GGUFWriter(other, reader.fields["general.architecture"].contents())
    copy_fields(reader, writer, changes)
    for one in reader.tensors:
        writer.add_tensor(one.name, np.array(one.data), raw_dtype=one.tensor_type)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    other.replace(path)


def copy_fields(reader: gguf.GGUFReader, writer: gguf.GGUFWriter, changes: dict[str, Any]) -> None:
    left = {
        name: (one.types[0], one.contents(), one.types[-1])
        for name, one in reader.fields.items()
        if not name.startswith("GGUF.") and name != "general.architecture"
    }
    for name, value in changes.items():
        left.pop(name, None)
        if isinstance(value, str):
            writer.add_string(name, value)
        elif isinstance(value, list):
            writer.add_array(name, value)
        elif isinstance(value, float):
            writer.add_float32(name, value)
        elif value is not None:
            writer.add_uint32(name, value)
    for name, (kind, value, element) in left.items():
        sub_type = element if kind == gguf.GGUFValueType.ARRAY else None
        writer.add_key_value(name, value, kind, sub_type)
