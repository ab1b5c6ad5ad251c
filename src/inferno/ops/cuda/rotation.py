"""Rotary embedding (arXiv:2104.09864): positions' angles; heads are normalized, turned and stored.

A program of `rotate_and_store_kernel` takes some heads of one token, of its queries, keys or
values: one launch does all that lies between a layer's products and its attention. A head's two
halves are two tiles, so that a pair (i, i + D/2) meets in one thread. Keys and values go to a cache
that lies as `cache.empty_cache` makes it.

Codes of 8 bits come with a scale per token and head, the largest magnitude divided by the largest
code. Their arithmetic is that of the CPU's kernels: quotients rounded right, the nearest code, the
even one of two, and NaN for the scale of a head that holds infinity or NaN.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor

from inferno.ops import reference
from inferno.ops.batch import Batch, LayerKV
from inferno.ops.cuda.cache import is_laid_out
from inferno.ops.cuda.chips import Chip
from inferno.ops.cuda.variants import TYPE_NAMES, Variant, Work

# The head sizes of published models, for which all variants are compiled; others run as well.
_HEAD_SIZES = (64, 80, 96, 128, 256)
_MAX_HEAD_SIZE = 512
_ANGLES = 256  # of a program of cos_sin_kernel
# Added and subtracted again, 1.5 * 2^23 leaves of a float32 below 2^22 the nearest whole number,
# the even one of two: libdevice's rint, which Triton's interpreter lacks.
_WHOLE = tl.constexpr(12582912.0)
# Codes that the cache may hold, and the type in which they are written.
_CODES = {torch.int8: "int8", torch.float8_e4m3fn: "float8"}
_STORED = {"int8": "i8", "float8": "u8"}


_STRIDES = (
    *("q_stride_t", "q_stride_h", "k_stride_t", "k_stride_k", "v_stride_t", "v_stride_k"),
    "cos_sin_stride_t",
)


@dataclass(frozen=True, slots=True)
class _Tile:
    half: int  # of a head, as a power of two
    heads: int


def _choose(head_size: int) -> _Tile:
    """Choose how many heads a program takes: for its one warp, 16 values a thread.

    That is 1 KiB in 16 bits, two loads of a thread: 32 programs on a multiprocessor have more in
    flight than any chip's memory needs, and those of a single token still spread over several.
    """
    half = triton.next_power_of_2(head_size // 2)
    return _Tile(half, heads=max(256 // half, 1))


# Where a step's positions and slots begin, and how many there are, changes from step to step.
@triton.jit(do_not_specialize=["num_angles"], do_not_specialize_on_alignment=["positions"])
def cos_sin_kernel(positions, frequencies, out, num_angles, half, factor, ANGLES: tl.constexpr):
    """Compute cosines and sines of some of all angles, seen as one row of T * D/2."""
    at = tl.program_id(0) * ANGLES + tl.arange(0, ANGLES)
    is_inside = at < num_angles
    token, i = at // half, at % half
    position = tl.load(positions + token, is_inside, other=0).to(tl.float32)
    angle = position * tl.load(frequencies + i, is_inside, other=0.0)
    to = out + token.to(tl.int64) * (2 * half) + i
    tl.store(to, tl.cos(angle) * factor, is_inside)
    tl.store(to + half, tl.sin(angle) * factor, is_inside)


@triton.jit
def _load_halves(x, heads, pairs, is_inside, x_stride_h, HALF: tl.constexpr):
    at = x + heads * x_stride_h + pairs
    low = tl.load(at, is_inside, other=0.0)
    return low, tl.load(at + HALF, is_inside, other=0.0)


@triton.jit
def _normalized(low, high, weight, pairs, eps, HALF: tl.constexpr):
    """Normalize heads given in halves; without a weight they stay as they are."""
    # Triton compiles what stands behind a return, but not a branch that a constant rules out.
    if weight is not None:
        low_weight = tl.load(weight + pairs, pairs < HALF, other=0.0)
        high_weight = tl.load(weight + HALF + pairs, pairs < HALF, other=0.0)
        wide_low, wide_high = low.to(tl.float32), high.to(tl.float32)
        squares = tl.sum(wide_low * wide_low + wide_high * wide_high, axis=1)
        scale = tl.div_rn(1.0, tl.sqrt_rn(tl.div_rn(squares, 2.0 * HALF) + eps))[:, None]
        # Products of 16-bit numbers are exact in float32: one rounding, as in their own type.
        normal_low = (wide_low * scale).to(low.dtype).to(tl.float32)
        normal_high = (wide_high * scale).to(high.dtype).to(tl.float32)
        low = (low_weight.to(tl.float32) * normal_low).to(low.dtype)
        high = (high_weight.to(tl.float32) * normal_high).to(high.dtype)
    return low, high


@triton.jit
def _rotated(low, high, cos_sin, pairs, HALF: tl.constexpr):
    """Turn heads given in halves by a token's angles; products and sums round one by one."""
    cosines = tl.load(cos_sin + pairs, pairs < HALF, other=0.0)
    sines = tl.load(cos_sin + HALF + pairs, pairs < HALF, other=0.0)
    wide_low, wide_high = low.to(tl.float32), high.to(tl.float32)
    return (
        (wide_low * cosines - wide_high * sines).to(low.dtype),
        (wide_high * cosines + wide_low * sines).to(high.dtype),
    )


