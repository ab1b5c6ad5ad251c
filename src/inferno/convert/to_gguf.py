"""Write a model of a folder, or of another GGUF file, as a GGUF file, tensor by tensor."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from math import prod
from pathlib import Path
from typing import Any

import torch

from inferno.config.decoder import DecoderConfig
from inferno.convert.encoder import encoder
from inferno.convert.metadata import check_config, config_metadata, kind_of_model, rope_factors
from inferno.convert.new_file import Written, check_target, new_file, refuse_own
from inferno.convert.tensors import Source, sources
from inferno.convert.tokenizer import tokenizer_metadata
from inferno.convert.types import FILE_TYPES, final_type, number_of, place_of
from inferno.errors import ConfigError, WeightsMismatch
from inferno.gguf.config import architecture_of, has_permuted_heads
from inferno.gguf.file import is_gguf_name, read_gguf
from inferno.gguf.header import Value
from inferno.gguf.names import ROPE_FACTORS
from inferno.gguf.writer import NewTensor, file_size, make_header, write_tensor
from inferno.model_files import CONFIG, ModelFiles, model_config, model_files
from inferno.models import find_model
from inferno.weights.checkpoint import Checkpoint
from inferno.weights.loader import check_weights
from inferno.weights.open import open_checkpoint

_QUANTIZATION_VERSION = 2  # of ggml's blocks
_OF_THE_FILE = ("general.quantization_version", "general.alignment")

Progress = Callable[[int, int], None]


def write_gguf(
    model: Path,
    target: Path,
    type_name: str | None,
    *,
    name: str,
    threads: int,
    replace: bool = False,
    allow_unknown: bool = False,
    progress: Progress | None = None,
) -> Written:
    """Write the model of a folder or a GGUF file as a GGUF file.

    type_name   one of `FILE_TYPES`; None: matrices stay what they are.
    name        what the file calls the model.
    threads     how many cores quantize.
    replace     whether a file of that name may be replaced.
    allow_unknown  whether the config may have unknown keys, which are left out.
    progress    is told the bytes written so far, and in all.

    Raises InvalidRequest where the file can't be made so, and ModelError where the model is damaged
    or is one that GGUF can't say.
    """
    check_target(target, replace=replace, source=model)
    files = model_files(model)
    hf_config = files.json(CONFIG, error=ConfigError)
    config = model_config(model, hf_config, allow_unknown=allow_unknown)
    kind = kind_of_model(hf_config)
    _refuse_unread(config, kind)
    with open_checkpoint(model) as checkpoint:
        refuse_own(target, checkpoint.identities())
        found = _sources(checkpoint, hf_config, config, kind)
        tensors = typed(found, [one.name for one in found], type_name, config, kind)
        sizes = sizes_by_type(tensors)
        metadata = _metadata(files, hf_config, config, name, found)
        metadata |= _file_type(type_name, sizes)
        names = [one.name for one in tensors if one.name != ROPE_FACTORS]
        check_config(metadata, names, config, rope_factors(config))
        header = make_header(metadata, tensors)
        size = file_size(header, tensors)
        with new_file(target, size, replace=replace) as file, encoder(threads) as rows:

            def write(piece: bytes | memoryview) -> None:
                file.write(piece)
                if progress is not None:
                    progress(file.tell(), size)

            write(header)
            for source, tensor in zip(found, tensors, strict=True):
                write_tensor(write, tensor, rows.encode(source, tensor.type))
    return Written(target, size, sizes)


def checked_model(
    checkpoint: Checkpoint, hf_config: Mapping[str, Any], config: DecoderConfig
) -> torch.nn.Module:
    """Return the model without memory, once the checkpoint has its weights and no others.

    Raises WeightsMismatch.
    """
    module = find_model(hf_config)
    with torch.device("meta"):
        model = module.build(config)
    tied = {"lm_head.weight": "model.embed_tokens.weight"} if config.tie_word_embeddings else {}
    check_weights(model, checkpoint, fused=module.fused_weights(config), tied=tied)
    return model


def sizes_by_type(tensors: Sequence[NewTensor]) -> dict[str, int]:
    """Return the bytes of tensors by GGUF's name of their type, the most first."""
    sizes: Counter[str] = Counter()
    for tensor in tensors:
        sizes[tensor.type.name] += tensor.num_bytes
    return dict(sizes.most_common())


