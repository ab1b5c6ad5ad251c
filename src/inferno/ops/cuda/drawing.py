"""Draw tokens in kernels, with the bits of ops/reference/sampling.py; `sampling` launches them.

Weights are whole numbers, so sums are exact in any order, and a row's token depends on nothing but
that row, however it is cut. No row is ordered. Of tokens by rank a draw needs three places: where
top-k ends, where top-p ends, and where the random number points. Each is the largest logit t such
that the tokens of at least t have some count or mass, and then a number of those that equal t, by
id. `weigh` measures what lies above the rungs of a ladder below the peak; `pick` chooses the first
rung that has enough above it (and draws right away where there is no cut); `gather` lists the
tokens above it, some hundreds as a rule; `finish` finds t among these, 4 bits of 32 at a time.

A program takes a chunk of a row, so that one row keeps the whole chip busy. A tile has several rows
only in tests, which Triton's interpreter runs faster so. Letters as in ops, and: S chunks, L rungs,
F fields of a SamplingSpec.
"""

from __future__ import annotations

import triton
import triton.language as tl

from inferno.ops.reference.sampling import (
    LEAST_EXPONENT,
    LN2_HIGH,
    LN2_LOW,
    LOG2_E,
    POLYNOMIAL,
)

_LEAST_EXPONENT = tl.constexpr(LEAST_EXPONENT)
_LOG2_E = tl.constexpr(LOG2_E)
_LN2_HIGH = tl.constexpr(LN2_HIGH)
_LN2_LOW = tl.constexpr(LN2_LOW)
_P0, _P1, _P2, _P3, _P4, _P5 = map(tl.constexpr, POLYNOMIAL)
# A float32 of at least 2**23 is a whole number, so adding this and taking it away rounds to one.
_WHOLE = tl.constexpr(2.0**23)
_SIGN = tl.constexpr(0x80000000)
_NEVER = tl.constexpr(float("-inf"))
# Rungs are a multiple of this below the peak, in units of the temperature: a choice, for which
# some rung below the peak has tens, and some hundreds of a language model's tokens above it.
_RUNG = tl.constexpr(1.5)
# All tokens that weigh anything lie above the last one: 2**53 e^-40 rounds to 0.
_LAST_RUNG = tl.constexpr(40.0)
_DIGITS = tl.constexpr(16)  # of a selection's step: 4 bits


