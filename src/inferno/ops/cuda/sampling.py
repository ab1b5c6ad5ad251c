"""Choose tokens from rows of logits on the device, equal to those of ops/reference/sampling.py.

A program takes a chunk of a row, so that one row keeps the whole chip busy; what chunks find is put
together by a second, small launch. Nothing here waits for the device. The draw's kernels and their
method are in `drawing`, and so are the shape letters.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
import triton
import triton.language as tl
from torch import Tensor

from inferno.ops import reference
from inferno.ops.cuda.chips import Chip
from inferno.ops.cuda.drawing import (
    finish_kernel,
    gather_kernel,
    load_logits,
    logit_of,
    ordinal,
    pick_kernel,
    weigh_kernel,
)
from inferno.ops.cuda.streams import sent
from inferno.ops.cuda.variants import Variant, Work
from inferno.ops.drawing import SamplingSpec, SamplingSpecs
from inferno.ops.reference.sampling import unit_weight

_NUM_RUNGS = 8
_MAX_CHUNKS = 256  # that `pick` looks at in one tile
_MOST_LISTED = 2**21  # tokens of all rows, 8 bytes each
_MOST_KEYS = 2**23  # logits whose keys are made at a time, 8 bytes each


@dataclass(frozen=True, slots=True)
class Tiles:
    """The sizes of tiles of all kernels in this file.

    rows        of a tile; block: tokens of a chunk; tile: tokens of a step of `finish`.
    capacity    tokens that are listed of a row; where there are more, `finish` reads the row.
    chunks      the most that a row may have.
    """

    rows: int
    block: int
    tile: int
    capacity: int
    chunks: int = _MAX_CHUNKS
    num_warps: int = 4
    num_finish_warps: int = 8

    def num_chunks(self, vocab_size: int) -> int:
        """Return how many chunks a row has."""
        return -(-vocab_size // self.block)

    def count_shift(self, vocab_size: int) -> int:
        """Return where the count of tokens starts in a chunk's word, above the mass of a chunk."""
        return min(53 - vocab_size.bit_length() + self.block.bit_length(), 53)


def choose(num_rows: int, vocab_size: int) -> Tiles:
    # Of one row, 1024 tokens a program keep 132 multiprocessors busy from 135,000 tokens on. With
    # many rows there are programs enough, and four times the block halves what reductions cost.
    is_long = vocab_size > 1024 * _MAX_CHUNKS or (num_rows >= 8 and vocab_size >= 2**15)
    capacity = min(vocab_size, max(1024, _MOST_LISTED // max(num_rows, 1)))
    return Tiles(rows=1, block=4096 if is_long else 1024, tile=512, capacity=capacity)


def _takes(logits_RV: Tensor) -> bool:
    """Return whether the kernels take such logits; the reference takes the rest."""
    return logits_RV.dtype is torch.float32 and logits_RV.shape[1] <= 4096 * _MAX_CHUNKS


_LOW_BITS = 0x7FFFFFFF  # of a rank key: what the token id is taken away from
# The likeliest token


@triton.jit
def rank_key(logit, token):
    """Return int64 numbers in the order of rank: by logit, NaN first, then the lower id first."""
    place = tl.where(logit != logit, 0x7FFFFFFF, ordinal(logit))
    return (place.to(tl.int64) << 32) | (0x7FFFFFFF - token).to(tl.int64)


@triton.jit(do_not_specialize=["num_rows", "num_chunks"])
def find_peaks_kernel(
    logits,
    allowed,
    best,
    num_rows,
    vocab_size,
    num_chunks,
    logits_stride_r,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    row = (tl.program_id(0) * ROWS + tl.arange(0, ROWS)).to(tl.int64)[:, None]
    token = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)[None, :]
    is_inside = (row < num_rows) & (token < vocab_size)
    logit = load_logits(logits, allowed, row, token, is_inside, logits_stride_r, vocab_size)
    key = tl.max(rank_key(logit, token), axis=1)[:, None]
    tl.store(best + row * num_chunks + tl.program_id(1), key, row < num_rows)


@triton.jit(do_not_specialize=["num_rows", "num_chunks"])
def join_peaks_kernel(
    best, peak, token, num_rows, num_chunks, ROWS: tl.constexpr, CHUNKS: tl.constexpr
):
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS).to(tl.int64)
    chunk = tl.arange(0, CHUNKS)[None, :]
    is_inside = (row < num_rows)[:, None] & (chunk < num_chunks)
    keys = tl.load(best + row[:, None] * num_chunks + chunk, is_inside, other=-(2**63))
    key = tl.max(keys, axis=1)
    tl.store(peak + row, logit_of((key >> 32).to(tl.int32)), row < num_rows)
    tl.store(token + row, 0x7FFFFFFF - (key & 0x7FFFFFFF), row < num_rows)


@triton.jit(do_not_specialize=["num_rows"])
def rank_keys_kernel(
    logits, key, num_rows, vocab_size, logits_stride_r, ROWS: tl.constexpr, BLOCK: tl.constexpr
):
    row = (tl.program_id(0) * ROWS + tl.arange(0, ROWS)).to(tl.int64)[:, None]
    token = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)[None, :]
    is_inside = (row < num_rows) & (token < vocab_size)
    logit = tl.load(logits + row * logits_stride_r + token, is_inside, other=0.0)
    tl.store(key + row * vocab_size + token, rank_key(logit, token), is_inside)


