"""Open a model as the engine and the commands do, and compare its tensors with another reader's.

The others are the formats' own libraries, `gguf` and `safetensors`.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import safetensors.torch
import torch
from gguf.quants import dequantize

from inferno import LLM, InfernoError, SamplingParams
from inferno.engine.build import problem_with
from inferno.gguf.names import hf_name
from inferno.hub.facts import read_facts, read_template, read_tensors
from inferno.options import EngineOptions
from inferno.plan.memory import make_plan
from inferno.plan.shape import read_shape
from inferno.text.model_text import ModelText
from inferno.weights.checkpoint import FLOATS, Checkpoint
from inferno.weights.open import open_checkpoint

_QUERY_OR_KEY = re.compile(r"blk\.(0|[1-9]\d{0,3})\.attn_[qk]\.(weight|bias)")
HELLO = [{"role": "user", "content": "hello"}]


class Differs(Exception):
    """Raised when a tensor that was read is not what the other reader reads."""


def open_model(path: Path, *, runs: bool) -> str:
    """Return how far a model was opened: nothing, tensors, text, config, or all, which may run.

    runs    whether it is loaded, and generates, where all else is well.

    Raises Differs, and whatever is no InfernoError.
    """
    _look_at(path)
    done = []
    with contextlib.suppress(InfernoError), open_checkpoint(path) as checkpoint:
        compare(checkpoint, path)
        done.append("tensors")
    with contextlib.suppress(InfernoError):
        _use_text(path, runs=runs)
        done.append("text")
    if problem_with(path) is None:
        done.append("config")
    if runs and len(done) == 3:
        with contextlib.suppress(InfernoError), LLM(path, threads=1, num_blocks=8) as llm:
            llm.generate("hello", SamplingParams(max_tokens=2))
            done.append("ran")
    return "+".join(done) or "nothing"


def _look_at(path: Path) -> None:
    """Read what `inferno list`, `show` and `plan` read."""
    read_facts(path)
    for read in (read_template, _list_tensors, _plan):
        with contextlib.suppress(InfernoError):
            read(path)


def _list_tensors(path: Path) -> None:
    list(read_tensors(path))


def _plan(path: Path) -> None:
    make_plan(read_shape(path), EngineOptions(model=path, threads=1), 8 << 30)


def _use_text(path: Path, *, runs: bool) -> None:
    text = ModelText(path)
    try:
        ids = text.encode("hello wörld", max_model_len=10_000)
        text.tokenizer.decode(ids)
        if runs and text.has_chat_template:
            text.encode_chat(HELLO, max_model_len=10_000)
    finally:
        text.close()


def compare(checkpoint: Checkpoint, path: Path) -> None:
    """Compare all tensors whose values can be read; Differs names one that is another."""
    due = dict(_of_gguf(checkpoint) if path.suffix == ".gguf" else _of_safetensors(checkpoint))
    for name, info in checkpoint.tensors.items():
        if isinstance(info.dtype, str):
            continue  # a type of which only the size is known
        found = torch.empty(info.shape, dtype=torch.float32 if info.dtype in FLOATS else info.dtype)
        checkpoint.read_into(name, found)
        if name not in due:
            raise Differs(f"{name} is not among the other reader's")
        expected = due.pop(name)
        if not np.array_equal(found.numpy(), expected, equal_nan=found.is_floating_point()):
            raise Differs(f"{name} has other values")


def _of_safetensors(checkpoint: Checkpoint) -> Iterator[tuple[str, Any]]:
    for file in checkpoint.signatures():
        for name, tensor in safetensors.torch.load_file(file).items():
            is_float = tensor.is_floating_point()
            yield name, (tensor.float() if is_float else tensor).numpy()


def _of_gguf(checkpoint: Checkpoint) -> Iterator[tuple[str, Any]]:
    for number, file in enumerate(sorted(checkpoint.signatures())):
        reader = gguf.GGUFReader(file)
        if number == 0:
            head_dim = _head_dim(reader.fields)
            kind = _kind(reader.fields)
        for tensor in reader.tensors:
            with np.errstate(all="ignore"):
                yield from _values(tensor, kind, head_dim)


def _values(tensor: Any, kind: str, head_dim: int | None) -> Iterator[tuple[str, Any]]:
    shape = tuple(int(size) for size in tensor.shape[::-1])
    values = tensor.data
    if not values.size:
        yield hf_name(tensor.name, kind), np.empty(shape, np.float32)
        return
    if tensor.tensor_type.name not in ("I8", "I16", "I32", "I64", "F64"):
        try:
            values = dequantize(values, tensor.tensor_type)
        except NotImplementedError:
            return
    if values.dtype.kind == "f":
        values = values.astype(np.float32)
    values = values.reshape(shape)
    name = tensor.name
    is_rotated = values.dtype.kind == "f" and _QUERY_OR_KEY.fullmatch(name)
    if head_dim is not None and is_rotated:
        pairs = values.reshape(-1, head_dim // 2, 2, *shape[1:])
        values = pairs.swapaxes(1, 2).reshape(shape)
    known = hf_name(name, kind)
    if known != name and "{}" in known:
        yield from ((known.replace("{}", str(index)), one) for index, one in enumerate(values))
    else:
        yield known, values


def _kind(fields: Mapping[str, Any]) -> str:
    """Return the architecture, or mixtral for Llama's with experts."""
    architecture = str(fields["general.architecture"].contents())
    experts = fields.get("llama.expert_count")
    has_experts = experts is not None and bool(experts.contents())
    return "mixtral" if architecture == "llama" and has_experts else architecture


def _head_dim(fields: Mapping[str, Any]) -> int | None:
    """Return the size of a head, whose rows llama's files hold in pairs; None for other kinds."""
    if fields["general.architecture"].contents() != "llama":
        return None
    if "llama.attention.key_length" in fields:
        return int(fields["llama.attention.key_length"].contents())
    width, heads = "llama.embedding_length", "llama.attention.head_count"
    return int(fields[width].contents() // fields[heads].contents())
