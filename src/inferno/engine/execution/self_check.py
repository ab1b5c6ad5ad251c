"""Check that a device computes the ops of a model, before the model is run on it.

Some of PyTorch's devices, such as Apple's Metal, lack functions or types, and tell only when one is
called. So each op that a model needs is computed once on the device, with tensors of a few numbers,
and compared with the reference on the CPU.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from inferno import ops
from inferno.config.decoder import DecoderConfig
from inferno.errors import DeviceUnavailable
from inferno.ops import Backend, Batch, GroupTables, PlainSwiGLU, reference

_WIDTH, _INNER, _VOCABULARY, _EXPERTS = 64, 64, 32, 4
_TOKENS = 3
_EPSILON = 1e-6
# Rounding of 16-bit floats after sums of `_WIDTH` products; a wrong op is off by far more.
_TOLERANCE = 0.1
_MOST_WORDS = 160
_OF_MIXTURES = ("route", "experts")
_FAILURES = (RuntimeError, NotImplementedError, TypeError, ValueError, AssertionError)
_REFERENCE_DEVICE = torch.device("cpu")


def check_ops(
    device: torch.device, dtype: torch.dtype, kv_dtype: torch.dtype, config: DecoderConfig
) -> None:
    """Raise DeviceUnavailable, with the ops' names, if a device can't compute a model's ops."""
    found = [
        f"{op} ({words})" for op, words in failing_ops(device, dtype, kv_dtype, config).items()
    ]
    if found:
        raise DeviceUnavailable(
            f"{device} was asked for, but can't compute {', '.join(found)}: try another "
            "--dtype, or use --device cpu."
        )


def failing_ops(
    device: torch.device, dtype: torch.dtype, kv_dtype: torch.dtype, config: DecoderConfig
) -> dict[str, str]:
    """Return the ops of a model with this config that fail on a device, and how each fails."""
    try:
        here = _calls(ops.BACKENDS[device.type], _Inputs.make(device, dtype, kv_dtype, config))
    except _FAILURES as problem:  # it has no tensors of that type
        return {str(dtype).removeprefix("torch."): _words(problem)}
    there = _calls(reference, _Inputs.make(_REFERENCE_DEVICE, dtype, kv_dtype, config))
    found = {}
    for op, call in here.items():
        if op in _OF_MIXTURES and config.mixture is None:
            continue
        expected = there[op]()
        try:
            # Copied to the CPU, for a device may tell of an error only when it is waited for.
            actual = [part.cpu() for part in call()]
        except (
            RuntimeError,
            NotImplementedError,
            TypeError,
            ValueError,
            AssertionError,
        ) as problem:
            words = " ".join(str(problem).split())[:_MOST_WORDS]
            found[op] = f"{type(problem).__name__}: {words}"
            continue
        pairs = zip(actual, expected, strict=True)
        if not all(_are_close(one, other) for one, other in pairs):
            found[op] = "its numbers are wrong"
    return found


@dataclass(frozen=True, slots=True)
class _Inputs:
    """The tensors that the ops are called with, equal on any device."""

    device: torch.device
    dtype: torch.dtype
    kv_dtype: torch.dtype
    num_heads: int  # of one key/value head
    head_dim: int
    windows: tuple[int | None, ...]  # one of each kind that the model's layers have
    has_sinks: bool
    batch: Batch

    @classmethod
    def make(
        cls,
        device: torch.device,
        dtype: torch.dtype,
        kv_dtype: torch.dtype,
        config: DecoderConfig,
    ) -> _Inputs:
        places = torch.arange(_TOKENS)
        block_size = _TOKENS + 1
        windows = tuple(dict.fromkeys(None if w is None else _TOKENS - 1 for w in config.windows))
        batch = Batch(
            token_ids_T=(places + 1).to(device),
            positions_T=places.to(device),
            query_lens=(_TOKENS,),
            context_lens=(_TOKENS,),
            query_starts_R=torch.tensor([0, _TOKENS]).to(device),
            context_lens_R=torch.tensor([_TOKENS]).to(device),
            groups=(
                GroupTables(
                    window=None,
                    block_tables_RB=torch.tensor([[1]]).to(device),
                    slots_T=(places + block_size).to(device),
                ),
            ),
        )
        num_heads = config.num_heads // config.num_kv_heads
        heads = num_heads, config.head_dim, windows, config.has_sinks
        return cls(device, dtype, kv_dtype, *heads, batch)

    def batch_with(self, window: int | None) -> Batch:
        """Return the batch of layers that have this window."""
        return replace(self.batch, groups=(replace(self.batch.groups[0], window=window),))

    def values(self, *shape: int, seed: int, dtype: torch.dtype | None = None) -> Tensor:
        """Return numbers that look random, about 1 in size or less, the same for a seed."""
        generator = torch.Generator().manual_seed(seed)
        drawn = torch.rand(shape, generator=generator) - 0.5
        return drawn.to(dtype or self.dtype).to(self.device)


