"""Define a step's tensors for ops and layers: which tokens are computed, where the cache lies.

Shape letters: T tokens of all requests in one row, R requests, B blocks of a request, N blocks of
the pool, S slots of a block, K key/value heads, D head size.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from torch import Tensor


class AttentionKind(StrEnum):
    """The attention algorithm: AUTO lets the backend choose, the others are the reference's."""

    REFERENCE = "reference"  # all scores of a request at once
    FLASH = "flash"  # tiled, online softmax
    AUTO = "auto"  # flash for long chunks, the other for the rest
    INVARIANT = "invariant"  # a backend's own, in one order for any number of rows

    @property
    def is_by_name(self) -> bool:
        """Return whether the reference's algorithm must run instead of a kernel."""
        return self not in (AttentionKind.AUTO, AttentionKind.INVARIANT)


@dataclass(frozen=True, slots=True)
class GroupTables:
    """The places where a group of layers, which have equal windows, keeps keys and values.

    window           a token sees itself and the window - 1 tokens before it; None sees them all.
    block_tables_RB  int64; entry b of a row is the block of positions b*S to (b+1)*S - 1, or 0
                     (scratch) where the window has left it or the row is padded.
    slots_T          int64; where each token's key and value go: block * S + offset.
    """

    window: int | None
    block_tables_RB: Tensor
    slots_T: Tensor


@dataclass(frozen=True, slots=True)
class Batch:
    """The tensors of one step. The tokens of a request lie side by side, at consecutive positions.

    token_ids_T, positions_T    int64.
    query_lens, context_lens    per request: tokens computed in this step; tokens in the cache after
                                it.
    query_starts_R              int64 [R + 1]; each request's first row, and the end of the last.
    context_lens_R              context_lens as int64. Padding by requests without tokens may
                                follow, so that steps with different requests have equal shapes.
    groups                      a layer's `LayerKV.group` indexes it.
    attention                   the algorithm to run.
    rows_N                      int64, ascending; the tokens whose hidden states are wanted, or None
                                for all. The other tokens end at the keys and values of the last
                                layer.
    is_fixed                    whether other steps will have tensors of the same shapes in the same
                                memory.
    longest_query               the most tokens of a request in such a step; None: query_lens tell,
                                and other steps may have more.
    drawn_N                     int64; the tokens that the step before has drawn: an id -1 - r of
                                token_ids_T stands for entry r. None where all ids are known.
    """

    token_ids_T: Tensor
    positions_T: Tensor
    query_lens: tuple[int, ...]
    context_lens: tuple[int, ...]
    query_starts_R: Tensor
    context_lens_R: Tensor
    groups: tuple[GroupTables, ...]
    attention: AttentionKind = AttentionKind.AUTO
    rows_N: Tensor | None = None
    is_fixed: bool = False
    longest_query: int | None = None
    drawn_N: Tensor | None = None


@dataclass(frozen=True, slots=True)
class LayerKV:
    """One layer's share of the KV cache: keys_NSKD, values_NSKD, and its group of block tables.

    Block 0 is scratch: only padded rows write or read it. An unwritten slot may hold NaN. How the
    axes lie in memory is the backend's choice (`empty_cache`). In int8 and float8_e4m3fn each head
    of a token has a float32 scale, by which stored values are multiplied.
    """

    keys_NSKD: Tensor
    values_NSKD: Tensor
    group: int = 0
    key_scales_NKS: Tensor | None = None
    value_scales_NKS: Tensor | None = None


def first_visible(position: int, window: int | None) -> int:
    """Return the first position that the token at `position` attends to."""
    return 0 if window is None else max(0, position - window + 1)