# Launches


@dataclass(frozen=True, slots=True)
class DeviceSpecs:
    """The sampling specs of a batch's rows on the device, by field.

    fields_FR   those of SamplingSpec, float64, so that one copy brings all; but for the inverse of
                the temperature, and a top-k of -1 where no token is drawn.
    has_draws   whether any row is drawn; has_cuts: whether any drawn row has a top-k or top-p.
    """

    fields_FR: Tensor
    has_draws: bool
    has_cuts: bool

    def __len__(self) -> int:
        return self.fields_FR.shape[1]


def argmax(logits_RV: Tensor, *, allowed_RW: Tensor | None = None) -> tuple[Tensor, Tensor]:
    if not _takes(logits_RV):
        return reference.argmax(logits_RV, allowed_RW=allowed_RW)
    return argmax_by_tiles(logits_RV, allowed_RW, choose(*logits_RV.shape))


def sampling_specs(specs: Sequence[SamplingSpec], device: torch.device) -> DeviceSpecs:
    fields_RF = np.array(specs, dtype=np.float64).reshape(-1, len(SamplingSpec._fields))
    fields_FR = fields_RF.T.copy()
    temperature_R, top_k_R, top_p_R = fields_FR[:3]
    is_drawn_R = temperature_R > 0.0
    has_cut_R = is_drawn_R & ((top_k_R > 0.0) | (top_p_R < 1.0))
    inverse_R = np.zeros(len(specs), np.float32)
    np.reciprocal(temperature_R.astype(np.float32), out=inverse_R, where=is_drawn_R)
    temperature_R[:] = inverse_R
    top_k_R[~is_drawn_R] = -1.0
    return DeviceSpecs(
        sent(fields_FR, device),
        has_draws=bool(is_drawn_R.any()),
        has_cuts=bool(has_cut_R.any()),
    )


def draw(
    logits_RV: Tensor,
    peak_R: Tensor,
    specs: SamplingSpecs,
    uniform_R: Tensor,
    *,
    allowed_RW: Tensor | None = None,
    out: Tensor,
) -> Tensor:
    assert isinstance(specs, DeviceSpecs), "specs of another device"
    assert _takes(logits_RV), "float32 logits of a vocabulary of at most 2**20 tokens"
    tiles = choose(*logits_RV.shape)
    return draw_by_tiles(logits_RV, peak_R, specs, uniform_R, allowed_RW, out, tiles)


def log_probabilities(logits_RV: Tensor, ids_RC: Tensor) -> Tensor:
    """See ops. Exact but for the logarithm, of which a GPU's may differ from a CPU's in a bit."""
    if not _takes(logits_RV):
        return reference.log_probabilities(logits_RV, ids_RC)
    return log_probabilities_by_tiles(logits_RV, ids_RC, choose(*logits_RV.shape))


