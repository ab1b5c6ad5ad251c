"""Read the shape of a model, all that a plan needs, from config.json and its files' headers.

The config is read as the engine reads it, so both refuse the same models.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from inferno.config.decoder import DecoderConfig
from inferno.config.families import read_model_config
from inferno.errors import CheckpointError, ConfigError, WeightsMismatch
from inferno.gguf.file import OTHER_FILE, no_tensors
from inferno.gguf.names import ROPE_FACTORS, hf_name
from inferno.gguf.tensor_types import is_read, unread_types
from inferno.hub.facts import Tensor, read_tensors, weight_files
from inferno.json_file import missing_file, no_weights
from inferno.model_files import CONFIG, TOKENIZER, config_place, model_files
from inferno.quantization import E4M3, SCALES_OF_BLOCKS, SCALES_OF_OUTPUTS

_LAYER = re.compile(r"model\.layers\.(\d{1,5})\.")
_EMBEDDING, _HEAD = "model.embed_tokens.weight", "lm_head.weight"


@dataclass(frozen=True, slots=True)
class LayerCache:
    """The sizes of the keys and values that a layer keeps; a window of None sees all tokens."""

    num_kv_heads: int
    head_dim: int
    window: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelShape:
    """The sizes of a model, and its config.

    config          config.json, or the same made of a GGUF file.
    decoder         the config as inferno's own type.
    tensors         the tensors that become weights, by Hugging Face's names.
    tokenizer_bytes of tokenizer.json; 0 where there is none.
    is_gguf         whether tokenizer and weights come out of a GGUF file.
    """

    config: Mapping[str, Any]
    decoder: DecoderConfig
    tensors: tuple[Tensor, ...]
    tokenizer_bytes: int
    is_gguf: bool

    @property
    def caches(self) -> tuple[LayerCache, ...]:
        """Return the sizes of the keys and values that each layer keeps."""
        heads, size = self.decoder.num_kv_heads, self.decoder.head_dim
        return tuple(LayerCache(heads, size, window) for window in self.decoder.windows)


def read_shape(path: Path, *, allow_unknown: bool = False) -> ModelShape:
    """Return the shape of a model in a folder or a GGUF file.

    allow_unknown  whether the config may have unknown keys.

    Raises ModelError where files are missing or damaged, or the engine doesn't run the model.
    """
    files = model_files(path)
    tokenizer = path / TOKENIZER
    return make_shape(
        files.json(CONFIG, error=ConfigError),
        _loaded(path),
        place=str(path),
        tokenizer_bytes=tokenizer.stat().st_size if tokenizer.is_file() else 0,
        is_gguf=path.is_file(),
        allow_unknown=allow_unknown,
    )


def make_shape(
    config: Mapping[str, Any],
    tensors: Iterable[Tensor],
    *,
    place: str,
    tokenizer_bytes: int,
    is_gguf: bool,
    allow_unknown: bool = False,
) -> ModelShape:
    """Return the shape of a config and the tensors in headers; `place` names the model in messages.

    Raises ConfigError and UnknownArchitecture as the engine does, CheckpointError where there are
    no weights, and WeightsMismatch where they are plainly another model's or can't be read.
    """
    source = config_place(place, is_gguf=is_gguf)
    decoder = read_model_config(config, allow_unknown=allow_unknown, place=source)
    kept = tuple(_kept(tensors, is_tied=decoder.tie_word_embeddings, is_gguf=is_gguf))
    if not kept:
        raise CheckpointError(f"{place} holds no weights; give a folder with safetensors or a GGUF")
    if is_gguf:
        _check_types(kept, place)
    _check_counts(kept, decoder, place, is_gguf=is_gguf)
    return ModelShape(
        config=config,
        decoder=decoder,
        tensors=kept,
        tokenizer_bytes=tokenizer_bytes,
        is_gguf=is_gguf,
    )


def _loaded(path: Path) -> Iterator[Tensor]:
    """Yield the tensors of the files that are loaded; ModelError where the loader finds none."""
    if path.is_file():
        tensors = list(read_tensors(path))
        if not tensors:
            raise no_tensors(path)
        yield from tensors
        return
    files = weight_files(path)
    if files is None:
        raise no_weights(path)
    for name in sorted(files):
        if not os.path.exists(path / name):  # Path.exists raises where a name is too long
            raise missing_file(path / name)
    yield from read_tensors(path)


def _check_types(tensors: Iterable[Tensor], place: str) -> None:
    """Refuse a GGUF file whose weights are of types that aren't read. Raises WeightsMismatch."""
    unread = {
        tensor.name: tensor.dtype
        for tensor in tensors
        if not is_read(tensor.dtype, len(tensor.shape) - ("{}" in tensor.name))
    }
    if unread:
        raise unread_types(place, unread)


def _check_counts(
    tensors: Iterable[Tensor], decoder: DecoderConfig, place: str, *, is_gguf: bool
) -> None:
    """Refuse other numbers of layers or tokens than the config's; the loader compares all shapes.

    Raises WeightsMismatch.
    """
    cure = OTHER_FILE if is_gguf else "use the config.json that came with the weights"
    layers = set()
    for tensor in tensors:
        if match := _LAYER.match(tensor.name):
            layers.add(int(match[1]))
        elif tensor.name == _EMBEDDING and tensor.shape[:1] != (decoder.vocab_size,):
            raise WeightsMismatch(
                f"{place}: its config says that there are {decoder.vocab_size} tokens, and "
                f"{tensor.name} is {list(tensor.shape)}; {cure}"
            )
    if layers != set(range(decoder.num_layers)):
        raise WeightsMismatch(
            f"{place}: its config says that there are {decoder.num_layers} layers, and the files "
            f"hold {len(layers)}; {cure}"
        )


def _kept(tensors: Iterable[Tensor], *, is_tied: bool, is_gguf: bool) -> Iterator[Tensor]:
    """Yield the tensors that become weights, by Hugging Face's names."""
    tensors = list(tensors)
    in_fp8 = [tensor.name for tensor in tensors if tensor.dtype == E4M3]
    scales = {f"{name}{end}" for name in in_fp8 for end in (SCALES_OF_BLOCKS, SCALES_OF_OUTPUTS)}
    has_embedding = any(_name(tensor, is_gguf) == _EMBEDDING for tensor in tensors)
    for tensor in tensors:
        name = _name(tensor, is_gguf)
        is_left_out = name == ROPE_FACTORS or name.endswith("rotary_emb.inv_freq")
        if is_tied and name == _HEAD:  # files may have one of them, or both
            is_left_out, name = has_embedding, _EMBEDDING
        if not is_left_out and tensor.name not in scales:
            yield Tensor(name, tensor.dtype, tensor.shape, tensor.file)


def _name(tensor: Tensor, is_gguf: bool) -> str:
    return hf_name(tensor.name) if is_gguf else tensor.name
