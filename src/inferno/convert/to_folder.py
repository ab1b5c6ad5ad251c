"""Write a model as a folder of packed weights: blocks of GGUF in safetensors, loaded as they are.

A matrix is uint8 [rows, blocks of a row, bytes of a block], named by the weight and its type; all
else is as in any folder. Its config.json has a quant_method of ours, so that nobody else takes the
folder for a model of floats.
"""

from __future__ import annotations

import json
import logging
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from math import prod
from pathlib import Path
from typing import Any

from inferno.config.decoder import DecoderConfig
from inferno.config.families import QUANTIZATION_KEYS
from inferno.config.rope import FactorScaling
from inferno.convert.encoder import encoder
from inferno.convert.metadata import kind_of_model, llama3_section
from inferno.convert.new_file import Written, check_room, new_file, sync_folder
from inferno.convert.tensors import Source, plain_sources
from inferno.convert.to_gguf import Progress, checked_model, sizes_by_type, typed
from inferno.errors import ConfigError, InvalidRequest, ModelError
from inferno.gguf.names import gguf_names, hf_name
from inferno.gguf.tensor_types import packed_name
from inferno.gguf.writer import NewTensor
from inferno.json_file import MAX_TOKENIZER_BYTES, SINGLE_FILE, TEMPLATE_FILES
from inferno.model_files import (
    CONFIG,
    GENERATION_CONFIG,
    TOKENIZER,
    TOKENIZER_CONFIG,
    ModelFiles,
    model_config,
    model_files,
)
from inferno.quantization import PACKED_HERE
from inferno.weights.checkpoint import Checkpoint
from inferno.weights.loader import HARMLESS
from inferno.weights.open import open_checkpoint

_OTHER_FILES = (
    *(GENERATION_CONFIG, TOKENIZER, TOKENIZER_CONFIG),
    *("special_tokens_map.json", *TEMPLATE_FILES.values()),
)
_ALIGNMENT = 64
_logger = logging.getLogger("inferno")


def write_folder(
    model: Path,
    target: Path,
    type_name: str | None,
    *,
    threads: int,
    allow_unknown: bool = False,
    progress: Progress | None = None,
) -> Written:
    """Write the model of a folder or a GGUF file as a folder of packed weights.

    type_name   one of `FILE_TYPES`; None: weights stay what they are.
    threads     how many cores quantize.
    allow_unknown  whether the config may have unknown keys.
    progress    is told the bytes written so far, and in all.

    Raises InvalidRequest where the folder can't be made so, and ModelError where the model is
    damaged or of another kind.
    """
    files = model_files(model)
    hf_config = files.json(CONFIG, error=ConfigError)
    config = model_config(model, hf_config, allow_unknown=allow_unknown)
    kind = kind_of_model(hf_config)
    with open_checkpoint(model) as checkpoint:
        checked_model(checkpoint, hf_config, config)
        found = plain_sources(checkpoint, _names(checkpoint, config))
        theirs = _gguf_names(kind, config)
        tensors = typed(found, [theirs[one.name] for one in found], type_name, config, kind)
        header = _header(found, tensors)
        size = len(header) + sum(tensor.num_bytes for tensor in tensors)
        with _new_folder(target) as folder:
            check_room(folder, size)
            is_packed = _is_packed(kind, tensors)
            _write_texts(folder, files, _for_all(hf_config, config, is_packed), is_packed=is_packed)
            with (
                new_file(folder / SINGLE_FILE, size, replace=False) as file,
                encoder(threads) as rows,
            ):
                file.write(header)
                for source, tensor in zip(found, tensors, strict=True):
                    for piece in rows.encode(source, tensor.type):
                        file.write(piece)
                        if progress is not None:
                            progress(file.tell(), size)
    return Written(target, size, sizes_by_type(tensors))


def _names(checkpoint: Checkpoint, config: DecoderConfig) -> list[str]:
    """Return the weights that the model is made of.

    A second copy of the embedding is none, nor are the scales of others.
    """
    embedding, head = "model.embed_tokens.weight", "lm_head.weight"
    left_out = set(checkpoint.scales)
    if config.tie_word_embeddings and embedding in checkpoint.stored:
        left_out.add(head)
    return [
        name for name in checkpoint.stored if not HARMLESS.fullmatch(name) and name not in left_out
    ]


