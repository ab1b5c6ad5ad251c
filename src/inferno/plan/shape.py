"""The shape of a model, by its config.json and the headers of its files: all that a plan needs."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from inferno.errors import CheckpointError, ConfigError
from inferno.gguf.names import ROPE_FACTORS, hf_name
from inferno.hub.facts import Tensor, read_tensors
from inferno.json_file import INDEX_FILE, MAX_INDEX_BYTES, SINGLE_FILE, read_json
from inferno.model_files import CONFIG, TOKENIZER, model_files

_KEYS = re.compile(r".*\.layers\.(\d{1,4})\.self_attn\.k_proj\.weight")
_QUERIES = re.compile(r".*\.layers\.\d{1,4}\.self_attn\.q_proj\.weight")


@dataclass(frozen=True, slots=True)
class LayerCache:
    """The keys and values that a layer keeps of a token; a window of None sees all tokens."""

    num_kv_heads: int
    head_dim: int
    window: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelShape:
    """A model's sizes.

    config          what config.json says, or a GGUF file in its place.
    tensors         those that become weights, by Hugging Face's names.
    caches          what each layer keeps.
    tokenizer_bytes of tokenizer.json; 0 where there is none.
    is_gguf         whether tokenizer and weights come out of a GGUF file.
    """

    config: Mapping[str, Any]
    tensors: tuple[Tensor, ...]
    caches: tuple[LayerCache, ...]
    tokenizer_bytes: int
    is_gguf: bool

    def size(self, key: str) -> int:
        """Return a number of config.json; 0 where it isn't there, or is none."""
        value = self.config.get(key)
        return value if type(value) is int and value > 0 else 0

    @property
    def num_experts(self) -> int:
        """Return how many experts a layer has; 0 without."""
        return self.size("num_local_experts") or self.size("num_experts")

    @property
    def num_chosen(self) -> int:
        """Return how many experts compute for a token."""
        return min(self.num_experts, self.size("num_experts_per_tok"))


def read_shape(path: Path) -> ModelShape:
    """Return the shape of a model that is here, a folder or a GGUF file.

    Raises ModelError where its files are missing or damaged.
    """
    files = model_files(path)
    tokenizer = path / TOKENIZER
    return make_shape(
        files.json(CONFIG, error=ConfigError),
        _loaded(path, read_tensors(path)),
        place=str(path),
        tokenizer_bytes=tokenizer.stat().st_size if tokenizer.is_file() else 0,
        is_gguf=path.is_file(),
    )


def make_shape(
    config: Mapping[str, Any],
    tensors: Iterable[Tensor],
    *,
    place: str,
    tokenizer_bytes: int,
    is_gguf: bool,
) -> ModelShape:
    """Return the shape that a config and the tensors of headers tell; `place` names the model.

    Raises CheckpointError where there are no weights, or none of keys.
    """
    is_tied = config.get("tie_word_embeddings") is True
    kept = tuple(_kept(tensors, is_tied=is_tied, is_gguf=is_gguf))
    if not kept:
        raise CheckpointError(f"{place} holds no weights; give a folder with safetensors or a GGUF")
    return ModelShape(
        config=config,
        tensors=kept,
        caches=tuple(_caches(kept, config)),
        tokenizer_bytes=tokenizer_bytes,
        is_gguf=is_gguf,
    )


def layer_windows(config: Mapping[str, Any], num_layers: int) -> tuple[int | None, ...]:
    """Return each layer's window, as the families' files in models/ read it.

    They refuse what can't be; here it counts as no window.
    """
    match config.get("architectures"):
        case ["MistralForCausalLM", *_]:
            return (_window(config, 4096),) * num_layers
        case ["MixtralForCausalLM", *_]:
            return (_window(config, None),) * num_layers
        case ["GptOssForCausalLM", *_]:
            alternating = ["sliding_attention", "full_attention"] * num_layers
            kinds, window = config.get("layer_types") or alternating, _window(config, 128)
        case [str(name), *_] if name.startswith("Qwen") and config.get("use_sliding_window"):
            kinds, window = config.get("layer_types"), _window(config, 4096)
        case _:
            return (None,) * num_layers
    if isinstance(kinds, list):
        sliding = [kind == "sliding_attention" for kind in kinds[:num_layers]]
    else:
        first = config.get("max_window_layers", 28)
        sliding = [isinstance(first, int) and layer >= first for layer in range(num_layers)]
    sliding += [False] * (num_layers - len(sliding))
    return tuple(window if is_sliding else None for is_sliding in sliding)


def _loaded(path: Path, tensors: Iterable[Tensor]) -> Iterator[Tensor]:
    """Yield the tensors of the files that are loaded: one, or those that an index names.

    Beside them may lie the same weights in their makers' own format.
    """
    if path.is_file():
        yield from tensors
        return
    files: set[str] | None = None
    if (path / SINGLE_FILE).exists():
        files = {SINGLE_FILE}
    elif (path / INDEX_FILE).exists():
        index = read_json(path / INDEX_FILE, error=CheckpointError, max_bytes=MAX_INDEX_BYTES)
        shards = index.get("weight_map")
        if isinstance(shards, dict):  # loading refuses all else
            files = {name for name in shards.values() if isinstance(name, str)}
    for tensor in tensors:
        if files is None or tensor.file in files:
            yield tensor


def _window(config: Mapping[str, Any], default: int | None) -> int | None:
    value = config.get("sliding_window", default)
    return value if type(value) is int and value > 0 else None


def _kept(tensors: Iterable[Tensor], *, is_tied: bool, is_gguf: bool) -> Iterator[Tensor]:
    """Yield the tensors that become weights, by Hugging Face's names."""
    for tensor in tensors:
        name = hf_name(tensor.name) if is_gguf else tensor.name
        is_left_out = name == ROPE_FACTORS or name.endswith("rotary_emb.inv_freq")
        if not is_left_out and not (is_tied and name == "lm_head.weight"):
            yield Tensor(name, tensor.dtype, tensor.shape, tensor.file)


def _caches(tensors: Iterable[Tensor], config: Mapping[str, Any]) -> Iterator[LayerCache]:
    """Yield what each layer keeps: as many values as the products of keys have outputs."""
    rows: dict[int, int] = {}
    query_rows = 0
    for tensor in tensors:
        if tensor.shape and (match := _KEYS.fullmatch(tensor.name)):
            rows[int(match[1])] = tensor.shape[0]
        elif tensor.shape and _QUERIES.fullmatch(tensor.name):
            query_rows = tensor.shape[0]
    if not any(rows.values()):
        raise CheckpointError("the files list no self_attn.k_proj.weight, so no cache is known")
    num_heads = config.get("num_attention_heads")
    head_dim = config.get("head_dim")
    if type(head_dim) is not int or head_dim < 1:
        head_dim = query_rows // num_heads if type(num_heads) is int and num_heads > 0 else 0
    windows = layer_windows(config, len(rows))
    for (_, count), window in zip(sorted(rows.items()), windows, strict=True):
        size = head_dim if head_dim and count % head_dim == 0 else count
        yield LayerCache(max(1, count // max(1, size)), size, window)
