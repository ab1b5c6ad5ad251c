"""Repack blocks of GGUF's types into the formats in which inferno keeps them.

`quantization.KEPT_BLOCKS` says which format each type is kept in, and why. Source of all layouts:
the block structures of ggml.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import torch
from torch import Tensor

from inferno.ops.gguf_blocks import IQ4_VALUES, decode, iq4_xs_scales, q3_k_codes
from inferno.quantization import BLOCK_FORMATS


def repack(type_name: str, blocks_NB: Tensor) -> tuple[Tensor, ...]:
    """Return N blocks, uint8 [N, block_bytes], as the parts of `StoredRows` of the kept format.

    Blocks of types that are kept unchanged are returned themselves.

    Raises OverflowError where a block has finite values, and the kept format can't hold them.
    """
    if type_name in BLOCK_FORMATS:
        return (blocks_NB,)
    return _REPACKERS[type_name](blocks_NB)


def _mxfp4(blocks_N17: Tensor) -> tuple[Tensor, Tensor]:
    """Return codes [N, 16] and scales [N]: what stands 16 elements apart comes side by side."""
    # NumPy runs in this thread alone, where PyTorch would wake all of its own for little work.
    blocks = blocks_N17.numpy()
    codes = np.ascontiguousarray(blocks[:, 1:]).view(np.uint64)  # eight bytes at a time
    nibbles = np.stack((codes & _LOW_NIBBLES, codes >> _FOUR & _LOW_NIBBLES), 1)
    nibbles |= nibbles >> _FOUR  # of each two bytes the lower one holds both nibbles now
    pairs = nibbles.view(np.uint16).astype(np.uint8).reshape(-1, 16)
    return torch.from_numpy(pairs), torch.from_numpy(blocks[:, 0].copy())


_LOW_NIBBLES, _FOUR = np.uint64(0x0F0F0F0F0F0F0F0F), np.uint64(4)


def _iq4_nl(blocks: Tensor) -> tuple[Tensor]:
    return (_iq4_as_q8_0(blocks[:, :2], blocks[:, 2:]),)


def _iq4_xs(blocks: Tensor) -> tuple[Tensor]:
    scales_N = iq4_xs_scales(blocks).flatten()
    if (scales_N.half().isinf() & scales_N.isfinite()).any():
        raise OverflowError("a scale of IQ4_XS is beyond float16")
    return (_iq4_as_q8_0(_as_float16(scales_N), blocks[:, 8:].reshape(-1, 16)),)


def _iq4_as_q8_0(scales_N2: Tensor, codes_N16: Tensor) -> Tensor:
    """Return blocks of Q8_0: after the scale the integers of all low codes, then of the high."""
    # Python's own table look-up is ten times as fast as PyTorch's.
    codes = codes_N16.numpy().tobytes()
    low, high = (
        np.frombuffer(codes.translate(table), np.uint8).reshape(-1, 16)
        for table in (_OF_LOW, _OF_HIGH)
    )
    return torch.from_numpy(np.concatenate((scales_N2.numpy(), low, high), 1))


_OF_LOW = bytes(IQ4_VALUES[byte & 15] % 256 for byte in range(256))
_OF_HIGH = bytes(IQ4_VALUES[byte >> 4] % 256 for byte in range(256))


def _q3_k(blocks: Tensor) -> tuple[Tensor]:
    codes_N256, scales_N16 = q3_k_codes(blocks)
    quarters = (codes_N256 + 32).view(torch.uint8).view(-1, 2, 4, 32)
    low = quarters[:, :, :2] & 15 | quarters[:, :, 2:] << 4
    upper = quarters >> 4
    high = upper[:, :, 0] | upper[:, :, 1] << 2 | upper[:, :, 2] << 4 | upper[:, :, 3] << 6
    scales = scales_N16.view(torch.uint8)
    return (torch.cat((low.flatten(1), high.flatten(1), scales, blocks[:, 108:]), 1),)


def _q2_k(blocks: Tensor) -> tuple[Tensor]:
    values = decode("Q2_K", blocks).view(-1, 32)
    scales = (values.abs().amax(1) / 127).half()
    codes = (values / scales.float()[:, None]).round_().clamp_(-127, 127).nan_to_num_()
    return (torch.cat((_as_float16(scales), codes.to(torch.int8).view(torch.uint8)), 1),)


def _as_float16(scales_N: Tensor) -> Tensor:
    return scales_N.half()[:, None].view(torch.uint8)


_REPACKERS: Mapping[str, Callable[[Tensor], tuple[Tensor, ...]]] = {
    "MXFP4": _mxfp4,
    "IQ4_NL": _iq4_nl,
    "IQ4_XS": _iq4_xs,
    "Q3_K": _q3_k,
    "Q2_K": _q2_k,
}