@triton.jit
def quantized(x, scale, KIND: tl.constexpr):
    """Return the codes of float32 values, as bytes; 0 where the scale is 0."""
    # A scale of 0 makes NaN or infinity, which the comparisons below take for 0.
    quotient = tl.div_rn(x, scale)
    if KIND == "int8":
        whole = (quotient + _WHOLE) - _WHOLE
        code = tl.where(tl.abs(whole) <= 127.0, whole, 0.0).to(tl.int8)
    else:
        # Float8 with 3 bits of mantissa is made by hand, as SM80 can't: the rounded upper 11 bits
        # of a float32 with its exponent moved, or, below 2^-6, multiples of 2^-9.
        magnitude = tl.abs(quotient)
        bits = magnitude.to(tl.int32, bitcast=True)
        normal = ((bits + 0x7FFFF + ((bits >> 20) & 1)) >> 20) - (120 << 3)
        small = ((magnitude * 512.0 + _WHOLE) - _WHOLE).to(tl.int32)
        unsigned = tl.where(magnitude < 0.015625, small, normal)
        sign = (quotient.to(tl.int32, bitcast=True) >> 24) & 0x80
        # Up to 464 a number rounds to the largest code, 448. NaN is told by the scale.
        code = tl.where(magnitude < 464.0, unsigned | sign, 0).to(tl.uint8)
    return code


@triton.jit
def _store_heads(
    low,
    high,
    cache,
    scales,
    heads,
    pairs,
    is_inside,
    num_heads,
    places,
    HALF: tl.constexpr,
    KIND: tl.constexpr,
):
    """Write heads of one token, given in halves, to their places among all heads of the cache."""
    to_low = cache + places * (2 * HALF) + pairs
    to_high = to_low + HALF
    if KIND == "plain":
        tl.store(to_low, low.to(cache.dtype.element_ty), is_inside)
        tl.store(to_high, high.to(cache.dtype.element_ty), is_inside)
    else:
        largest_code: tl.constexpr = 127.0 if KIND == "int8" else 448.0
        wide_low, wide_high = low.to(tl.float32), high.to(tl.float32)
        # Comparisons are false for NaN, which so takes no part in the maximum on any chip.
        low_magnitude = tl.where(tl.abs(wide_low) >= 0.0, tl.abs(wide_low), 0.0)
        high_magnitude = tl.where(tl.abs(wide_high) >= 0.0, tl.abs(wide_high), 0.0)
        most = tl.max(tl.maximum(low_magnitude, high_magnitude), axis=1)[:, None]
        poison = tl.sum(wide_low * 0.0 + wide_high * 0.0, axis=1)[:, None]
        scale = tl.div_rn(most, tl.full(most.shape, largest_code, tl.float32))
        tl.store(scales + places, scale + poison, heads < num_heads)
        tl.store(to_low, quantized(wide_low, scale, KIND), is_inside)
        tl.store(to_high, quantized(wide_high, scale, KIND), is_inside)


