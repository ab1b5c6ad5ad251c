"""Models of random weights in real shapes with few layers, for plan_memory.py.

Weights are bfloat16 in safetensors, with gpt-oss' experts in MXFP4, or Q8_0 in GGUF. Q4_K_M is
what `inferno convert --type q4_k` makes of bfloat16: Q4_K and Q6_K. The tokenizer has as many
tokens and merges as real ones of its size, for it takes memory too.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from gguf import GGMLQuantizationType as Type
from gguf import GGUFWriter, quant_shape_to_byte_shape
from peer_files import DEVIATION, MXFP4_SCALE
from peer_shapes import GPT_OSS, QWEN3, TINYLLAMA, Config, is_mixture

Shape = tuple[int, ...]
Weight = tuple[str, str, Shape]  # Hugging Face's name, GGUF's, shape

SHAPES: dict[str, Config] = {
    "qwen3": {**QWEN3, "num_hidden_layers": 4},
    "llama-gguf": {**TINYLLAMA, "num_hidden_layers": 3},
    "qwen3-moe": {
        **QWEN3,
        "architectures": ["Qwen3MoeForCausalLM"],
        "vocab_size": 32000,
        "num_hidden_layers": 3,
        "num_experts": 16,
        "num_experts_per_tok": 4,
        "moe_intermediate_size": 768,
        "norm_topk_prob": True,
        "decoder_sparse_step": 1,
    },
    "gpt-oss": {
        **GPT_OSS,
        "vocab_size": 32000,
        "num_hidden_layers": 2,
        "num_local_experts": 8,
        "layer_types": ["sliding_attention", "full_attention"],
    },
    "qwen3-q4_k_m-gguf": {**QWEN3, "num_hidden_layers": 4},
}


def write_model(name: str, folder: Path) -> Path:
    """Write a model of SHAPES unless it is there, and return what names it."""
    config = SHAPES[name]
    folder.mkdir(parents=True, exist_ok=True)
    is_gguf = name.endswith("gguf")
    path = folder / "model.gguf" if is_gguf else folder
    done = folder / "done"
    if not done.exists():
        if name == "qwen3-q4_k_m-gguf":
            source = write_model("qwen3", folder.parent / "qwen3")
            convert = [sys.executable, "-m", "inferno", "convert", "--type", "q4_k", "--force"]
            subprocess.run([*convert, "--to", str(path), str(source)], check=True)
        elif is_gguf:
            _write_gguf(path, config)
        else:
            _write_safetensors(folder, config)
        done.touch()
    return path


def _weights(config: Config) -> Iterator[Weight]:
    size, head_dim = config["hidden_size"], config["head_dim"]
    rows, kv_rows = (
        config[key] * head_dim for key in ("num_attention_heads", "num_key_value_heads")
    )
    table = (config["vocab_size"], size)
    yield "model.embed_tokens.weight", "token_embd.weight", table
    yield "model.norm.weight", "output_norm.weight", (size,)
    if not config["tie_word_embeddings"]:
        yield "lm_head.weight", "output.weight", table
    for layer in range(config["num_hidden_layers"]):
        for hf_name, gguf_name, shape in (
            ("self_attn.q_proj", "attn_q", (rows, size)),
            ("self_attn.k_proj", "attn_k", (kv_rows, size)),
            ("self_attn.v_proj", "attn_v", (kv_rows, size)),
            ("self_attn.o_proj", "attn_output", (size, rows)),
            ("input_layernorm", "attn_norm", (size,)),
            ("post_attention_layernorm", "ffn_norm", (size,)),
            *_norms(config, head_dim),
            *_feed_forward(config, size),
        ):
            yield f"model.layers.{layer}.{hf_name}.weight", f"blk.{layer}.{gguf_name}.weight", shape


def _norms(config: Config, head_dim: int) -> Iterator[Weight]:
    if config["architectures"][0].startswith("Qwen3"):
        yield "self_attn.q_norm", "attn_q_norm", (head_dim,)
        yield "self_attn.k_norm", "attn_k_norm", (head_dim,)


def _feed_forward(config: Config, size: int) -> Iterator[Weight]:
    experts = config.get("num_experts")
    inner = config["moe_intermediate_size" if experts else "intermediate_size"]
    if experts:
        yield "mlp.gate", "ffn_gate_inp", (experts, size)
    for prefix in [f"mlp.experts.{i}" for i in range(experts)] if experts else ["mlp"]:
        yield f"{prefix}.gate_proj", "ffn_gate", (inner, size)
        yield f"{prefix}.up_proj", "ffn_up", (inner, size)
        yield f"{prefix}.down_proj", "ffn_down", (size, inner)


def _gpt_oss_weights(config: Config) -> Iterator[tuple[str, Shape]]:
    size, inner, experts = (
        config[key] for key in ("hidden_size", "intermediate_size", "num_local_experts")
    )
    heads, kv_heads = config["num_attention_heads"], config["num_key_value_heads"]
    rows, kv_rows = heads * config["head_dim"], kv_heads * config["head_dim"]
    yield "model.embed_tokens.weight", (config["vocab_size"], size)
    yield "model.norm.weight", (size,)
    yield "lm_head.weight", (config["vocab_size"], size)
    for layer in range(config["num_hidden_layers"]):
        prefix = f"model.layers.{layer}"
        for name, shape in (
            ("self_attn.q_proj", (rows, size)),
            ("self_attn.k_proj", (kv_rows, size)),
            ("self_attn.v_proj", (kv_rows, size)),
            ("self_attn.o_proj", (size, rows)),
            ("mlp.router", (experts, size)),
        ):
            yield f"{prefix}.{name}.weight", shape
            yield f"{prefix}.{name}.bias", shape[:1]
        yield f"{prefix}.self_attn.sinks", (heads,)
        yield f"{prefix}.input_layernorm.weight", (size,)
        yield f"{prefix}.post_attention_layernorm.weight", (size,)
        for name, num_rows, width in (
            ("mlp.experts.gate_up_proj", 2 * inner, size),
            ("mlp.experts.down_proj", size, inner),
        ):
            yield f"{prefix}.{name}_blocks", (experts, num_rows, width // 32, 16)
            yield f"{prefix}.{name}_scales", (experts, num_rows, width // 32)
            yield f"{prefix}.{name}_bias", (experts, num_rows)


def _values(shape: Shape, seed: int) -> np.ndarray:
    if len(shape) == 1:
        return np.ones(shape, np.float32)
    rng = np.random.default_rng(seed)
    return rng.standard_normal(shape, np.float32) * np.float32(DEVIATION)


def _stored(name: str, shape: Shape, seed: int) -> np.ndarray:
    """Return bfloat16 as uint16, or the bytes of MXFP4: codes, or scales by 32 of them."""
    if name.endswith("_scales"):
        return np.full(shape, MXFP4_SCALE, np.uint8)
    if name.endswith("_blocks"):
        return np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8)
    return (_values(shape, seed).view(np.uint32) >> 16).astype(np.uint16)


def _write_safetensors(folder: Path, config: Config) -> None:
    header, position = {}, 0
    if is_mixture(config):
        weights = list(_gpt_oss_weights(config))
    else:
        weights = [(name, shape) for name, _, shape in _weights(config)]
    for name, shape in weights:
        dtype, width = ("U8", 1) if name.endswith(("_blocks", "_scales")) else ("BF16", 2)
        stop = position + width * int(np.prod(shape))
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [position, stop]}
        position = stop
    text = json.dumps(header).encode()
    with (folder / "model.safetensors").open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for seed, (name, shape) in enumerate(weights):
            _stored(name, shape, seed).tofile(file)
    (folder / "config.json").write_text(json.dumps(config))
    vocab, merges = _vocabulary(config["vocab_size"])
    model = {
        "type": "BPE",
        "vocab": {token: number for number, token in enumerate(vocab)},
        "merges": [merge.split(" ") for merge in merges],
    }
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True}
    tokenizer = {"model": model, "pre_tokenizer": byte_level, "decoder": byte_level}
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer, indent=2))


def _write_gguf(path: Path, config: Config) -> None:
    writer = GGUFWriter(path, "llama")
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_rope_dimension_count(config["head_dim"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    vocab, merges = _vocabulary(config["vocab_size"])
    writer.add_token_list(vocab)
    writer.add_token_types([1] * len(vocab))
    writer.add_token_merges(merges)
    weights = list(_weights(config))
    for _, name, shape in weights:
        is_norm = len(shape) == 1
        kind = Type.F32 if is_norm else Type.Q8_0
        stored = shape if is_norm else tuple(quant_shape_to_byte_shape(shape, kind))
        dtype = np.dtype(np.float32 if is_norm else np.uint8)
        size = int(np.prod(stored)) * dtype.itemsize
        writer.add_tensor_info(name, stored, dtype, size, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    for seed, (_, _, shape) in enumerate(weights):
        writer.write_tensor_data(_values(shape, seed) if len(shape) == 1 else _q8_0(shape, seed))
    writer.close()


def _q8_0(shape: Shape, seed: int) -> np.ndarray:
    """Return random blocks: a scale, and 32 codes."""
    num_blocks = int(np.prod(shape)) // 32
    blocks = np.random.default_rng(seed).integers(0, 256, (num_blocks, 34), dtype=np.uint8)
    blocks[:, :2] = np.array([DEVIATION / 64], np.float16).view(np.uint8)
    return blocks.reshape(*shape[:-1], -1)


def _vocabulary(size: int) -> tuple[list[str], list[str]]:
    """Return tokens, and the merges that make all but the single bytes of them."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    tokens = [chr(byte) for byte in printable] + [chr(256 + i) for i in range(256 - len(printable))]
    rng, known, merges = random.Random(0), set(tokens), []
    while len(tokens) < size:
        first, second = rng.choice(tokens), rng.choice(tokens)
        if first + second not in known and len(first + second) < 12:
            known.add(first + second)
            tokens.append(first + second)
            merges.append(f"{first} {second}")
    return tokens, merges