def _gguf_names(kind: str, config: DecoderConfig) -> dict[str, str]:
    """Return GGUF's names by ours, which choose the types; an expert's is that of all experts."""
    num_experts = 0 if config.mixture is None else config.mixture.num_experts
    return {
        hf_name(name, kind).replace("{}", str(expert)): name
        for name in gguf_names(kind, config.num_layers)
        for expert in range(max(1, num_experts))
    }


def _is_packed(kind: str, tensors: Sequence[NewTensor]) -> bool:
    """Return whether others can't read the folder: for blocks, or experts that they have as one."""
    return kind == "gpt-oss" or any(one.type.block_values > 1 for one in tensors)


def _for_all(
    hf_config: Mapping[str, Any], config: DecoderConfig, is_packed: bool
) -> Mapping[str, Any]:
    """Return config.json's keys in words that others know too, for a folder that they can read."""
    if is_packed or not isinstance(config.rope.scaling, FactorScaling):
        return hf_config
    section = llama3_section(config)
    if section is None:
        _logger.warning(
            "the file's rope_freqs.weight follows no rule that has a name in config.json, so "
            "inferno alone reads this folder"
        )
        return hf_config
    return {**hf_config, "rope_scaling": section}


def _header(found: Sequence[Source], tensors: Sequence[NewTensor]) -> bytes:
    """Return the header of the safetensors file, filled up with blanks."""
    entries: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    offset = 0
    for tensor in tensors:
        name, dtype, shape = tensor.name, tensor.type.name, list(tensor.shape)
        if tensor.type.block_values > 1:
            name, dtype = packed_name(name, tensor.type), "U8"
            num_blocks = shape[-1] // tensor.type.block_values
            shape = [prod(shape[:-1]), num_blocks, tensor.type.block_bytes]
        end = offset + tensor.num_bytes
        entries[name] = {"dtype": dtype, "shape": shape, "data_offsets": [offset, end]}
        offset = end
    content = json.dumps(entries, separators=(",", ":")).encode()
    content += b" " * (-(8 + len(content)) % _ALIGNMENT)
    return len(content).to_bytes(8, "little") + content


def _write_texts(
    folder: Path, files: ModelFiles, hf_config: Mapping[str, Any], *, is_packed: bool
) -> None:
    """Write config.json, and the other small files as they are."""
    config = {key: value for key, value in hf_config.items() if key not in QUANTIZATION_KEYS}
    if is_packed:
        config["quantization_config"] = {"quant_method": PACKED_HERE}
    _write(folder / CONFIG, json.dumps(config, indent=2).encode() + b"\n")
    for name in _OTHER_FILES:
        if files.has(name):
            content = files.read(name, error=ModelError, max_bytes=MAX_TOKENIZER_BYTES)
            (folder / name).parent.mkdir(exist_ok=True)
            _write(folder / name, content)


def _write(path: Path, content: bytes) -> None:
    with new_file(path, len(content), replace=False) as file:
        file.write(content)


@contextmanager
def _new_folder(path: Path) -> Iterator[Path]:
    """Yield a folder to be filled, which is `path` once the block has ended, all or nothing."""
    if not path.parent.is_dir():
        raise InvalidRequest(f"there is no folder {path.parent} for {path.name}; make it first")
    if os.path.lexists(path):
        raise InvalidRequest(f"{path} is there already; give another name, or remove it first")
    part = path.with_name(f"{path.name}.part")
    try:
        part.mkdir()
    except FileExistsError:
        raise InvalidRequest(
            f"{part} is there: another process writes it, or one was killed; then remove it"
        ) from None
    try:
        yield part
        sync_folder(part)
        if os.path.lexists(path):
            raise InvalidRequest(f"{path} was made meanwhile; give another name")
        os.rename(part, path)
    except BaseException:
        shutil.rmtree(part, ignore_errors=True)
        raise
    sync_folder(path.parent)
