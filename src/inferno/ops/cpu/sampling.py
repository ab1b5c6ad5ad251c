"""Tokens from rows of logits by compiled kernels. Letters as in ops."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from inferno import _native
from inferno.ops.cpu.native import matrix, rows
from inferno.ops.drawing import Purpose, SamplingSpec, SamplingSpecs


def argmax(logits_RV: Tensor, *, allowed_RW: Tensor | None = None) -> tuple[Tensor, Tensor]:
    logits_RV, allowed_RW = rows(logits_RV), _words(allowed_RW, logits_RV)
    peak_R = torch.empty(len(logits_RV))
    token_R = torch.empty(len(logits_RV), dtype=torch.int64)
    _native.argmax(_logits(logits_RV), _address(allowed_RW), peak_R.data_ptr(), token_R.data_ptr())
    return peak_R, token_R


def sampling_specs(specs: Sequence[SamplingSpec], device: torch.device) -> SamplingSpecs:
    return _native.sampling_specs(specs)


def uniform(
    seeds: Sequence[int],
    sequence_indices: Sequence[int],
    positions: Sequence[int],
    purpose: Purpose,
    device: torch.device,
) -> Tensor:
    out_R = torch.empty(len(seeds), dtype=torch.float64)
    _native.uniform(seeds, sequence_indices, positions, purpose, 0, out_R.data_ptr())
    return out_R


def draw(
    logits_RV: Tensor,
    peak_R: Tensor,
    specs: SamplingSpecs,
    uniform_R: Tensor,
    *,
    allowed_RW: Tensor | None = None,
    out: Tensor,
) -> Tensor:
    assert isinstance(specs, _native.SamplingSpecs), "specs of another device"
    logits_RV, allowed_RW = rows(logits_RV), _words(allowed_RW, logits_RV)
    peak_R, uniform_R = peak_R.contiguous(), uniform_R.contiguous()
    _native.draw(
        _logits(logits_RV),
        _address(allowed_RW),
        peak_R.data_ptr(),
        specs,
        uniform_R.data_ptr(),
        out.data_ptr(),
    )
    return out


def log_probabilities(logits_RV: Tensor, ids_RC: Tensor) -> Tensor:
    logits_RV = rows(logits_RV)
    peak_R, _ = argmax(logits_RV)
    log_total_R = torch.empty(len(logits_RV), dtype=torch.float64)
    _native.log_totals(_logits(logits_RV), peak_R.data_ptr(), log_total_R.data_ptr())
    above_RC = logits_RV.gather(1, ids_RC).double() - peak_R.double().unsqueeze(1)
    return above_RC - log_total_R.unsqueeze(1)


def top_tokens(logits_RV: Tensor, num_tokens: int) -> Tensor:
    logits_RV = rows(logits_RV)
    num_tokens = min(num_tokens, logits_RV.shape[1])
    ids_RC = torch.empty((len(logits_RV), num_tokens), dtype=torch.int64)
    _native.top_tokens(_logits(logits_RV), num_tokens, ids_RC.data_ptr())
    return ids_RC


def _words(allowed_RW: Tensor | None, logits_RV: Tensor) -> Tensor | None:
    """Return rows of words that follow one another, as kernels read them; they check nothing."""
    if allowed_RW is None:
        return None
    num_rows, vocab_size = logits_RV.shape
    assert allowed_RW.shape == (num_rows, -(-vocab_size // 32)), "words for each row's tokens"
    assert allowed_RW.dtype is torch.int32, "words are int32"
    return allowed_RW.contiguous()


def _address(tensor: Tensor | None) -> int:
    return 0 if tensor is None else tensor.data_ptr()


def _logits(logits_RV: Tensor) -> _native.Matrix:
    assert logits_RV.dtype is torch.float32, "logits are float32"
    return matrix(logits_RV)
