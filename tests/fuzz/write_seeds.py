"""Write the models that are to be mutated into a folder: `python -m tests.fuzz.write_seeds DIR`."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import gguf
import numpy as np

from tests.fuzz.gguf_parts import take_apart
from tests.gguf.convert import gpt_oss_blocks, write_gguf
from tests.gguf.metadata import small_byte_level
from tests.mxfp4 import save_tiny_mxfp4
from tests.tiny import CHAT_TEMPLATE, save_tiny, save_tiny_model, save_tokenizer

_SMALL: Mapping[str, Any] = {
    "hidden_size": 32,
    "intermediate_size": 32,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 16,
}
_MIXTURE: Mapping[str, Any] = {
    **_SMALL,
    "num_experts": 2,
    "num_experts_per_tok": 1,
    "moe_intermediate_size": 32,
    "mlp_only_layers": [],
}
_FACTORS = {
    "rope_type": "llama3",
    "rope_theta": 1e4,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
_YARN = {
    "rope_type": "yarn",
    "rope_theta": 1e4,
    "factor": 4.0,
    "original_max_position_embeddings": 64,
    "truncate": False,
}
_BLOCKS = {
    "attn_q": "Q4_K",
    "attn_k": "Q5_K",
    "attn_v": "Q6_K",
    "ffn_gate": "Q4_0",
    "ffn_up": "Q5_0",
    "token_embd": "Q8_0",
}
_TYPES = (
    *("F32", "F16", "BF16", "F64", "I8", "I16", "I32", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0"),
    *("Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K", "IQ4_NL", "IQ4_XS", "MXFP4", "TQ1_0", "TQ2_0"),
)


def write_seeds(folder: Path) -> None:
    """Write each model into a folder of its own."""
    _folders_of_safetensors(folder)
    dense = save_tiny(folder / "hf", "llama", vocab_size=20, **_SMALL)
    path = write_gguf(_file(folder, "gguf-llama"), dense)
    content = bytearray(path.read_bytes())
    content[4] = 2
    _file(folder, "gguf-version-2").write_bytes(content)
    for kind, type_name in (("qwen2", "Q4_0"), ("qwen3", "Q8_0"), ("llama", "F16")):
        model = save_tiny(folder / "hf", kind, vocab_size=20, **_SMALL)
        write_gguf(_file(folder, f"gguf-{kind}-{type_name}"), model, type_name=type_name)
    mixture = save_tiny(folder / "hf", "qwen3_moe", vocab_size=20, norm_topk_prob=True, **_MIXTURE)
    write_gguf(_file(folder, "gguf-qwen3moe"), mixture, type_name="Q5_1")
    experts: dict[str, Any] = {"num_local_experts": 2, "num_experts_per_tok": 1}
    mixtral = save_tiny(folder / "hf", "mixtral", vocab_size=20, **_SMALL, **experts)
    write_gguf(_file(folder, "gguf-mixtral"), mixtral, type_name="Q8_0", are_experts_apart=True)
    _gpt_oss(folder)
    wide = {**_SMALL, "hidden_size": 256}
    model = save_tiny(folder / "hf", "llama", vocab_size=20, rope_parameters=_FACTORS, **wide)
    write_gguf(_file(folder, "gguf-llama-blocks"), model, blocks=_BLOCKS)
    _of_all_types(_file(folder, "gguf-all-types"))
    _split(path, folder / "gguf-split")
    _byte_level(folder)
    shutil.rmtree(folder / "hf")


def _gpt_oss(folder: Path) -> None:
    """Write a model with sinks, windows, YaRN, and experts in MXFP4, which the folder has too."""
    config = {**_SMALL, "num_local_experts": 2, "num_experts_per_tok": 1, "sliding_window": 4}
    saved = folder / "safetensors-gpt-oss"
    model = save_tiny_mxfp4(saved, vocab_size=20, swiglu_limit=7.0, rope_parameters=_YARN, **config)
    path = _file(folder, "gguf-gpt-oss")
    write_gguf(path, model, mxfp4=gpt_oss_blocks(saved / "model.safetensors"))


def _folders_of_safetensors(folder: Path) -> None:
    save_tiny_model(folder / "safetensors-llama", **_SMALL)
    save_tiny(folder / "safetensors-shards", "qwen3_moe", shard_size="30KB", **_MIXTURE)
    for path in (folder / "safetensors-llama", folder / "safetensors-shards"):
        save_tokenizer(path)
        (path / "generation_config.json").write_text(
            json.dumps({"eos_token_id": [2, 3], "top_k": 5, "temperature": 0.7})
        )
        (path / "special_tokens_map.json").write_text(
            json.dumps({"eos_token": {"content": "<|end|>", "lstrip": False}})
        )
    (folder / "safetensors-shards" / "chat_template.jinja").write_text(CHAT_TEMPLATE)


def _file(folder: Path, name: str) -> Path:
    (folder / name).mkdir()
    return folder / name / "model.gguf"


def _of_all_types(path: Path) -> None:
    """Write tensors of every type, random bytes: what is no weight of the model is read too."""
    writer = gguf.GGUFWriter(path, "qwen3")
    random = np.random.default_rng(1)
    for name in _TYPES:
        kind = gguf.GGMLQuantizationType[name]
        values, num_bytes = gguf.GGML_QUANT_SIZES[kind]
        raw = random.integers(0, 256, (3, 256 // values * num_bytes), dtype=np.uint8)
        writer.add_tensor(f"of.{name}", raw, raw_shape=raw.shape, raw_dtype=kind)
    _end(writer)


def _split(whole: Path, folder: Path) -> None:
    folder.mkdir()
    parts = take_apart(whole.read_bytes())
    reader = gguf.GGUFReader(whole)
    for number in range(2):
        name = folder / f"m-0000{number + 1}-of-00002.gguf"
        writer = gguf.GGUFWriter(name, "llama")
        writer.add_uint16("split.no", number)
        writer.add_uint16("split.count", 2)
        for one in reader.tensors[number::2]:
            writer.add_tensor(one.name, np.array(one.data))
        _end(writer)
        if number == 0:
            first = take_apart(name.read_bytes())
            first.entries = [*parts.entries, *first.entries[1:]]  # without the architecture
            name.write_bytes(first.content())


def _byte_level(folder: Path) -> None:
    """Write a model with a vocabulary of byte-level BPE, and a chat template."""
    metadata = small_byte_level()
    size = len(metadata["tokenizer.ggml.tokens"])
    model = save_tiny(folder / "hf", "qwen2", vocab_size=size, **_SMALL)
    path = write_gguf(_file(folder, "gguf-byte-level"), model, vocab=False)
    vocabulary = folder / "hf" / "vocabulary.gguf"
    writer = gguf.GGUFWriter(vocabulary, "qwen2")
    for key, value in metadata.items():
        add = {str: writer.add_string, int: writer.add_uint32, list: writer.add_array}[type(value)]
        add(key, value)
    writer.add_chat_template(CHAT_TEMPLATE)
    _end(writer)
    parts = take_apart(path.read_bytes())
    parts.entries += take_apart(vocabulary.read_bytes()).entries[1:]
    path.write_bytes(parts.content())


def _end(writer: gguf.GGUFWriter) -> None:
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


if __name__ == "__main__":
    write_seeds(Path(sys.argv[1]))
