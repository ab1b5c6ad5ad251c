"""Sequences for tests of proposers."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count

from inferno.engine.kv.block_manager import BlockManager
from inferno.engine.scheduling.sequence import SequenceState, new_sequences
from inferno.requests import Request, SamplingParams

_numbers = count()
_blocks = BlockManager(8, 4)


def sequence(
    prompt: Sequence[int],
    output: Sequence[int] = (),
    *,
    prediction: Sequence[int] = (),
    cache_salt: str = "",
    request_id: str | None = None,
) -> SequenceState:
    """Return a sequence that has written `output` so far."""
    request = Request(
        request_id=str(next(_numbers)) if request_id is None else request_id,
        prompt_token_ids=tuple(prompt),
        params=SamplingParams(),
        prediction_ids=tuple(prediction),
        cache_salt=cache_salt,
    )
    (state,) = new_sequences(
        request, order=(0, 0), arrived=0, max_length=10**9, blocks=_blocks, constrain=None
    )
    state.token_ids += output
    return state
