"""Compute the memory that a model will take, for `inferno plan` and for the engine.

Only memory that a process has for itself is counted: pages of files, and of libraries, belong to
the system, which shares them between processes and takes them back.
"""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from inferno import quantization
from inferno.compiled_kernels import computes_bfloat16
from inferno.config.decoder import DecoderConfig
from inferno.errors import InvalidRequest
from inferno.gguf.tensor_types import BY_NAME, FLOAT_TYPES
from inferno.hub.facts import Tensor
from inferno.machine import has_bfloat16
from inferno.options import EngineOptions
from inferno.plan.cache import CacheShape
from inferno.plan.choices import (
    MEMORY_SHARE,
    asked_dtype,
    choose_dtype,
    choose_kv_dtype,
    choose_num_blocks,
    choose_num_host_blocks,
    is_quantized,
)
from inferno.plan.shape import ModelShape
from inferno.plan.workspace import bytes_of_telling, step_bytes, tables_and_logits
from inferno.quantization import E4M3, FORMATS, FP8, MXFP4, WeightFormat

# Python with PyTorch and inferno, before any model. Measured on Linux, x86-64, Python 3.11,
# PyTorch 2.13 for CPUs.
BASE_BYTES = 158_000_000
# Of a bound, left free by the cache: processes took up to 1.9 % more than was planned, where
# benchmarks/plan_memory.py measured it.
_BOUND_MARGIN = 0.02
# A server comes to take so much more than when its engine starts: each of the children that render
# chat templates, and connections, requests and texts. Measured by 64 completions and chats of demo.
SERVER_CHILD_BYTES, SERVER_GROWTH_BYTES = 7_000_000, 6_000_000

# A tokenizer's vocabulary and merges, by its tokens; while it is made, what the file has of them is
# there too. The lists of a GGUF file's header stay until its weights are loaded. Measured on
# vocabularies of 32,000 to 200,000 tokens, of GGUF files up to 152,000.
_TOKEN_BYTES, _GGUF_LIST_TOKEN_BYTES = 340, 160
_MAKING_BYTES_OF_FILE, _MAKING_GGUF_TOKEN_BYTES = 13, 880

CHUNK_BYTES = 4 << 20  # weights/staging.py's, which can't be asked without torch
# What the cache of a draft model keeps at the least, where a request may be as long: with less it
# would guess for hardly any. And the share of both caches that it may have where that leaves the
# model's own less than was wanted.
DRAFT_FLOOR_TOKENS = 1024
_DRAFT_SHARE = 0.25
BLOCK_BOOK_BYTES = 500  # what the block manager keeps of a block: its keys, tables and counts
# What the n-gram proposer notes of a token, in tables of pairs and threes. The engine bounds all of
# it, but only caches of tens of gigabytes hold so many tokens.
_NOTED_TOKEN_BYTES = 32
_OF_ALL_EXPERTS = (".experts.gate_up_proj", ".experts.down_proj")
# A product of one expert, or of a GGUF file's all; gates and ups, w1 and w3, are one weight here.
_OF_AN_EXPERT = re.compile(r"(.+\.experts)\.(?:\d+|\{\})\.(?:(down_proj|w2)|\w+)\.weight")


@dataclass(frozen=True, slots=True, kw_only=True)
class Unpacked:
    """The bytes, before and after, of weights in a file's type that are kept in another format.

    error  what that changes, as a share of the values; None where they are quantized anew.
    """

    kept_as: str
    error: float | None
    file_bytes: int
    kept_bytes: int