@triton.jit
def load_logits(logits, allowed, row, token, is_inside, logits_stride_r, vocab_size):
    """Return logits, with minus infinity where a token isn't allowed or doesn't exist."""
    logit = tl.load(logits + row * logits_stride_r + token, is_inside, other=_NEVER)
    if allowed is not None:
        num_words = (vocab_size + 31) // 32
        word = tl.load(allowed + row * num_words + token // 32, is_inside, other=0)
        logit = tl.where(((word >> (token % 32)) & 1) != 0, logit, _NEVER)
    return logit


@triton.jit
def _scaled(logit, peak, inverse_temperature):
    # The peak goes first, so that no temperature, however small, can overflow.
    return (logit - peak) * inverse_temperature


@triton.jit
def _weigh(scaled, least, unit):
    """Return weights, int64. Every step rounds: compiled with enable_fp_fusion=False."""
    x = tl.maximum(scaled, _LEAST_EXPONENT)
    # 1.5 * 2**23, for n is negative.
    n = (x * _LOG2_E + 1.5 * _WHOLE) - 1.5 * _WHOLE
    r = (x - n * _LN2_HIGH) + n * _LN2_LOW
    power = ((n.to(tl.int32) + 127) << 23).to(tl.float32, bitcast=True)
    p = r * _P0 + _P1
    p = p * r + _P2
    p = p * r + _P3
    p = p * r + _P4
    p = p * r + _P5
    p = p * (r * r) + (r + 1.0)
    weight = (p * power) * unit
    weight = tl.where(weight < _WHOLE, (weight + _WHOLE) - _WHOLE, weight)
    return tl.where(weight >= least, weight, 0.0).to(tl.int64)


@triton.jit
def ordinal(logit):
    """Return int32 numbers that sort as float32 values do: the values' bits, reversed below 0."""
    bits = tl.where(logit == 0.0, 0, logit.to(tl.int32, bitcast=True))
    return bits ^ ((bits >> 31) & 0x7FFFFFFF)


@triton.jit
def logit_of(number):
    """Return the float32 value that has a given ordinal."""
    return (number ^ ((number >> 31) & 0x7FFFFFFF)).to(tl.float32, bitcast=True)


@triton.jit
def _key(logit):
    """Return uint32 numbers in the order of float32 values."""
    return ordinal(logit).to(tl.uint32, bitcast=True) ^ _SIGN


@triton.jit
def _target(mass, uniform):
    """Point into a mass by a random number: at a whole number from 0 to below the mass."""
    wide = mass.to(tl.float64)
    return tl.minimum(wide * uniform, wide - 1.0).to(tl.int64)  # rounds down, as it is positive


@triton.jit
def _field(fields, number, row, is_row, num_rows):
    return tl.load(fields + number * num_rows + row, is_row, other=0.0)


@triton.jit
def _load_scale(fields, peak, row, is_row, num_rows, unit):
    """Return which rows are drawn, and their peaks, inverse temperatures and least weights."""
    top = tl.load(peak + row, is_row, other=_NEVER)
    is_drawn = is_row & (tl.abs(top) < float("inf"))
    # Both ways are written out, for Triton compiles what follows a return.
    if fields is None:
        inverse_temperature = tl.full(top.shape, 1.0, tl.float32)
        least = tl.zeros(top.shape, tl.float32)
    else:
        is_drawn = is_drawn & (_field(fields, 1, row, is_row, num_rows) >= 0.0)
        inverse_temperature = _field(fields, 0, row, is_row, num_rows).to(tl.float32)
        least = (_field(fields, 3, row, is_row, num_rows) * unit).to(tl.float32)
    return is_drawn, top, inverse_temperature, least


@triton.jit(do_not_specialize=["num_rows", "num_chunks", "count_shift"])
def weigh_kernel(
    logits,
    allowed,
    peak,
    fields,
    above,
    num_rows,
    vocab_size,
    num_chunks,
    logits_stride_r,
    unit,
    count_shift,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
    RUNGS: tl.constexpr,
):
    """Measure the mass and the number of tokens that a chunk has above each rung, in one word."""
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS).to(tl.int64)
    is_drawn, top, inverse_temperature, least = _load_scale(
        fields, peak, row, row < num_rows, num_rows, unit
    )
    if tl.max(is_drawn.to(tl.int32)) > 0:
        chunk = tl.program_id(1)
        token = chunk * BLOCK + tl.arange(0, BLOCK)[None, :]
        is_inside = is_drawn[:, None] & (token < vocab_size)
        logit = load_logits(
            logits, allowed, row[:, None], token, is_inside, logits_stride_r, vocab_size
        )
        scaled = _scaled(logit, top[:, None], inverse_temperature[:, None])
        scaled = tl.where(is_inside, scaled, _NEVER)
        word = _weigh(scaled, least[:, None], unit) + (tl.full((1, 1), 1, tl.int64) << count_shift)
        for rung in tl.static_range(RUNGS):
            bound = -_LAST_RUNG if rung == RUNGS - 1 else -_RUNG * (rung + 1)
            total = tl.sum(tl.where(scaled > bound, word, 0), axis=1)
            tl.store(above + (rung * num_rows + row) * num_chunks + chunk, total, is_drawn)


@triton.jit
def _counts(words, count_shift):
    return (words.to(tl.uint64, bitcast=True) >> count_shift.to(tl.uint64)).to(tl.int64)


@triton.jit
def _masses(words, count_shift):
    return words & ((tl.full((1, 1), 1, tl.int64) << count_shift) - 1)


