"""Define the ops that turn logits into tokens: the second part of the contract in `ops`.

Shape letters: R rows, V vocabulary, C tokens of interest, W words of 32 tokens. Logits are float32,
and a row's result depends on that row alone.

allowed_RW tells which tokens of each row may be chosen, int32: bit t % 32 of word t // 32 is the
token t. None allows all. Other tokens count as minus infinity, even where their logits are NaN.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from inferno.ops.dispatch import BACKENDS, backend_of
from inferno.ops.drawing import Penalties, Purpose, SamplingSpec, SamplingSpecs


def penalize(
    logits_RV: Tensor,
    rows: Sequence[int],
    penalties: Sequence[Penalties],
    drawn_N: Tensor | None = None,
) -> None:
    """Penalise in place the tokens that have occurred, in some rows, each given once.

    No logit becomes larger than float32's largest number.

    drawn_N     the tokens of the last draw by row, int64, where some penalties have a pending_row.
    """
    backend_of(logits_RV).penalize(logits_RV, rows, penalties, drawn_N)


def argmax(logits_RV: Tensor, *, allowed_RW: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Return each row's largest logit, NaN if any is NaN, and its lowest id: ([R], [R] int64)."""
    return backend_of(logits_RV).argmax(logits_RV, allowed_RW=allowed_RW)


def uniform(
    seeds: Sequence[int],
    sequence_indices: Sequence[int],
    positions: Sequence[int],
    purpose: Purpose,
    device: torch.device,
) -> Tensor:
    """Make a random number of 53 bits in [0, 1) for each row from its arguments: [R] float64.

    See `Purpose`; the algorithm is Philox4x32-10.
    """
    return BACKENDS[device.type].uniform(seeds, sequence_indices, positions, purpose, device)


def sampling_specs(specs: Sequence[SamplingSpec], device: torch.device) -> SamplingSpecs:
    """Make specs of a batch's rows for `draw`, valid while the batch stays the same."""
    return BACKENDS[device.type].sampling_specs(specs, device)


def draw(
    logits_RV: Tensor,
    peak_R: Tensor,
    specs: SamplingSpecs,
    uniform_R: Tensor,
    *,
    allowed_RW: Tensor | None = None,
    out: Tensor,
) -> Tensor:
    """Draw a token for each row, as its spec says, into out [R] int64.

    peak_R      the largest logit by `argmax` with the same allowed_RW. Where it isn't finite, the
                token means nothing.
    uniform_R   the random number that decides.
    A row that isn't drawn keeps its value in `out`. Ranks are by logit, the lower id first among
    equals; top-p measures the mass that min-p and top-k leave.
    """
    return backend_of(logits_RV).draw(
        logits_RV, peak_R, specs, uniform_R, allowed_RW=allowed_RW, out=out
    )


def log_probabilities(logits_RV: Tensor, ids_RC: Tensor) -> Tensor:
    """Compute log softmax(logits) at some tokens of each row: [R, C] float64; a NaN makes NaNs."""
    return backend_of(logits_RV).log_probabilities(logits_RV, ids_RC)


def top_tokens(logits_RV: Tensor, num_tokens: int) -> Tensor:
    """Rank each row's likeliest tokens, the lower id first among equals: ids [R, C], C <= V."""
    return backend_of(logits_RV).top_tokens(logits_RV, num_tokens)


def fill_pending(token_ids_T: Tensor, drawn_R: Tensor) -> None:
    """Replace each pending id -1 - r by drawn_R[r], in place; both are int64."""
    backend_of(token_ids_T).fill_pending(token_ids_T, drawn_R)