_NOTHING = Unpacked(kept_as="", error=0.0, file_bytes=0, kept_bytes=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class DraftPlan:
    """The bytes that a draft model takes beside the model for which it guesses.

    The fields are the same as of Plan. The draft's steps use the workspace of the model's own
    steps.
    """

    dtype: str
    kv_dtype: str
    weights: Mapping[str, int]
    cache: CacheShape
    num_blocks: int
    buffers: int
    workspace: int

    @property
    def weights_bytes(self) -> int:
        """Return the bytes of all weights."""
        return sum(self.weights.values())

    @property
    def cache_bytes(self) -> int:
        """Return the bytes of the whole KV cache, with its scratch block."""
        return (self.num_blocks + 1) * self.cache.block_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The bytes that a model will take on a CPU, or of a GPU's own memory.

    weights         bytes by the name of the format in which weights are kept.
    unpacked        by the type in the files, GGUF's or FP8: weights that are kept in another
                    format.
    base            Python and its libraries; on a GPU what CUDA has there before the model.
    text            the tokenizer; making_text: the most while the tokenizer is made.
    buffers         through which weights pass while they are loaded, and a GGUF header's lists.
    workspace       of full steps: activations, logits, and data of requests.
    room            what the process may have in all; None if unknown.
    is_bound        whether `room` is set by --memory, or by the share of a GPU's memory.
    num_host_blocks of keys and values that preempted sequences keep beside the cache.
    draft           the draft model's part; None without one.
    gpu_total       the whole memory of the GPU; None: on the CPU.
    """

    dtype: str
    kv_dtype: str
    weights: Mapping[str, int]
    unpacked: Mapping[str, Unpacked]
    cache: CacheShape
    num_blocks: int
    context: int
    max_num_seqs: int
    max_chunk: int
    base: int
    text: int
    making_text: int
    buffers: int
    workspace: int
    room: int | None
    is_bound: bool
    num_host_blocks: int = 0
    draft: DraftPlan | None = None
    gpu_total: int | None = None

    @property
    def weights_bytes(self) -> int:
        """Return the bytes of all weights."""
        return sum(self.weights.values())

    @property
    def loaded_bytes(self) -> int:
        """Return the bytes in use once the models are loaded, before anything is computed."""
        of_draft = 0 if self.draft is None else self.draft.weights_bytes
        return self.base + self.text + self.weights_bytes + of_draft

    @property
    def loading_bytes(self) -> int:
        """Return the most bytes in use while the models are loaded."""
        of_draft = 0 if self.draft is None else self.draft.buffers
        buffers = max(self.buffers, of_draft)
        return max(self.base + self.making_text, self.loaded_bytes + buffers)

    @property
    def cache_bytes(self) -> int:
        """Return the bytes of the whole KV cache, with its scratch block; 0 where none fits."""
        return (self.num_blocks + 1) * self.cache.block_bytes if self.num_blocks else 0

    @property
    def swap_bytes(self) -> int:
        """Return the most bytes that preempted sequences keep in host memory."""
        return self.num_host_blocks * self.cache.block_bytes

    @property
    def total_bytes(self) -> int:
        """Return the bytes in use once each block of the caches was written."""
        of_draft = 0 if self.draft is None else self.draft.workspace + self.draft.cache_bytes
        return self.loaded_bytes + self.workspace + self.cache_bytes + self.swap_bytes + of_draft

    @property
    def fits(self) -> bool:
        """Return whether the plan fits in its room, at both peaks; True if the room is unknown."""
        if not self.num_blocks:
            return False
        return self.room is None or max(self.loading_bytes, self.total_bytes) <= self.room

    def num_requests(self, context: int) -> int:
        """Return how many requests of so many tokens the cache holds at once."""
        at_once = self.num_blocks // self.cache.num_blocks(context, self.max_chunk)
        return min(at_once, self.max_num_seqs)

    @property
    def longest(self) -> int:
        """Return the most tokens that one request may have."""
        low, high = 0, self.context
        while low < high:
            middle = (low + high + 1) // 2
            if self.cache.num_blocks(middle, self.max_chunk) <= self.num_blocks:
                low = middle
            else:
                high = middle - 1
        return low


def make_plan(
    shape: ModelShape,
    options: EngineOptions,
    available: int | None,
    *,
    base: int = BASE_BYTES,
    has_text: bool = True,
    others: int = 0,
    gpu_total: int | None = None,
    draft: ModelShape | None = None,
) -> Plan:
    """Return the plan of a model on a CPU, or on a GPU, of which only the own memory is counted.

    available  the bytes that a new process can have now; None if unknown.
    gpu_total  the whole memory of the GPU, of which the engine may take a share.
    base       what the process has before the model.
    has_text   whether the tokenizer will be made in the same process.
    others     bytes of the server's process, which count towards --memory too.
    draft      a draft model's shape, whose cache is for as many tokens where there is room.

    Raises ConfigError and InvalidRequest where config.json or an option is impossible.
    """
    is_cpu = gpu_total is None
    dtype, kv_dtype, quantize = _formats(shape, options, is_cpu=is_cpu)
    limit = options.memory_bytes if gpu_total is None else int(gpu_total * options.gpu_share)
    room = available if limit is None else max(0, limit - others)
    if room is not None and available is not None:
        room = min(room, available)
    cache = CacheShape(shape.caches, kv_dtype, options.block_size)
    context = _context(shape.decoder, options)
    text, making_text, lists = _text_bytes(shape) if has_text else (0, 0, 0)
    weights, unpacked = _weights(shape, dtype, quantize, is_cpu=is_cpu)
    workspace = step_bytes(shape.decoder, options, dtype, weights, cache, context)
    num_host_blocks = 0  # of a GPU's plan, for they aren't in its memory
    if is_cpu:
        num_host_blocks = choose_num_host_blocks(
            options.preemption, options.swap_space, cache.block_bytes, is_cuda=False
        )
    workspace += num_host_blocks * BLOCK_BOOK_BYTES
    needed = base + text + sum(weights.values()) + workspace
    needed += num_host_blocks * cache.block_bytes
    beside = None if draft is None else _draft_plan(draft, options, context, is_cpu=is_cpu)
    if beside is not None:
        least_bytes = beside.cache_bytes + beside.num_blocks * BLOCK_BOOK_BYTES
        needed += beside.weights_bytes + beside.workspace + least_bytes
    free = None if room is None else room - needed
    margin = 0
    if is_cpu and limit is not None:
        margin = max(int(limit * _BOUND_MARGIN), bytes_of_telling(shape.decoder, options))
    num_blocks = options.num_blocks or _fitting_blocks(
        cache,
        free,
        margin=margin,
        is_bound=limit is not None,
        context=context,
        options=options,
    )
    if beside is not None and num_blocks:
        num_blocks, num_drafted = _shared_blocks(
            cache, num_blocks, beside, free, options, context, is_bound=limit is not None
        )
        beside = replace(
            beside,
            num_blocks=num_drafted,
            workspace=beside.workspace + num_drafted * BLOCK_BOOK_BYTES,
        )
    return Plan(
        dtype=dtype,
        kv_dtype=kv_dtype,
        weights=weights,
        unpacked=unpacked,
        cache=cache,
        num_blocks=num_blocks,
        context=context,
        max_num_seqs=options.max_num_seqs,
        max_chunk=options.max_num_batched_tokens,
        base=base,
        text=text,
        making_text=making_text,
        buffers=_buffers(shape, unpacked, quantize) + lists,
        workspace=workspace + num_blocks * _book_bytes(cache),
        room=room,
        is_bound=limit is not None and room == limit - others,
        num_host_blocks=num_host_blocks,
        draft=beside,
        gpu_total=gpu_total,
    )


def _formats(
    shape: ModelShape, options: EngineOptions, *, is_cpu: bool
) -> tuple[str, str, str | None]:
    """Return what is computed with, what keys and values are kept in, and what packs weights."""
    dtype = choose_dtype(
        asked_dtype(options.dtype, options.quantize, is_cpu=is_cpu),
        shape.config,
        is_cpu=is_cpu,
        computes_bfloat16=computes_bfloat16(),
    )
    quantize = None if options.quantize == "none" else options.quantize
    kv_dtype = choose_kv_dtype(
        options.kv_dtype,
        dtype,
        is_quantized=is_quantized(options.quantize, options.dtype, shape.config, is_cpu=is_cpu),
        has_bfloat16=has_bfloat16() or not is_cpu,
    )
    return dtype, kv_dtype, quantize


def _draft_plan(
    shape: ModelShape, options: EngineOptions, context: int, *, is_cpu: bool
) -> DraftPlan:
    """Return the plan of a draft model with the least cache that it can have.

    context  of the model for which it guesses.
    """
    dtype, kv_dtype, quantize = _formats(shape, options, is_cpu=is_cpu)
    cache = CacheShape(shape.caches, kv_dtype, options.block_size)
    context = min(context, _context(shape.decoder, replace(options, max_model_len=None)))
    weights, unpacked = _weights(shape, dtype, quantize, is_cpu=is_cpu)
    least = math.ceil(min(context, DRAFT_FLOOR_TOKENS) / options.block_size)
    return DraftPlan(
        dtype=dtype,
        kv_dtype=kv_dtype,
        weights=weights,
        cache=cache,
        num_blocks=least * len(cache.windows),
        buffers=_buffers(shape, unpacked, quantize),
        workspace=tables_and_logits(shape.decoder, options, cache, context),
    )


def _shared_blocks(
    cache: CacheShape,
    num_blocks: int,
    draft: DraftPlan,
    free: int | None,
    options: EngineOptions,
    context: int,
    *,
    is_bound: bool,
) -> tuple[int, int]:
    """Return the blocks of the model's cache and of the draft model's.

    The draft's is for as many tokens. Where there is no room for both, it has a share of what there
    is, and no more than leaves the model's own enough for a request of the whole context; but
    always its least.

    num_blocks  that the model's has where the draft's has its least.
    free        what is left for both beside that least; None: nobody can tell.
    """
    least = draft.num_blocks
    per_token = len(draft.cache.windows) / len(cache.windows)  # blocks, for one of the model's
    wanted = max(least, math.ceil(num_blocks * per_token))
    if free is None:
        return num_blocks, wanted
    own_bytes = cache.block_bytes + _book_bytes(cache)
    draft_bytes = draft.cache.block_bytes + BLOCK_BOOK_BYTES
    room = int(free * (1.0 if is_bound else MEMORY_SHARE)) - own_bytes  # and a scratch block
    left = room - num_blocks * own_bytes
    if left >= (wanted - least) * draft_bytes:
        return num_blocks, wanted
    if options.num_blocks is not None:
        return num_blocks, max(least, min(wanted, least + left // draft_bytes))
    one = min(num_blocks, cache.num_blocks(context, options.max_num_batched_tokens))
    spared = min(room * _DRAFT_SHARE, room - one * own_bytes)
    of_both = int((room + least * draft_bytes) / (own_bytes + per_token * draft_bytes))
    of_draft = min(math.ceil(of_both * per_token) - least, int(max(spared, left) / draft_bytes))
    of_draft = max(0, of_draft)
    return min(num_blocks, (room - of_draft * draft_bytes) // own_bytes), least + of_draft


def kept_formats(
    tensors: Iterable[Tensor], dtype: str, quantize: str | None, *, is_cpu: bool = True
) -> Iterator[tuple[Tensor, WeightFormat]]:
    """Yield the tensors of a checkpoint, and the format in which each is kept.

    Kernels take all experts of a layer in one format: where files mix formats, they become floats.
    """
    tensors = list(tensors)
    stored: defaultdict[tuple[str, ...], set[str]] = defaultdict(set)
    for tensor in tensors:
        kept = quantization.kept_blocks(tensor.dtype, has_kernels=True)
        stored[_weight_of(tensor)].add(tensor.dtype if kept is None else kept.name)
    for tensor in tensors:
        is_mixed = len(stored[_weight_of(tensor)]) > 1
        one = replace(tensor, dtype="F32") if is_mixed else tensor
        yield tensor, _kept_format(one, dtype, quantize, is_cpu=is_cpu)


def _weight_of(tensor: Tensor) -> tuple[str, ...]:
    """Return what tells the weight of which a tensor is a part, as far as experts go."""
    found = _OF_AN_EXPERT.fullmatch(tensor.name)
    return (tensor.name,) if found is None else (found[1], found[2] or "")


def _kept_format(tensor: Tensor, dtype: str, quantize: str | None, *, is_cpu: bool) -> WeightFormat:
    """Return the format in which a tensor of a checkpoint is kept."""
    if any(tensor.name.endswith(part.suffix) for part in MXFP4.parts):
        return MXFP4
    # Checkpoints call gate what models here call router, and all experts' products no weights.
    name = re.sub(r"\.gate\.weight$", ".router.weight", tensor.name)
    name = f"{name}.weight" if _is_of_all_experts(tensor) else name
    # Blocks stay what they are where kernels run, which compute in these two.
    stays = is_cpu and dtype != "float16"
    stored = quantization.kept_blocks(tensor.dtype, has_kernels=stays)
    if tensor.dtype == E4M3 and not is_cpu:
        stored = FP8
    return quantization.keep(name, len(tensor.shape), stored, FORMATS[dtype], quantize)


def kept_bytes(tensor: Tensor, format: WeightFormat) -> int:
    """Return the bytes of a tensor in a format, with rows filled up to whole groups."""
    if any(tensor.name.endswith(part.suffix) for part in MXFP4.parts):
        return math.prod(tensor.shape)  # they are bytes
    if len(tensor.shape) < 2:
        return math.ceil(math.prod(tensor.shape) * format.bits / 8)
    *leading, width = tensor.shape
    if _is_of_all_experts(tensor):
        leading[-1], width = width, leading[-1]
    unit = format.row_unit
    return math.ceil(math.prod(leading) * -(-width // unit) * unit * format.bits / 8)


def _is_of_all_experts(tensor: Tensor) -> bool:
    """Say whether these are a product of all experts in floats, which gpt-oss has transposed."""
    return len(tensor.shape) == 3 and tensor.name.endswith(_OF_ALL_EXPERTS)


def _book_bytes(cache: CacheShape) -> int:
    """Return what is kept of a block beside its keys and values, and noted of its tokens."""
    return BLOCK_BOOK_BYTES + cache.block_size * _NOTED_TOKEN_BYTES // len(cache.windows)


def _fitting_blocks(
    cache: CacheShape,
    free: int | None,
    *,
    margin: int,
    is_bound: bool,
    context: int,
    options: EngineOptions,
) -> int:
    """Return how many blocks the cache gets; 0 where not even one fits.

    margin  bytes that it leaves free, if it holds a request of the whole context without them.
    """
    per_block = cache.block_bytes + _book_bytes(cache)
    if free is not None and free < 4 * per_block:
        return 0
    if free is not None:
        one_request = (
            max(4, cache.num_blocks(context, options.max_num_batched_tokens) + 1) * per_block
        )
        free = max(min(free, one_request), free - margin)
    scratch = per_block  # the one that nobody reads
    return choose_num_blocks(
        per_block,
        None if free is None else free - scratch,
        block_size=cache.block_size,
        num_groups=len(cache.windows),
        most_tokens=options.max_num_seqs * context,
        share=1.0 if is_bound else MEMORY_SHARE,
    )


def _weights(
    shape: ModelShape, dtype: str, quantize: str | None, *, is_cpu: bool
) -> tuple[dict[str, int], dict[str, Unpacked]]:
    """Return the bytes of weights by format, and what of GGUF's blocks and FP8 changes."""
    weights: Counter[str] = Counter()
    unpacked: dict[str, Unpacked] = {}
    for tensor, kept in kept_formats(shape.tensors, dtype, quantize, is_cpu=is_cpu):
        count = kept_bytes(tensor, kept)
        weights[kept.name] += count
        is_coded = tensor.dtype in BY_NAME and tensor.dtype not in FLOAT_TYPES
        is_block = shape.is_gguf and is_coded and tensor.dtype.lower() != kept.name
        if is_block or (tensor.dtype == E4M3 and not kept.takes_exactly(FP8)):
            before = unpacked.get(tensor.dtype, _NOTHING)
            names = {*filter(None, before.kept_as.split(", ")), kept.name}
            num_values = math.prod(tensor.shape)
            error = quantization.error_of(tensor.dtype, kept)
            size = BY_NAME[tensor.dtype].num_bytes(num_values) if is_block else num_values
            unpacked[tensor.dtype] = Unpacked(
                kept_as=", ".join(sorted(names)),
                error=None if before.error is None or error is None else max(before.error, error),
                file_bytes=before.file_bytes + size,
                kept_bytes=before.kept_bytes + count,
            )
    return dict(weights), unpacked


def _buffers(shape: ModelShape, unpacked: Mapping[str, Unpacked], quantize: str | None) -> int:
    """Return the memory through which weights pass: a chunk of values, and it as stored.

    unpacked  where blocks become floats: then a chunk's codes, values and rows in another order are
              there too, and what they leave of the heap.
    quantize  where floats are quantized: then twice as much is taken, as measured.
    """
    largest = max(math.prod(tensor.shape) for tensor in shape.tensors)
    chunks = 6 if unpacked else 4 if quantize else 2
    return chunks * min(CHUNK_BYTES, 4 * largest)


def _text_bytes(shape: ModelShape) -> tuple[int, int, int]:
    """Return what a tokenizer takes, the most while it is made, and what the file's lists take."""
    vocab = shape.decoder.vocab_size
    size = _TOKEN_BYTES * vocab
    if shape.is_gguf:
        return size, _MAKING_GGUF_TOKEN_BYTES * vocab, _GGUF_LIST_TOKEN_BYTES * vocab
    size = min(size, 10 * shape.tokenizer_bytes)
    return size, max(size, _MAKING_BYTES_OF_FILE * shape.tokenizer_bytes), 0


def _context(decoder: DecoderConfig, options: EngineOptions) -> int:
    most = decoder.max_model_len
    if options.max_model_len is not None and options.max_model_len > most:
        raise InvalidRequest(
            f"max_model_len must be at most the model's context of {most} tokens, "
            f"not {options.max_model_len}",
            param="max_model_len",
        )
    return options.max_model_len or most