def _refuse_unread(config: DecoderConfig, kind: str) -> None:
    """Refuse what our reader would take, and llama.cpp would not. Raises ConfigError."""
    if config.qkv_bias and kind in ("qwen3", "qwen3moe"):
        raise ConfigError(
            f"config.json: attention_bias is true, and a GGUF file of the architecture "
            f"{kind} has no such biases; use the model as it is"
        )
    width = config.num_heads * config.head_dim
    if kind == "qwen2" and width != config.hidden_size:
        raise ConfigError(
            f"config.json: heads are {width} wide together, and hidden_size is "
            f"{config.hidden_size}: llama.cpp reads {kind} with equal ones alone; use the "
            "model as it is"
        )
    if rope_factors(config) is not None and architecture_of(kind) != "llama":
        raise ConfigError(
            f"config.json: rope_scaling stretches each frequency by a factor of its own, as in "
            f"Llama 3.1, and llama.cpp reads such factors in files of llama, not of {kind}; use "
            "the model as it is"
        )


def _sources(
    checkpoint: Checkpoint, hf_config: Mapping[str, Any], config: DecoderConfig, kind: str
) -> list[Source]:
    """Return all tensors to be written; WeightsMismatch where they are not the model's."""
    model = checked_model(checkpoint, hf_config, config)
    is_permuted = has_permuted_heads(kind)
    found = sources(
        checkpoint,
        kind,
        num_layers=config.num_layers,
        num_experts=0 if config.mixture is None else config.mixture.num_experts,
        head_rows=config.head_dim if is_permuted else 1,
        is_tied=config.tie_word_embeddings,
    )
    num_values, due = sum(_counts(found)), sum(one.numel() for one in model.parameters())
    if num_values != due:
        raise WeightsMismatch(
            f"{checkpoint.path}: of the model's {due:,} weights, GGUF files of the architecture "
            f"{kind} have names for {num_values:,}; use the model as it is"
        )
    factors = rope_factors(config)
    if factors is not None:
        row = torch.tensor([factors], dtype=torch.float32)
        found.insert(0, Source(ROPE_FACTORS, (len(factors),), "F32", lambda _: iter([row])))
    return found


def _counts(found: Sequence[Source]) -> Iterator[int]:
    return (prod(one.shape) for one in found)


def typed(
    found: Sequence[Source],
    names: Sequence[str],
    type_name: str | None,
    config: DecoderConfig,
    kind: str,
) -> list[NewTensor]:
    """Return the tensors with their types, by the names that files of a kind have for them.

    Raises InvalidRequest where one is in other blocks already.
    """
    file_type = None if type_name is None else FILE_TYPES[type_name]
    tensors = []
    for source, name in zip(found, names, strict=True):
        place = place_of(
            name,
            num_layers=config.num_layers,
            is_tied=config.tie_word_embeddings,
            has_experts=config.mixture is not None,
            comes_packed=kind == "gpt-oss",
        )
        type = final_type(name, source.shape, source.type, file_type, place)
        tensors.append(NewTensor(source.name, type, source.shape))
    return tensors


def _file_type(type_name: str | None, sizes: Mapping[str, int]) -> dict[str, Value]:
    """Return what a file says of its types: by the one asked for, or the one it is mostly of."""
    most = next(iter(sizes))
    number = number_of(most) if type_name is None else FILE_TYPES[type_name].number
    known: dict[str, Value] = {} if number is None else {"general.file_type": number}
    return known | {"general.quantization_version": _QUANTIZATION_VERSION}


def _metadata(
    files: ModelFiles,
    hf_config: Mapping[str, Any],
    config: DecoderConfig,
    name: str,
    found: Sequence[Source],
) -> dict[str, Value]:
    """Return what a file says beside its types; of another GGUF file, what that one says."""
    if is_gguf_name(files.path) and not files.path.is_dir():
        return {
            key: value
            for key, value in read_gguf(files.path).metadata.items()
            if key not in _OF_THE_FILE and not key.startswith("split.")
        }
    return {
        "general.architecture": architecture_of(kind_of_model(hf_config)),
        "general.type": "model",
        "general.name": name,
        "general.size_label": _size_label(sum(_counts(found))),
        **config_metadata(config, hf_config),
        **tokenizer_metadata(files, config.vocab_size),
    }


def _size_label(num_weights: int) -> str:
    """Return a number of weights as names of models have it, such as 1.1B."""
    for unit, letter in ((1e12, "T"), (1e9, "B"), (1e6, "M")):
        if num_weights >= unit:
            return f"{num_weights / unit:.3g}{letter}"
    return f"{num_weights / 1e3:.3g}K"