@triton.jit(
    do_not_specialize=["num_rows", "num_chunks", "count_shift", "capacity"],
    do_not_specialize_on_alignment=["uniform"],
)
def pick_kernel(
    logits,
    allowed,
    peak,
    fields,
    uniform,
    above,
    mass,
    picked,
    begin,
    out,
    num_rows,
    vocab_size,
    num_chunks,
    logits_stride_r,
    out_stride_r,
    unit,
    count_shift,
    capacity,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
    RUNGS: tl.constexpr,
    CHUNKS: tl.constexpr,
):
    """Draw the tokens of rows without a cut; for other rows, pick the rung with enough above it.

    mass [R]        of all tokens.
    picked [3, R]   int32: the rung; the tokens above it, or -1 if that's more than the capacity;
                    the top-k, or 0 if it takes in all tokens that weigh anything.
    begin [R, S]    int32: how many of the tokens above the rung lie before a chunk.
    """
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS).to(tl.int64)
    is_row = row < num_rows
    is_drawn, top, inverse_temperature, least = _load_scale(
        fields, peak, row, is_row, num_rows, unit
    )
    top_k = _field(fields, 1, row, is_row, num_rows).to(tl.int64)
    top_p = _field(fields, 2, row, is_row, num_rows)
    is_cut = is_drawn & ((top_k > 0) | (top_p < 1.0))
    chunk = tl.arange(0, CHUNKS)[None, :]
    is_chunk = is_drawn[:, None] & (chunk < num_chunks)
    places = above + row[:, None] * num_chunks + chunk
    rung_stride = num_rows.to(tl.int64) * num_chunks
    last = tl.load(places + (RUNGS - 1) * rung_stride, is_chunk, other=0)
    masses = _masses(last, count_shift)
    total = tl.sum(masses, axis=1)

    is_whole = is_drawn & (is_cut == 0)
    if tl.max(is_whole.to(tl.int32)) > 0:
        target = _target(total, tl.load(uniform + row, is_row, other=0.0))
        end = tl.cumsum(masses, axis=1)
        is_before = is_chunk & (end <= target[:, None])
        rest = target - tl.max(tl.where(is_before, end, 0), axis=1)
        first = tl.sum(is_before.to(tl.int32), axis=1) * BLOCK
        place = tl.arange(0, BLOCK)[None, :]
        token = first[:, None] + place
        is_inside = is_whole[:, None] & (token < vocab_size)
        logit = load_logits(
            logits, allowed, row[:, None], token, is_inside, logits_stride_r, vocab_size
        )
        scaled = _scaled(logit, top[:, None], inverse_temperature[:, None])
        scaled = tl.where(is_inside, scaled, _NEVER)
        end = tl.cumsum(_weigh(scaled, least[:, None], unit), axis=1)
        drawn = first + tl.sum((end <= rest[:, None]).to(tl.int32), axis=1)
        tl.store(out + row * out_stride_r, drawn.to(tl.int64), is_whole)

    if RUNGS > 1:  # noqa: SIM102 - Triton evaluates both sides of an `and`
        if tl.max(is_cut.to(tl.int32)) > 0:
            least_mass = top_p * total.to(tl.float64)
            all_listed = tl.sum(_counts(last, count_shift), axis=1)
            rung_picked = tl.full((ROWS,), RUNGS - 1, tl.int32)
            for i in tl.static_range(RUNGS - 1):
                # From the lowest rung up, so that the highest that has enough stays.
                words = tl.load(places + (RUNGS - 2 - i) * rung_stride, is_chunk, other=0)
                has_count = tl.sum(_counts(words, count_shift), axis=1) >= top_k
                rung_mass = tl.sum(_masses(words, count_shift), axis=1)
                has_mass = rung_mass.to(tl.float64) >= least_mass
                is_enough = tl.where(top_k > 0, has_count, has_mass)
                rung_picked = tl.where(is_enough, RUNGS - 2 - i, rung_picked)
            words = tl.load(
                places + rung_picked[:, None].to(tl.int64) * rung_stride, is_chunk, other=0
            )
            counts = _counts(words, count_shift)
            begins = tl.cumsum(counts, axis=1) - counts
            num_listed = tl.sum(counts, axis=1)
            num_listed = tl.where(num_listed <= capacity, num_listed, -1)
            cut = tl.where(all_listed < top_k, 0, top_k)
            tl.store(mass + row, total, is_cut)
            tl.store(picked + row, rung_picked, is_cut)
            tl.store(picked + num_rows + row, num_listed.to(tl.int32), is_cut)
            tl.store(picked + 2 * num_rows + row, cut.to(tl.int32), is_cut)
            starts = begin + row[:, None] * num_chunks + chunk
            tl.store(starts, begins.to(tl.int32), is_cut[:, None] & is_chunk)


@triton.jit
def _load_cut(fields, peak, row, num_rows, unit):
    """Return which rows are drawn with a cut, and their scale."""
    is_row = row < num_rows
    is_drawn, top, inverse_temperature, least = _load_scale(
        fields, peak, row, is_row, num_rows, unit
    )
    has_top_k = _field(fields, 1, row, is_row, num_rows) > 0.0
    has_top_p = _field(fields, 2, row, is_row, num_rows) < 1.0
    return is_drawn & (has_top_k | has_top_p), top, inverse_temperature, least