def top_tokens(logits_RV: Tensor, num_tokens: int) -> Tensor:
    """See ops. Keys of 64 bits, of which no two are the same, leave no choice among equals."""
    if not _takes(logits_RV):
        return reference.top_tokens(logits_RV, num_tokens)
    return top_tokens_by_tiles(logits_RV, num_tokens, choose(*logits_RV.shape))


def argmax_by_tiles(
    logits_RV: Tensor, allowed_RW: Tensor | None, tiles: Tiles
) -> tuple[Tensor, Tensor]:
    logits_RV, allowed_RW = _rows(logits_RV), _words(allowed_RW, logits_RV)
    num_rows, vocab_size = logits_RV.shape
    num_chunks = tiles.num_chunks(vocab_size)
    best_RS = logits_RV.new_empty((num_rows, num_chunks), dtype=torch.int64)
    peak_R = logits_RV.new_empty(num_rows)
    token_R = logits_RV.new_empty(num_rows, dtype=torch.int64)
    if num_rows == 0:
        return peak_R, token_R
    num_row_tiles = triton.cdiv(num_rows, tiles.rows)
    find_peaks_kernel[num_row_tiles, num_chunks](
        *(logits_RV, allowed_RW, best_RS, num_rows, vocab_size, num_chunks, logits_RV.stride(0)),
        *(tiles.rows, tiles.block),
        num_warps=tiles.num_warps,
    )
    join_peaks_kernel[num_row_tiles,](
        *(best_RS, peak_R, token_R, num_rows, num_chunks, tiles.rows, tiles.chunks),
        num_warps=1,
    )
    return peak_R, token_R


def draw_by_tiles(
    logits_RV: Tensor,
    peak_R: Tensor,
    specs: DeviceSpecs,
    uniform_R: Tensor,
    allowed_RW: Tensor | None,
    out: Tensor,
    tiles: Tiles,
) -> Tensor:
    logits_RV, allowed_RW = _rows(logits_RV), _words(allowed_RW, logits_RV)
    num_rows, vocab_size = logits_RV.shape
    if num_rows == 0 or not specs.has_draws:
        return out
    assert num_rows == len(specs), "a spec for each row"
    assert uniform_R.dtype is torch.float64, "random numbers of 53 bits"
    peak_R, uniform_R, fields_FR = peak_R.contiguous(), uniform_R.contiguous(), specs.fields_FR
    num_chunks, count_shift = tiles.num_chunks(vocab_size), tiles.count_shift(vocab_size)
    num_rungs = _NUM_RUNGS if specs.has_cuts else 1
    num_row_tiles, unit = triton.cdiv(num_rows, tiles.rows), unit_weight(vocab_size)

    def empty(*shape: int, dtype: torch.dtype = torch.int32) -> Tensor:
        return torch.empty(shape, dtype=dtype, device=logits_RV.device)

    above_LRS = empty(num_rungs, num_rows, num_chunks, dtype=torch.int64)
    mass_R, picked_3R = empty(num_rows, dtype=torch.int64), empty(3, num_rows)
    begin_RS = empty(num_rows, num_chunks)
    asked = logits_RV, allowed_RW, peak_R, fields_FR
    sizes = num_rows, vocab_size, num_chunks, logits_RV.stride(0)
    weigh_kernel[num_row_tiles, num_chunks](
        *(*asked, above_LRS, *sizes, unit, count_shift, tiles.rows, tiles.block, num_rungs),
        num_warps=tiles.num_warps,
        enable_fp_fusion=False,
    )
    pick_kernel[num_row_tiles,](
        *(*asked, uniform_R, above_LRS, mass_R, picked_3R, begin_RS, out),
        *(*sizes, out.stride(0), unit, count_shift, tiles.capacity),
        *(tiles.rows, tiles.block, num_rungs, tiles.chunks),
        num_warps=tiles.num_warps,
        enable_fp_fusion=False,
    )
    if not specs.has_cuts:
        return out
    logit_RC = empty(num_rows, tiles.capacity, dtype=torch.float32)
    token_RC = empty(num_rows, tiles.capacity)
    gather_kernel[num_row_tiles, num_chunks](
        *(*asked, picked_3R, begin_RS, logit_RC, token_RC, *sizes, unit, tiles.capacity),
        *(tiles.rows, tiles.block, num_rungs),
        num_warps=tiles.num_warps,
        enable_fp_fusion=False,
    )
    finish_kernel[num_row_tiles,](
        *(*asked, uniform_R, mass_R, picked_3R, logit_RC, token_RC, out),
        *(num_rows, vocab_size, logits_RV.stride(0), out.stride(0), unit, tiles.capacity),
        *(tiles.rows, tiles.tile),
        num_warps=tiles.num_finish_warps,
        enable_fp_fusion=False,
    )
    return out


