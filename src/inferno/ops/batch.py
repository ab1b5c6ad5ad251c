"""The tensors of one step that any op or layer may read: who computes what, and where its KV lies.

Shape letters: T tokens of all requests in one row, R requests, B blocks of a request, N blocks of
the pool, S slots of a block, K key/value heads, D head size.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from torch import Tensor


class AttentionKind(StrEnum):
    """The attention algorithm: AUTO is a backend's own, others by name the reference's."""

    REFERENCE = "reference"  # all scores of a request at once
    FLASH = "flash"  # tiled, online softmax
    AUTO = "auto"  # flash for long chunks, the other for the rest
    INVARIANT = "invariant"  # a backend's own, in one order for any number of rows

    @property
    def is_by_name(self) -> bool:
        """Return whether an algorithm of the reference is asked for, and no kernel will do."""
        return self not in (AttentionKind.AUTO, AttentionKind.INVARIANT)


@dataclass(frozen=True, slots=True)
class GroupTables:
    """The places where one group of layers (those with equal windows) keeps keys and values.

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
    """One step. The tokens of a request are consecutive positions, and lie side by side.

    token_ids_T, positions_T    int64.
    query_lens, context_lens    per request: tokens computed in this step; tokens in the cache after
                                it.
    query_starts_R              int64 [R + 1]; each request's first row, and the end of the last.
    context_lens_R              int64; context_lens. The tensors may go on with requests of no
                                tokens, so that steps of different requests have equal shapes.
    groups                      a layer's `LayerKV.group` indexes it.
    attention                   which algorithm to run.
    rows_N                      int64, ascending; the tokens whose hidden states are wanted, or None
                                for all. The others go no further than the keys and values of
                                the last layer.
    is_fixed                    other steps will have their tensors in the same memory, and of the
                                same shapes.
    longest_query               no request of such steps has more tokens in one; None: query_lens
                                tell, and others may have more.
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
    """One layer's share of the KV cache: keys_NSKD, values_NSKD, and whose tables it uses.

    Block 0 is scratch: only padded rows write or read it. An unwritten slot may hold NaN. How the
    axes lie in memory is the backend's choice (`empty_cache`). In int8 and float8_e4m3fn each head
    of a token has a scale, float32, that what is stored is multiplied with.
    """

    keys_NSKD: Tensor
    values_NSKD: Tensor
    group: int = 0
    key_scales_NKS: Tensor | None = None
    value_scales_NKS: Tensor | None = None


def first_visible(position: int, window: int | None) -> int:
    """Return the first position that the token at `position` sees."""
    return 0 if window is None else max(0, position - window + 1)
