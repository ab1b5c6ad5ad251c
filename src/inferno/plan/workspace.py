"""Compute the memory of a model's steps: what its layers allocate, and what kernels pack.

On a CPU results lie in an arena, in the first gap that is large enough (native/runtime/arena.h), so
a step's extent follows from the order in which they are made and dropped.
"""

from __future__ import annotations

import math
from collections.abc import Collection

from inferno.config.decoder import DecoderConfig
from inferno.options import EngineOptions
from inferno.plan.cache import CacheShape
from inferno.plan.choices import SMALL_STEP
from inferno.quantization import FORMATS, InputRounding

# What requests, threads and the event loop take once tokens were made. Measured as the base is.
_RUNNING_BYTES = 6_000_000
_SLOT_BYTES = 8  # of an id of tables and experts
_FLOAT_BYTES = 4
_PACKED_ROWS = 512  # that kernels pack at a time (native/kernels/linear/product.h)
_INT8_BYTES = 1.25  # of a packed value, with its share of scales (packed_activations.h)
# Of a step's logits: a copy from before penalties, and what likeliest tokens are found in. Measured
# with 64 requests of a vocabulary of 152,000.
_TELLING_LOGITS = 2.5
_LAYERS = 3  # from the second on each is as the one before; where the last ends may differ once


def step_bytes(
    decoder: DecoderConfig,
    options: EngineOptions,
    dtype: str,
    weights: Collection[str],
    cache: CacheShape,
    context: int,
) -> int:
    """Return the bytes of full steps, with the data of requests.

    weights  the formats in which weights are kept.
    """
    num_tokens = min(options.max_num_batched_tokens, options.max_num_seqs * context)
    num_tokens = max(SMALL_STEP, num_tokens)
    # Recorded steps have an arena of their own; but for small steps one of the two is in use
    # (engine/execution/local.py).
    in_arenas = num_tokens + (SMALL_STEP if options.graphs else 0)
    value = FORMATS[dtype].code_bits // 8
    results = in_arenas * token_extent(decoder, value)
    rows = min(num_tokens, _PACKED_ROWS)
    packed = math.ceil(rows * _packed_bytes(decoder, options, value, weights))
    return _RUNNING_BYTES + results + packed + tables_and_logits(decoder, options, cache, context)


def tables_and_logits(
    decoder: DecoderConfig, options: EngineOptions, cache: CacheShape, context: int
) -> int:
    """Return the bytes of the requests' block tables, and of the rows that tokens are drawn of."""
    rows = max(SMALL_STEP, options.max_num_seqs)
    tables = len(cache.windows) * rows * math.ceil(context / cache.block_size) * _SLOT_BYTES
    return tables + _FLOAT_BYTES * options.max_num_seqs * decoder.vocab_size


def bytes_of_telling(decoder: DecoderConfig, options: EngineOptions) -> int:
    """Return what steps take more if all requests ask for log-probabilities beside penalties."""
    return int(_TELLING_LOGITS * _FLOAT_BYTES * options.max_num_seqs * decoder.vocab_size)


def token_extent(decoder: DecoderConfig, value: int) -> int:
    """Return the bytes of an arena that a step reaches, for each of its tokens.

    value  the bytes of an activation.
    """
    size = value * decoder.hidden_size
    queries = value * decoder.num_heads * decoder.head_dim
    keys = value * decoder.num_kv_heads * decoder.head_dim
    mixture = decoder.mixture
    arena = _Arena()
    arena.take(_FLOAT_BYTES * decoder.head_dim)  # cosines and sines, in float32
    x, residual = arena.take(size), None  # the embedding, which the step holds to its end
    for layer, has_mixture in enumerate(_layers(decoder)):
        given = (x, residual)
        normed = arena.take(size)
        after = [normed] if residual is None else [normed, arena.take(size)]
        made = [arena.take(queries + 2 * keys), arena.take(queries), arena.take(queries)]
        output = arena.take(size)
        arena.give_back(*made, normed)
        normed, stream = arena.take(size), arena.take(size)
        arena.give_back(output, *after[1:])
        if mixture is None or not has_mixture:
            inner = [arena.take(value * decoder.intermediate_size)]
        else:
            chosen = mixture.num_chosen
            counts = (value * mixture.num_experts, _SLOT_BYTES * chosen, _FLOAT_BYTES * chosen)
            inner = [arena.take(count) for count in counts]
        x, residual = arena.take(size), stream
        arena.give_back(*inner, normed)
        if layer:
            arena.give_back(*(place for place in given if place is not None))
    return arena.extent


def _layers(decoder: DecoderConfig) -> list[bool]:
    """Return whether layers have a mixture: the first ones, and one of a kind that comes later."""
    if decoder.mixture is None:
        return [False] * _LAYERS
    layers = decoder.mixture.layers
    first = [layers[min(layer, len(layers) - 1)] for layer in range(_LAYERS)]
    return [*first, *(set(layers) - {*first[1:]})]


def _packed_bytes(
    decoder: DecoderConfig, options: EngineOptions, value: int, weights: Collection[str]
) -> float:
    """Return the bytes of a token's inputs as kernels pack them for the largest product."""
    formats = [FORMATS[name] for name in weights]
    is_rounded = any(format.inputs is not InputRounding.NOTHING for format in formats)
    packed: float = value
    if is_rounded:
        packed = _INT8_BYTES if options.activations == "int8" else 2
    size, mixture = decoder.hidden_size, decoder.mixture
    inner = 0
    if mixture is None or not all(mixture.layers):
        inner = decoder.intermediate_size
    largest = packed * max(size, decoder.num_heads * decoder.head_dim, inner)
    if mixture is None:
        return largest
    # Sorted rows: gated values, in whose place outputs come, and both products' inputs.
    of_a_choice = value * max(mixture.size, size) + packed * (mixture.size + size)
    return max(largest, mixture.num_chosen * of_a_choice)


class _Arena:
    """Places of results as the kernels' arena has them."""

    def __init__(self) -> None:
        self._taken: list[tuple[int, int]] = []
        self.extent = 0

    def take(self, count: int) -> tuple[int, int]:
        begin = 0
        for start, end in sorted(self._taken):
            if start - begin >= count:
                break
            begin = max(begin, end)
        place = (begin, begin + count)
        self._taken.append(place)
        self.extent = max(self.extent, place[1])
        return place

    def give_back(self, *places: tuple[int, int]) -> None:
        for place in places:
            self._taken.remove(place)
