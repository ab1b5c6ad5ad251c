"""Write a model of random weights, once as safetensors and in each precision as GGUF.

    PEER_PYTHON benchmarks/peer_files.py MODEL FOLDER PRECISION...

cpu_peers.py runs it with the Python that has `gguf`. All files hold the same values, rounded to
bfloat16 first; gguf's own quantizers make Q8_0 and Q4_0 of them. In Q4_0 files the embedding table
and the head are Q8_0, as inferno keeps them in int8. Of gpt-oss there is a GGUF alone: its experts
are random MXFP4 bytes, and inferno makes its own.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
from gguf import GGMLQuantizationType as Type
from gguf import GGUFWriter, quant_shape_to_byte_shape
from gguf.quants import dequantize, quantize
from numpy.typing import NDArray
from peer_shapes import CONFIGS, Config, is_mixture

DEVIATION = 0.02
MXFP4_SCALE = 120  # 2^-7
PIECE = 4096
_TYPES = {"bf16": Type.BF16, "int8": Type.Q8_0, "int4": Type.Q4_0, "mxfp4": Type.BF16}
Bytes = NDArray[np.uint8]


@dataclass(frozen=True, kw_only=True)
class Tensor:
    """A weight by its names in both formats.

    num_heads  llama.cpp wants the rows of a Llama's q and k in pairs of neighbours, by head.
    is_wide    stays in eight bits where others have four.
    """

    name: str
    gguf_name: str
    shape: tuple[int, ...]
    num_heads: int | None = None
    is_wide: bool = False
    is_norm: bool = False
    is_packed: bool = False  # MXFP4
    is_float: bool = False  # float32 in every file

    def type_in(self, precision: str) -> Type:
        if self.is_norm or self.is_float or len(self.shape) == 1:
            return Type.F32
        if self.is_packed:
            return Type.MXFP4
        return Type.Q8_0 if self.is_wide and precision == "int4" else _TYPES[precision]


def main() -> None:
    name, folder, *precisions = sys.argv[1:]
    write(CONFIGS[name], Path(folder), precisions)


def write(config: Config, folder: Path, precisions: list[str]) -> None:
    """Files that are there already stay."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "config.json"
    if path.exists() and json.loads(path.read_text()) != config:
        sys.exit(f"{folder} holds a model of another shape: delete it")
    path.write_text(json.dumps(config))
    tensors = list(_gpt_oss(config) if is_mixture(config) else _dense(config))
    ggufs = {
        precision: _begin_gguf(config, folder / f"{precision}.gguf.part", tensors, precision)
        for precision in precisions
        if not (folder / f"{precision}.gguf").exists()
    }
    safetensors = folder / "model.safetensors"
    has_own = safetensors.exists() or is_mixture(config)
    file = None if has_own else _begin_safetensors(safetensors.with_suffix(".part"), tensors)
    for index, tensor in enumerate(tensors if ggufs or file else []):
        _write_tensor(tensor, np.random.default_rng([0, index]), file, ggufs)
    for precision, writer in ggufs.items():
        writer.close()
        (folder / f"{precision}.gguf.part").rename(folder / f"{precision}.gguf")
    if file is not None:
        file.close()
        safetensors.with_suffix(".part").rename(safetensors)


def _dense(config: Config) -> Iterator[Tensor]:
    size, ffn = config["hidden_size"], config["intermediate_size"]
    heads, kv_heads = config["num_attention_heads"], config["num_key_value_heads"]
    head_dim, is_qwen3 = config["head_dim"], config["architectures"] == ["Qwen3ForCausalLM"]
    yield from _outside(config)
    for layer in range(config["num_hidden_layers"]):
        ours, theirs = f"model.layers.{layer}.", f"blk.{layer}."
        for name, gguf_name, count in (("q", "attn_q", heads), ("k", "attn_k", kv_heads)):
            yield Tensor(
                name=f"{ours}self_attn.{name}_proj.weight",
                gguf_name=f"{theirs}{gguf_name}.weight",
                shape=(count * head_dim, size),
                num_heads=None if is_qwen3 else count,
            )
        for name, gguf_name, shape in (
            ("self_attn.v_proj", "attn_v", (kv_heads * head_dim, size)),
            ("self_attn.o_proj", "attn_output", (size, heads * head_dim)),
            ("mlp.gate_proj", "ffn_gate", (ffn, size)),
            ("mlp.up_proj", "ffn_up", (ffn, size)),
            ("mlp.down_proj", "ffn_down", (size, ffn)),
        ):
            yield Tensor(
                name=f"{ours}{name}.weight", gguf_name=f"{theirs}{gguf_name}.weight", shape=shape
            )
        norms = [("input_layernorm", "attn_norm", size)]
        norms += [("post_attention_layernorm", "ffn_norm", size)]
        if is_qwen3:
            norms += [("self_attn.q_norm", "attn_q_norm", head_dim)]
            norms += [("self_attn.k_norm", "attn_k_norm", head_dim)]
        for name, gguf_name, length in norms:
            yield Tensor(
                name=f"{ours}{name}.weight",
                gguf_name=f"{theirs}{gguf_name}.weight",
                shape=(length,),
                is_norm=True,
            )