def log_probabilities_by_tiles(logits_RV: Tensor, ids_RC: Tensor, tiles: Tiles) -> Tensor:
    logits_RV = _rows(logits_RV)
    num_rows, vocab_size = logits_RV.shape
    peak_R, _ = argmax_by_tiles(logits_RV, None, tiles)
    num_chunks, count_shift = tiles.num_chunks(vocab_size), tiles.count_shift(vocab_size)
    word_RS = torch.zeros((num_rows, num_chunks), dtype=torch.int64, device=logits_RV.device)
    unit = unit_weight(vocab_size)
    if num_rows > 0:
        weigh_kernel[triton.cdiv(num_rows, tiles.rows), num_chunks](
            *(logits_RV, None, peak_R, None, word_RS, num_rows, vocab_size, num_chunks),
            *(logits_RV.stride(0), unit, count_shift, tiles.rows, tiles.block, 1),
            num_warps=tiles.num_warps,
            enable_fp_fusion=False,
        )
    mass_R1 = word_RS.bitwise_and_((1 << count_shift) - 1).sum(1, keepdim=True)
    peak_R1 = peak_R.double().unsqueeze(1)
    log_total_R1 = (mass_R1.double() / unit).log()
    # A row whose peak is infinite has no weights, and its probabilities mean nothing.
    log_total_R1.masked_fill_(~peak_R1.isfinite(), float("nan"))
    return logits_RV.gather(1, ids_RC).double() - peak_R1 - log_total_R1