@triton.jit(do_not_specialize=["num_rows", "num_chunks", "capacity"])
def gather_kernel(
    logits,
    allowed,
    peak,
    fields,
    picked,
    begin,
    listed_logit,
    listed_token,
    num_rows,
    vocab_size,
    num_chunks,
    logits_stride_r,
    unit,
    capacity,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
    RUNGS: tl.constexpr,
):
    """List a chunk's tokens above the rung, by id, after the tokens of earlier chunks."""
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS).to(tl.int64)
    chunk = tl.program_id(1)
    is_cut, top, inverse_temperature, _ = _load_cut(fields, peak, row, num_rows, unit)
    num_listed = tl.load(picked + num_rows + row, is_cut, other=-1)
    starts = begin + row * num_chunks + chunk
    first = tl.load(starts, is_cut, other=0)
    has_next = is_cut & (tl.zeros((ROWS,), tl.int32) + chunk + 1 < num_chunks)
    end = tl.where(has_next, tl.load(starts + 1, has_next, other=0), num_listed)
    is_listed = is_cut & (first < end) & (num_listed >= 0)
    # Most chunks have none, and are not read.
    if tl.max(is_listed.to(tl.int32)) > 0:
        rung = tl.load(picked + row, is_listed, other=0)
        bound = tl.where(rung == RUNGS - 1, -_LAST_RUNG, -_RUNG * (rung + 1).to(tl.float32))
        token = chunk * BLOCK + tl.arange(0, BLOCK)[None, :]
        is_inside = is_listed[:, None] & (token < vocab_size)
        logit = load_logits(
            logits, allowed, row[:, None], token, is_inside, logits_stride_r, vocab_size
        )
        scaled = _scaled(logit, top[:, None], inverse_temperature[:, None])
        is_above = is_inside & (scaled > bound[:, None])
        place = first[:, None] + tl.cumsum(is_above.to(tl.int32), axis=1) - 1
        listed = row[:, None] * capacity + place
        tl.store(listed_logit + listed, logit, is_above)
        tl.store(listed_token + listed, token.to(tl.int32) + tl.zeros_like(place), is_above)


@triton.jit
def _load_tile(lists, start, length, is_listed, TILE: tl.constexpr):
    """Return a tile of each row's list, or of the row itself: logits, and what is inside."""
    logits, allowed, listed_logit, row, capacity, logits_stride_r, vocab_size = lists
    place = start + tl.arange(0, TILE)[None, :]
    is_inside = place < length[:, None]
    from_list = is_inside & is_listed[:, None]
    from_row = is_inside & (is_listed[:, None] == 0)
    short = tl.load(listed_logit + row[:, None] * capacity + place, from_list, other=_NEVER)
    long = load_logits(logits, allowed, row[:, None], place, from_row, logits_stride_r, vocab_size)
    return tl.where(is_listed[:, None], short, long), is_inside


@triton.jit
def _select(
    lists,
    scale,
    need,
    length,
    is_listed,
    COUNTS: tl.constexpr,
    ROWS: tl.constexpr,
    TILE: tl.constexpr,
):
    """Find the largest key that, with all above it, has the mass or the count that is needed.

    Returns the keys, and what those above have without it. 16 keys are tried at a time.
    """
    top, inverse_temperature, least, unit = scale
    key = tl.zeros((ROWS,), tl.uint32)
    above = tl.zeros((ROWS,), tl.int64)
    longest = tl.max(length)
    shift = tl.full((1,), 28, tl.uint32)
    for _ in range(8):
        digits = tl.arange(0, _DIGITS).to(tl.uint32)[None, :]
        bounds = key[:, None] + (digits << shift[:, None])
        reached = tl.zeros((ROWS, _DIGITS), tl.int64)
        for start in range(0, longest, TILE):
            logit, is_inside = _load_tile(lists, start, length, is_listed, TILE)
            if COUNTS:
                measure = is_inside.to(tl.int64)
            else:
                scaled = _scaled(logit, top[:, None], inverse_temperature[:, None])
                scaled = tl.where(is_inside, scaled, _NEVER)
                measure = _weigh(scaled, least[:, None], unit)
            is_reached = _key(logit)[:, None, :] >= bounds[:, :, None]
            reached += tl.sum(tl.where(is_reached, measure[:, None, :], 0), axis=2)
        is_enough = reached >= need[:, None]
        digit = tl.maximum(tl.sum(is_enough.to(tl.int32), axis=1) - 1, 0)
        above = tl.maximum(above, tl.max(tl.where(is_enough, 0, reached), axis=1))
        key += digit.to(tl.uint32) << shift
        shift -= 4
    return key, above