def _gpt_oss(config: Config) -> Iterator[Tensor]:
    size, ffn, count = (
        config[key] for key in ("hidden_size", "intermediate_size", "num_local_experts")
    )
    q_size = config["num_attention_heads"] * config["head_dim"]
    kv_size = config["num_key_value_heads"] * config["head_dim"]
    yield from _outside(config)
    for layer in range(config["num_hidden_layers"]):

        def tensor(name: str, *shape: int, layer: int = layer, **kind: bool) -> Tensor:
            return Tensor(name="", gguf_name=f"blk.{layer}.{name}", shape=shape, **kind)

        for name, rows, columns in (
            ("attn_q", q_size, size),
            ("attn_k", kv_size, size),
            ("attn_v", kv_size, size),
            ("attn_output", size, q_size),
        ):
            yield tensor(f"{name}.weight", rows, columns)
            yield tensor(f"{name}.bias", rows)
        yield tensor("attn_sinks.weight", config["num_attention_heads"])
        yield tensor("attn_norm.weight", size, is_norm=True)
        yield tensor("post_attention_norm.weight", size, is_norm=True)
        yield tensor("ffn_gate_inp.weight", count, size, is_float=True)
        yield tensor("ffn_gate_inp.bias", count)
        for name, rows, columns in (
            ("ffn_gate_exps", ffn, size),
            ("ffn_up_exps", ffn, size),
            ("ffn_down_exps", size, ffn),
        ):
            yield tensor(f"{name}.weight", count, rows, columns, is_packed=True)
            yield tensor(f"{name}.bias", count, rows, is_float=True)


def _outside(config: Config) -> Iterator[Tensor]:
    """The table, the last norm, and the head where it is another matrix."""
    shape = (config["vocab_size"], config["hidden_size"])
    yield Tensor(
        name="model.embed_tokens.weight", gguf_name="token_embd.weight", shape=shape, is_wide=True
    )
    yield Tensor(
        name="model.norm.weight", gguf_name="output_norm.weight", shape=shape[1:], is_norm=True
    )
    if not config["tie_word_embeddings"]:
        yield Tensor(name="lm_head.weight", gguf_name="output.weight", shape=shape, is_wide=True)


def _write_tensor(
    tensor: Tensor, rng: np.random.Generator, file: IO[bytes] | None, ggufs: dict[str, GGUFWriter]
) -> None:
    if tensor.is_packed:
        packed = rng.integers(0, 256, _byte_shape(tensor, Type.MXFP4), dtype=np.uint8)
        packed[..., ::17] = MXFP4_SCALE  # a block is its scale and 32 values of four bits
        for writer in ggufs.values():
            writer.write_tensor_data(packed)
        return
    values = np.ones(tensor.shape, dtype=np.float32)
    if not tensor.is_norm:
        rng.standard_normal(out=values, dtype=np.float32)
        values *= DEVIATION
    for rows in _pieces(values):
        rows[...] = dequantize(quantize(rows, Type.BF16), Type.BF16)
    if file is not None:
        _quantized(values, Type.BF16).tofile(file)
    if tensor.num_heads:
        values = _in_pairs(values, tensor.num_heads)
    for precision, writer in ggufs.items():
        kind = tensor.type_in(precision)
        writer.write_tensor_data(values if kind is Type.F32 else _quantized(values, kind))


def _quantized(values: NDArray[np.float32], kind: Type) -> Bytes:
    return np.concatenate([quantize(rows, kind) for rows in _pieces(values)])


def _pieces(values: NDArray[np.float32]) -> Iterator[NDArray[np.float32]]:
    """Some rows at a time: gguf's functions take several times the memory of their arguments."""
    return (values[first : first + PIECE] for first in range(0, len(values), PIECE))


def _in_pairs(values: NDArray[np.float32], num_heads: int) -> NDArray[np.float32]:
    """Rows i and i + D/2 of each head, which are turned together, beside each other."""
    halves = values.reshape(num_heads, 2, -1, values.shape[1])
    return np.ascontiguousarray(halves.swapaxes(1, 2)).reshape(values.shape)


def _byte_shape(tensor: Tensor, kind: Type) -> tuple[int, ...]:
    return tuple(quant_shape_to_byte_shape(tensor.shape, kind))


def _begin_gguf(config: Config, path: Path, tensors: list[Tensor], precision: str) -> GGUFWriter:
    architecture = {
        "LlamaForCausalLM": "llama",
        "Qwen3ForCausalLM": "qwen3",
        "GptOssForCausalLM": "gpt-oss",
    }[config["architectures"][0]]
    writer = GGUFWriter(path, architecture)
    _add_config(writer, config)
    for tensor in tensors:
        kind = tensor.type_in(precision)
        shape = _byte_shape(tensor, kind) if kind is not Type.F32 else tensor.shape
        num_bytes = int(np.prod(shape)) * (4 if kind is Type.F32 else 1)
        dtype = np.dtype(np.float32 if kind is Type.F32 else np.uint8)
        writer.add_tensor_info(tensor.gguf_name, shape, dtype, num_bytes, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    return writer


def _add_config(writer: GGUFWriter, config: Config) -> None:
    writer.add_tokenizer_model("no_vocab")
    writer.add_vocab_size(config["vocab_size"])
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_key_length(config["head_dim"])
    writer.add_value_length(config["head_dim"])
    writer.add_rope_dimension_count(config["head_dim"])
    writer.add_rope_freq_base(config["rope_theta"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    if is_mixture(config):
        writer.add_expert_count(config["num_local_experts"])
        writer.add_expert_used_count(config["num_experts_per_tok"])
        writer.add_expert_feed_forward_length(config["intermediate_size"])
        writer.add_sliding_window(config["sliding_window"])


def _begin_safetensors(path: Path, tensors: list[Tensor]) -> IO[bytes]:
    """All in bfloat16, one behind the other."""
    header: dict[str, Any] = {}
    position = 0
    for tensor in tensors:
        end = position + 2 * int(np.prod(tensor.shape))
        header[tensor.name] = {
            "dtype": "BF16",
            "shape": tensor.shape,
            "data_offsets": [position, end],
        }
        position = end
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    file = path.open("wb")
    file.write(len(text).to_bytes(8, "little") + text)
    return file


if __name__ == "__main__":
    main()
