"""The tensors of a checkpoint as a GGUF file has them: their names, shapes, and rows in its order.

GGUF keeps all experts of a layer in one tensor, gates and ups apart, and Llama's queries and keys
with the rows of each head as rotary pairs. Tensors are read some rows at a time.

Shape letters: N rows of interest, I inputs of a row, B bytes of a row, X experts, G groups of a
row.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from inferno.errors import InvalidRequest
from inferno.gguf.names import gguf_names, hf_name, is_rotated
from inferno.ops import StoredRows
from inferno.quantization import FP8, MXFP4
from inferno.weights.checkpoint import Checkpoint, StoredTensor

PIECE_VALUES = 1 << 20  # as float32 they take 4 MB

# GGUF's names of floats by ours; float64 is read as float32. GGUF has no FP8.
FLOAT_TYPES = {
    "float64": "F32",
    "float32": "F32",
    "float16": "F16",
    "bfloat16": "BF16",
    FP8.name: "BF16",
}

_EMBEDDING, _HEAD = "model.embed_tokens.weight", "lm_head.weight"

# gpt-oss's names of what all experts of a layer share, of which gates are the even rows.
_GATE_UP, _DOWN = "gate_up_proj", "down_proj"
_SHARED = {
    "ffn_gate_exps": (_GATE_UP, slice(0, None, 2)),
    "ffn_up_exps": (_GATE_UP, slice(1, None, 2)),
    "ffn_down_exps": (_DOWN, slice(None)),
}
# The same for an expert's products by Hugging Face's names, where each is a tensor of its own.
_SHARED_NAME = re.compile(r"(?P<experts>.+\.mlp\.experts)\.(?P<shared>\w+_proj)(?P<bias>_bias)?")
_APART = {"gate_proj": "ffn_gate_exps", "up_proj": "ffn_up_exps", "down_proj": "ffn_down_exps"}


@dataclass(frozen=True, slots=True)
class Source:
    """A tensor of a GGUF file to be, and how to read it.

    name    GGUF's, or for a folder Hugging Face's.
    type    GGUF's name of the type that it is already, of floats or blocks.
    pieces  yields its rows from the first to the last, some at a time: float32 [N, I]; asked for
            blocks, which it must be, uint8 [N, B].
    """

    name: str
    shape: tuple[int, ...]
    type: str
    pieces: Callable[[bool], Iterator[Tensor]]


def sources(
    checkpoint: Checkpoint,
    kind: str,
    *,
    num_layers: int,
    num_experts: int,
    head_rows: int,
    is_tied: bool,
) -> list[Source]:
    """Return the tensors that a checkpoint's become, in the order in which to write them.

    head_rows   rows of a head, where GGUF has queries and keys as rotary pairs; else 1.
    is_tied     whether the embedding is the head too, whichever of them the checkpoint has.
    """
    found = []
    for name in gguf_names(kind, num_layers):
        theirs = hf_name(name, kind)
        if is_tied and theirs == _HEAD:
            continue
        if is_tied and theirs == _EMBEDDING and theirs not in checkpoint.stored:
            theirs = _HEAD
        if "{}" in theirs:
            source = _of_experts(checkpoint, name, theirs, num_experts)
        elif theirs in checkpoint.stored:
            rows = head_rows if is_rotated(name) else 1
            source = _single(checkpoint, name, theirs, rows)
        else:
            source = None
        if source is not None:
            found.append(source)
    return found


def _single(checkpoint: Checkpoint, name: str, theirs: str, head_rows: int) -> Source:
    stored = checkpoint.stored[theirs]

    def pieces(as_blocks: bool) -> Iterator[Tensor]:
        return _rows(checkpoint, theirs, stored, head_rows, as_blocks=as_blocks)

    return Source(name, stored.shape, _type_of(stored), pieces)


def plain_sources(checkpoint: Checkpoint, names: Iterable[str]) -> list[Source]:
    """Return weights as a checkpoint has them, under its own names and in its own order.

    What all of gpt-oss's experts share becomes tensors of each, as other mixtures have them.
    """
    found = []
    for name in names:
        shared = _SHARED_NAME.fullmatch(name)
        if shared is None:
            found.append(_single(checkpoint, name, name, 1))
        else:
            found += _apart(checkpoint, name, shared)
    return found


def _apart(checkpoint: Checkpoint, whole: str, shared: re.Match[str]) -> Iterator[Source]:
    """Yield the weights or biases of each expert that a tensor of all of them holds."""
    kind = "bias" if shared["bias"] else "weight"
    for index in range(checkpoint.stored[whole].shape[0]):
        for product, module in _APART.items():
            of_module, rows = _SHARED[module]
            if of_module == shared["shared"]:
                name = f"{shared['experts']}.{index}.{product}.{kind}"
                source = _of_shared(checkpoint, name, whole, rows, range(index, index + 1))
                yield replace(source, shape=source.shape[1:])


def _of_experts(checkpoint: Checkpoint, name: str, theirs: str, num_experts: int) -> Source | None:
    """Return the tensor of all experts, which checkpoints hold one by one, or in gpt-oss's way."""
    names = [theirs.format(index) for index in range(num_experts)]
    if names and all(one in checkpoint.stored for one in names):
        return _stacked(checkpoint, name, names)
    module, kind = name.split(".")[2:]
    shared, rows = _SHARED[module]
    before = theirs.partition(".{}")[0]
    whole = f"{before}.{shared}" if kind == "weight" else f"{before}.{shared}_bias"
    if whole not in checkpoint.stored:
        return None
    return _of_shared(checkpoint, name, whole, rows, range(num_experts))