def _calls(backend: Backend, of: _Inputs) -> Mapping[str, Callable[[], tuple[Tensor, ...]]]:
    """Return a call of each op, by its name."""
    x_TE, weight_E = of.values(_TOKENS, _WIDTH, seed=1), of.values(_WIDTH, seed=2)
    weight_OE, bias_O = of.values(_INNER, _WIDTH, seed=3), of.values(_INNER, seed=4)
    logits_TX = of.values(_TOKENS, _EXPERTS, seed=5)
    gate_up_XFE = of.values(_EXPERTS, 2 * _INNER, _WIDTH, seed=6)
    down_XEF = of.values(_EXPERTS, _WIDTH, _INNER, seed=7)
    frequencies_D = of.values(of.head_dim // 2, seed=8, dtype=torch.float32)
    positions_T = of.batch.positions_T

    def attend(*, returns_query: bool) -> tuple[Tensor, ...]:
        with of.device:
            kv = backend.empty_cache((2, _TOKENS + 1, 1, of.head_dim), of.kv_dtype)
        q_THD = backend.rotate_and_store(
            of.values(_TOKENS, of.num_heads, of.head_dim, seed=9),
            of.values(_TOKENS, 1, of.head_dim, seed=10),
            of.values(_TOKENS, 1, of.head_dim, seed=11),
            backend.cos_sin(positions_T, frequencies_D, 1.0),
            of.batch,
            kv,
        )
        if returns_query:
            return (q_THD,)
        sinks_H = of.values(of.num_heads, seed=14) if of.has_sinks else None
        return tuple(
            backend.attention(
                q_THD, of.batch_with(window), kv, scale=of.head_dim**-0.5, sinks_H=sinks_H
            )
            for window in of.windows
        )

    def mix() -> tuple[Tensor, ...]:
        experts_TA = (positions_T.unsqueeze(1) + torch.arange(2).to(of.device)) % _EXPERTS
        weights_TA = of.values(_TOKENS, 2, seed=12, dtype=torch.float32)
        mixed_TE = backend.experts(
            x_TE, experts_TA, weights_TA, gate_up_XFE, down_XEF, activation=PlainSwiGLU()
        )
        return (mixed_TE,)

    return {
        "embedding": lambda: (
            backend.embedding(of.batch.token_ids_T, of.values(_VOCABULARY, _WIDTH, seed=13)),
        ),
        "cos_sin": lambda: (backend.cos_sin(positions_T, frequencies_D, 1.0),),
        "rms_norm": lambda: (backend.rms_norm(x_TE, weight_E, _EPSILON),),
        "add_rms_norm": lambda: backend.add_rms_norm(x_TE, 2 * x_TE, weight_E, _EPSILON),
        "linear": lambda: (backend.linear(x_TE, weight_OE, bias_O),),
        "gated_linear": lambda: (backend.gated_linear(x_TE, weight_OE, bias_O),),
        "rotate_and_store": lambda: attend(returns_query=True),
        "attention": lambda: attend(returns_query=False),
        "route": lambda: backend.route(logits_TX, 2, renormalize=True),
        "experts": mix,
    }


def _words(problem: Exception) -> str:
    return f"{type(problem).__name__}: {' '.join(str(problem).split())[:_MOST_WORDS]}"


def _are_close(one: Tensor, other: Tensor) -> bool:
    if one.shape != other.shape or one.dtype != other.dtype:
        return False
    return torch.allclose(one.float(), other.float(), rtol=_TOLERANCE, atol=_TOLERANCE)