def top_tokens_by_tiles(logits_RV: Tensor, num_tokens: int, tiles: Tiles) -> Tensor:
    logits_RV = _rows(logits_RV)
    num_rows, vocab_size = logits_RV.shape
    top_RC = logits_RV.new_empty((num_rows, min(num_tokens, vocab_size)), dtype=torch.int64)
    step = max(1, _MOST_KEYS // vocab_size)
    for start in range(0, num_rows, step):
        some_RV = logits_RV[start : start + step]
        key_RV = torch.empty(some_RV.shape, dtype=torch.int64, device=logits_RV.device)
        rank_keys_kernel[triton.cdiv(len(some_RV), tiles.rows), tiles.num_chunks(vocab_size)](
            *(some_RV, key_RV, len(some_RV), vocab_size, some_RV.stride(0)),
            *(tiles.rows, tiles.block),
            num_warps=tiles.num_warps,
        )
        best_RC = key_RV.topk(top_RC.shape[1]).values
        top_RC[start : start + step] = (best_RC & _LOW_BITS).sub_(_LOW_BITS).neg_()
    return top_RC


def _rows(logits_RV: Tensor) -> Tensor:
    """Return logits of which each row lies without gaps, as kernels read them."""
    return logits_RV if logits_RV.stride(1) == 1 else logits_RV.contiguous()


def _words(allowed_RW: Tensor | None, logits_RV: Tensor) -> Tensor | None:
    """Return rows of words that follow one another, as kernels read them; they check nothing."""
    if allowed_RW is None:
        return None
    num_rows, vocab_size = logits_RV.shape
    assert allowed_RW.shape == (num_rows, -(-vocab_size // 32)), "words for each row's tokens"
    assert allowed_RW.dtype is torch.int32, "words are int32"
    return allowed_RW.contiguous()


def variants(chip: Chip) -> Iterator[Variant]:
    """Yield all kernels, for both sizes of a chunk: with masks, with odd rows, with and without."""
    for num_rows in (1, 64):
        tiles = choose(num_rows, 2**17)
        for mark in (":16", ""):
            yield _variant(chip, tiles, "rank_keys", mark)
            for has_mask in (False, True):
                yield _variant(chip, tiles, "find_peaks", mark, has_mask)
                for num_rungs in (1, _NUM_RUNGS):
                    yield _variant(chip, tiles, "weigh", mark, has_mask, num_rungs)
                    yield _variant(chip, tiles, "pick", mark, has_mask, num_rungs)
                yield _variant(chip, tiles, "gather", mark, has_mask, _NUM_RUNGS)
                if num_rows == 1:  # the same for any number
                    yield _variant(chip, tiles, "finish", mark, has_mask)
            yield _variant(chip, tiles, "weigh", mark, num_rungs=1, has_specs=False)
    yield _variant(chip, choose(1, 2**17), "join_peaks", ":16")


_KERNELS = {
    "find_peaks": find_peaks_kernel,
    "join_peaks": join_peaks_kernel,
    "rank_keys": rank_keys_kernel,
    "weigh": weigh_kernel,
    "pick": pick_kernel,
    "gather": gather_kernel,
    "finish": finish_kernel,
}
_TYPES = {
    **dict.fromkeys(("logits", "peak", "listed_logit"), "*fp32:16"),
    "fields": "*fp64:16",
    "uniform": "*fp64",
    **dict.fromkeys(("best", "key", "above", "mass", "token", "out"), "*i64:16"),
    **dict.fromkeys(("allowed", "picked", "begin", "listed_token"), "*i32:16"),
    **dict.fromkeys(("num_rows", "num_chunks", "count_shift", "capacity", "out_stride_r"), "i32"),
    "unit": "fp32",
}


def _variant(
    chip: Chip,
    tiles: Tiles,
    name: str,
    mark: str,
    has_mask: bool = False,
    num_rungs: int = _NUM_RUNGS,
    has_specs: bool = True,
) -> Variant:
    """Return a kernel's variant; mark: ":16" where rows are multiples of 16."""
    kernel = _KERNELS[name]
    types = _TYPES | dict.fromkeys(("vocab_size", "logits_stride_r"), f"i32{mark}")
    tile_sizes = {
        "ROWS": tiles.rows,
        "BLOCK": tiles.block,
        "TILE": tiles.tile,
        "RUNGS": num_rungs,
        "CHUNKS": tiles.chunks,
    }
    absent: dict[str, object] = {}
    if not has_mask:
        absent["allowed"] = None
    if not has_specs:
        absent["fields"] = None
    options = [
        *(["masks"] if has_mask else []),
        *([] if has_specs else ["without specs"]),
        *([] if mark else ["odd rows"]),
    ]
    constants = {
        arg: value for arg, value in (tile_sizes | absent).items() if arg in kernel.arg_names
    }
    is_plain = tiles.block == 1024 and bool(mark) and (name == "rank_keys" or not has_specs)
    is_first = mark == ":16" and has_mask and tiles.block == 1024
    num_warps = {"join_peaks": 1, "finish": tiles.num_finish_warps}.get(name, tiles.num_warps)
    return Variant(
        name=" ".join((name, f"{tiles.block} tokens", f"{num_rungs} rungs", *options)),
        kernel=kernel,
        signature={arg: types[arg] for arg in kernel.arg_names if arg not in constants},
        constants=constants,
        chip=chip,
        num_warps=num_warps,
        num_stages=3,
        work=Work(num_bytes=4 * (tiles.tile if name == "finish" else tiles.block)),
        is_bound_by_memory=mark == ":16" and not has_mask and name in ("find_peaks", "weigh"),
        is_in_check=(is_first and num_rungs == _NUM_RUNGS) or name == "join_peaks" or is_plain,
        has_fused_multiply_add=name in ("find_peaks", "join_peaks", "rank_keys"),
    )