@triton.jit(do_not_specialize_on_alignment=["slots"])
def rotate_and_store_kernel(
    q,
    k,
    v,
    cos_sin,
    slots,
    q_norm,
    k_norm,
    out,
    keys,
    values,
    key_scales,
    value_scales,
    q_stride_t,
    q_stride_h,
    k_stride_t,
    k_stride_k,
    v_stride_t,
    v_stride_k,
    cos_sin_stride_t,
    num_heads,
    num_kv_heads,
    num_slots,
    eps,
    HALF: tl.constexpr,
    HALF_TILE: tl.constexpr,
    HEADS: tl.constexpr,
    KIND: tl.constexpr,
):
    """Normalize, rotate and store heads of one token; num_slots counts the slots of a block."""
    num_q_tiles, num_kv_tiles = tl.cdiv(num_heads, HEADS), tl.cdiv(num_kv_heads, HEADS)
    num_tiles = num_q_tiles + 2 * num_kv_tiles
    # A token's tiles are neighbours, as their memory is; the grid's second axis would end at 65535.
    token = (tl.program_id(0) // num_tiles).to(tl.int64)
    tile = tl.program_id(0) % num_tiles
    pairs = tl.arange(0, HALF_TILE)[None, :]
    cos_sin_t = cos_sin + token * cos_sin_stride_t
    if tile < num_q_tiles:
        q_heads = tile * HEADS + tl.arange(0, HEADS)[:, None]
        is_q = (q_heads < num_heads) & (pairs < HALF)
        low, high = _load_halves(q + token * q_stride_t, q_heads, pairs, is_q, q_stride_h, HALF)
        low, high = _normalized(low, high, q_norm, pairs, eps, HALF)
        low, high = _rotated(low, high, cos_sin_t, pairs, HALF)
        to = out + (token * num_heads + q_heads) * (2 * HALF) + pairs
        tl.store(to, low, is_q)
        tl.store(to + HALF, high, is_q)
    else:
        # Numbers of slots fit 31 bits, in which a division takes a third of the time.
        slot = tl.load(slots + token).to(tl.int32)
        block, offset = (slot // num_slots).to(tl.int64), (slot % num_slots).to(tl.int64)
        kv_tile = (tile - num_q_tiles) % num_kv_tiles
        heads = kv_tile * HEADS + tl.arange(0, HEADS)[:, None]
        is_kv = (heads < num_kv_heads) & (pairs < HALF)
        places = (block * num_kv_heads + heads) * num_slots + offset
        if tile < num_q_tiles + num_kv_tiles:
            low, high = _load_halves(k + token * k_stride_t, heads, pairs, is_kv, k_stride_k, HALF)
            low, high = _normalized(low, high, k_norm, pairs, eps, HALF)
            low, high = _rotated(low, high, cos_sin_t, pairs, HALF)
            _store_heads(
                *(low, high, keys, key_scales, heads, pairs, is_kv, num_kv_heads, places),
                *(HALF, KIND),
            )
        else:
            low, high = _load_halves(v + token * v_stride_t, heads, pairs, is_kv, v_stride_k, HALF)
            _store_heads(
                *(low, high, values, value_scales, heads, pairs, is_kv, num_kv_heads, places),
                *(HALF, KIND),
            )


def cos_sin(positions_T: Tensor, frequencies_D: Tensor, factor: float) -> Tensor:
    half = len(frequencies_D)
    out_TD = torch.empty((len(positions_T), 2 * half), device=positions_T.device)
    num_angles = len(positions_T) * half
    if num_angles == 0:
        return out_TD
    cos_sin_kernel[(triton.cdiv(num_angles, _ANGLES),)](
        *(positions_T.contiguous(), frequencies_D.contiguous(), out_TD, num_angles, half, factor),
        ANGLES=_ANGLES,
        num_warps=4,
        num_stages=1,
        enable_fp_fusion=False,
    )
    return out_TD


def rotate_and_store(
    q_THD: Tensor,
    k_TKD: Tensor,
    v_TKD: Tensor,
    cos_sin_TD: Tensor,
    batch: Batch,
    kv: LayerKV,
    *,
    q_norm_D: Tensor | None = None,
    k_norm_D: Tensor | None = None,
    eps: float = 0.0,
) -> Tensor:
    if not _takes((q_THD, k_TKD, v_TKD), (q_norm_D, k_norm_D), kv):
        assert kv.key_scales_NKS is None, "only the kernel quantizes"
        return reference.rotate_and_store(
            *(q_THD, k_TKD, v_TKD, cos_sin_TD, batch, kv),
            q_norm_D=q_norm_D,
            k_norm_D=k_norm_D,
            eps=eps,
        )
    num_tokens, num_heads, head_size = q_THD.shape
    num_kv_heads = k_TKD.shape[1]
    out_THD = torch.empty_like(q_THD, memory_format=torch.contiguous_format)
    if num_tokens == 0:
        return out_THD
    kind = "plain" if kv.key_scales_NKS is None else _CODES[kv.keys_NSKD.dtype]
    keys_NSKD, values_NSKD = kv.keys_NSKD, kv.values_NSKD
    if kind == "float8":
        keys_NSKD, values_NSKD = keys_NSKD.view(torch.uint8), values_NSKD.view(torch.uint8)
    tile = _choose(head_size)
    num_tiles = triton.cdiv(num_heads, tile.heads) + 2 * triton.cdiv(num_kv_heads, tile.heads)
    rotate_and_store_kernel[(num_tokens * num_tiles,)](
        *(q_THD, k_TKD, v_TKD, cos_sin_TD, batch.groups[kv.group].slots_T, q_norm_D, k_norm_D),
        *(out_THD, keys_NSKD, values_NSKD, kv.key_scales_NKS, kv.value_scales_NKS),
        *(q_THD.stride()[:2] + k_TKD.stride()[:2] + v_TKD.stride()[:2]),
        *(cos_sin_TD.stride(0), num_heads, num_kv_heads, keys_NSKD.shape[1], eps),
        HALF=head_size // 2,
        HALF_TILE=tile.half,
        HEADS=tile.heads,
        KIND=kind,
        num_warps=1,
        num_stages=1,
        enable_fp_fusion=False,
    )
    return out_THD


def _takes(heads: tuple[Tensor, ...], norms: tuple[Tensor | None, ...], kv: LayerKV) -> bool:
    """Say whether the kernel takes such heads, weights and cache."""
    q_THD, *_ = heads
    dtype, head_size = q_THD.dtype, q_THD.shape[-1]
    is_coded = kv.key_scales_NKS is not None and kv.keys_NSKD.dtype in _CODES
    return (
        dtype in TYPE_NAMES
        and head_size % 2 == 0
        and head_size <= _MAX_HEAD_SIZE
        and all(one.dtype is dtype and one.stride(-1) == 1 for one in heads)
        and (all(one is None for one in norms) or all(_is_weight(one, dtype) for one in norms))
        and (is_coded or kv.keys_NSKD.dtype is dtype)
        and is_laid_out(kv)
    )


def _is_weight(norm_D: Tensor | None, dtype: torch.dtype) -> bool:
    return norm_D is not None and norm_D.dtype is dtype and norm_D.stride(-1) == 1


def variants(chip: Chip) -> Iterator[Variant]:
    """Yield the angles, and heads of each size, type, kind of cache, with norms and without."""
    yield Variant(
        name="cos_sin",
        kernel=cos_sin_kernel,
        signature={
            "positions": "*i64",
            "frequencies": "*fp32:16",
            "out": "*fp32:16",
            "num_angles": "i32",
            "half": "i32:16",
            "factor": "fp32",
        },
        constants={"ANGLES": _ANGLES},
        chip=chip,
        num_warps=4,
        num_stages=1,
        work=Work(num_bytes=_ANGLES * 8),
        is_in_check=True,
        has_fused_multiply_add=False,
    )
    for head_size in _HEAD_SIZES:
        for letters in TYPE_NAMES.values():
            for kind in ("plain", *_CODES.values()):
                for has_norms in (False, True):
                    yield _variant(chip, head_size, letters, kind, has_norms)


def _variant(chip: Chip, head_size: int, letters: str, kind: str, has_norms: bool) -> Variant:
    tile = _choose(head_size)
    pointers = dict.fromkeys(("q", "k", "v", "out"), f"*{letters}:16")
    pointers |= {"cos_sin": "*fp32:16", "slots": "*i64"}
    pointers |= dict.fromkeys(("keys", "values"), f"*{_STORED.get(kind, letters)}:16")
    constants: dict[str, object] = {
        "HALF": head_size // 2,
        "HALF_TILE": tile.half,
        "HEADS": tile.heads,
        "KIND": kind,
    }
    strides = dict.fromkeys(_STRIDES, "i32:16")
    if kind == "plain":
        constants |= {"key_scales": None, "value_scales": None}
    else:
        pointers |= dict.fromkeys(("key_scales", "value_scales"), "*fp32:16")
    if has_norms:
        pointers |= dict.fromkeys(("q_norm", "k_norm"), f"*{letters}:16")
    else:
        constants |= {"q_norm": None, "k_norm": None}
    numbers = {"num_heads": "i32", "num_kv_heads": "i32", "num_slots": "i32:16", "eps": "fp32"}
    signature = {
        name: type_name
        for name, type_name in (pointers | strides | numbers).items()
        if name not in constants
    }
    words = [letters, f"cache {kind}"] + ["norms"] * has_norms
    element_bytes = {"fp32": 4}.get(letters, 2)
    return Variant(
        name=f"rotate_and_store {' '.join(words)} head {head_size}",
        kernel=rotate_and_store_kernel,
        signature=signature,
        constants=constants,
        chip=chip,
        num_warps=1,
        num_stages=1,
        work=Work(num_bytes=2 * tile.heads * head_size * element_bytes),
        is_bound_by_memory=True,
        is_in_check=(letters, head_size) == ("bf16", 128) and has_norms,
        has_fused_multiply_add=False,
    )