@triton.jit
def _weight_of(key, scale):
    """Return the weight of a token with such a key, but at least 1, for it is divided by."""
    top, inverse_temperature, least, unit = scale
    logit = logit_of((key ^ _SIGN).to(tl.int32, bitcast=True))
    scaled = _scaled(logit, top, inverse_temperature)
    return _weigh(tl.where(scaled == scaled, scaled, 0.0), least, unit)


@triton.jit(do_not_specialize=["num_rows", "capacity"], do_not_specialize_on_alignment=["uniform"])
def finish_kernel(
    logits,
    allowed,
    peak,
    fields,
    uniform,
    mass,
    picked,
    listed_logit,
    listed_token,
    out,
    num_rows,
    vocab_size,
    logits_stride_r,
    out_stride_r,
    unit,
    capacity,
    ROWS: tl.constexpr,
    TILE: tl.constexpr,
):
    """Draw the tokens of rows that have a cut, from lists of tokens or from whole rows."""
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS).to(tl.int64)
    is_cut, top, inverse_temperature, least = _load_cut(fields, peak, row, num_rows, unit)
    if tl.max(is_cut.to(tl.int32)) > 0:
        kept = tl.load(mass + row, is_cut, other=1)
        num_listed = tl.load(picked + num_rows + row, is_cut, other=0)
        top_k = tl.load(picked + 2 * num_rows + row, is_cut, other=0).to(tl.int64)
        top_p = _field(fields, 2, row, is_cut, num_rows)
        is_listed = num_listed >= 0
        length = tl.where(is_cut, tl.where(is_listed, num_listed, vocab_size), 0)
        lists = (logits, allowed, listed_logit, row, capacity, logits_stride_r, vocab_size)
        scale = (top, inverse_temperature, least, unit)
        longest = tl.max(length)

        if tl.max(top_k) > 0:
            key, count = _select(lists, scale, top_k, length, is_listed, True, ROWS, TILE)
            above = tl.zeros((ROWS,), tl.int64)
            for start in range(0, longest, TILE):
                logit, is_inside = _load_tile(lists, start, length, is_listed, TILE)
                is_above = is_inside & (_key(logit) > key[:, None])
                scaled = _scaled(logit, top[:, None], inverse_temperature[:, None])
                scaled = tl.where(is_above, scaled, _NEVER)
                above += tl.sum(_weigh(scaled, least[:, None], unit), axis=1)
            above += (top_k - count) * _weight_of(key, scale)
            kept = tl.where(top_k > 0, above, kept)

        has_top_p = is_cut & (top_p < 1.0)
        if tl.max(has_top_p.to(tl.int32)) > 0:
            share = top_p * kept.to(tl.float64)
            need = share.to(tl.int64)
            need += (need.to(tl.float64) < share).to(tl.int64)
            key, above = _select(lists, scale, need, length, is_listed, False, ROWS, TILE)
            weight = tl.maximum(_weight_of(key, scale), 1)
            num_equal = (need - above + weight - 1) // weight
            kept = tl.where(has_top_p, above + num_equal * weight, kept)

        target = _target(kept, tl.load(uniform + row, is_cut, other=0.0))
        key, above = _select(lists, scale, target + 1, length, is_listed, False, ROWS, TILE)
        nth = (target - above) // tl.maximum(_weight_of(key, scale), 1) + 1
        seen = tl.zeros((ROWS,), tl.int64)
        found = tl.zeros((ROWS,), tl.int32)
        for start in range(0, longest, TILE):
            logit, is_inside = _load_tile(lists, start, length, is_listed, TILE)
            is_equal = is_inside & (_key(logit) == key[:, None])
            number = seen[:, None] + tl.cumsum(is_equal.to(tl.int64), axis=1)
            is_it = is_equal & (number == nth[:, None])
            place = start + tl.arange(0, TILE)[None, :]
            found += tl.sum(tl.where(is_it, place, 0), axis=1)
            seen += tl.sum(is_equal.to(tl.int64), axis=1)
        token = tl.load(listed_token + row * capacity + found, is_cut & is_listed, other=0)
        token = tl.where(is_listed, token, found)
        tl.store(out + row * out_stride_r, token.to(tl.int64), is_cut)