def _stacked(checkpoint: Checkpoint, name: str, names: list[str]) -> Source:
    """Return the tensor of experts that a checkpoint holds one by one. Raises InvalidRequest."""
    experts = [checkpoint.stored[one] for one in names]
    types = sorted({_type_of(one) for one in experts})
    if len(types) > 1 and set(types) <= set(FLOAT_TYPES.values()):
        types = ["F32"]
    if len(types) > 1:
        raise InvalidRequest(
            f"{name} would hold experts of several types, {', '.join(types)}, and a GGUF file has "
            "one type for all experts of a layer; use the model as it is"
        )

    def one_by_one(as_blocks: bool) -> Iterator[Tensor]:
        for one, stored in zip(names, experts, strict=True):
            yield from _rows(checkpoint, one, stored, 1, as_blocks=as_blocks)

    return Source(name, (len(names), *experts[0].shape), types[0], one_by_one)


def _of_shared(
    checkpoint: Checkpoint, name: str, whole: str, rows: slice, experts: range
) -> Source:
    """Return some rows of each of some experts, out of a tensor that holds all experts."""
    stored = checkpoint.stored[whole]
    expert_shape = stored.shape[1:]
    is_packed, is_bias = stored.format == MXFP4, len(expert_shape) == 1
    if not is_packed and not is_bias:
        expert_shape = expert_shape[::-1]  # floats are stored transposed
    num_rows = len(range(*rows.indices(expert_shape[0])))

    def expert_by_expert(as_blocks: bool) -> Iterator[Tensor]:
        for index in experts:
            if is_packed:
                expert = StoredRows.empty(stored.format, (1, *stored.shape[1:]))
                checkpoint.read_packed_into(whole, index, expert)
                some = expert[0][rows]
                yield _mxfp4_blocks(some) if as_blocks else some.unpack(torch.float32)
            else:
                values = torch.empty((1, *stored.shape[1:]))
                checkpoint.read_rows_into(whole, index, values)
                yield values[:, rows] if is_bias else values[0].T[rows].contiguous()

    shape = (len(experts), num_rows, *expert_shape[1:])
    return Source(name, shape, _type_of(stored), expert_by_expert)


def _mxfp4_blocks(rows: StoredRows) -> Tensor:
    """Return rows that a checkpoint holds in MXFP4 as blocks of GGUF, uint8 [N, B].

    A byte of a checkpoint holds elements 2j and 2j + 1, one of GGUF's j and j + 16.
    """
    codes_NGB, scales_NG = rows.parts
    elements = torch.stack([codes_NGB & 15, codes_NGB >> 4], -1).flatten(2)
    first, second = elements.chunk(2, -1)
    return torch.cat([scales_NG.unsqueeze(-1), first | second << 4], -1).flatten(1)


def _type_of(stored: StoredTensor) -> str:
    """Return GGUF's name of the floats or blocks that a weight is."""
    coding = stored.parts[0].coding
    if coding is not None and coding.type.block_values > 1:
        return coding.type.name
    return FLOAT_TYPES.get(stored.format.name, stored.format.name.upper())


def _rows(
    checkpoint: Checkpoint, name: str, stored: StoredTensor, head_rows: int, *, as_blocks: bool
) -> Iterator[Tensor]:
    """Yield the rows of a tensor, whole heads of them where they become rotary pairs."""
    if len(stored.shape) < 2:
        values = torch.empty(stored.shape)
        checkpoint.read_into(name, values)
        column = _as_pairs(values.view(-1, 1), head_rows)
        yield column.view(1, -1)
        return
    num_rows, width = stored.shape
    step = max(1, PIECE_VALUES // max(1, width * head_rows)) * head_rows
    for first in range(0, num_rows, step):
        count = min(step, num_rows - first)
        if as_blocks:
            rows = checkpoint.read_blocks(name, first, count)
        else:
            rows = torch.empty((count, width))
            checkpoint.read_rows_into(name, first, rows)
        yield _as_pairs(rows, head_rows)


def _as_pairs(rows_NI: Tensor, head_rows: int) -> Tensor:
    """Return whole heads of rows as rotary pairs: 0, D/2, 1, D/2 + 1."""
    if head_rows == 1:
        return rows_NI
    halves = rows_NI.view(-1, 2, head_rows // 2, rows_NI.shape[1])
    return halves.transpose(1, 2).reshape(rows_NI.shape)
