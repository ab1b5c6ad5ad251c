"""Constrain what a sequence may say next, token by token, by masks that change each step.

The engine knows the protocol `Constraint`, and never what implements it: a grammar, a schema, a
choice. Whoever builds an engine hands it a `ConstraintMaker`. The scheduler keeps a sequence's
constraint, which follows the tokens that are confirmed; masks go to the executor when it samples.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Protocol

import numpy as np
import numpy.typing as npt

from inferno.engine.step_plan import ScheduledChunk, SequenceId
from inferno.requests import Request

# Which tokens are allowed: 32-bit words, little-endian, of which bit t % 32 of word t // 32 is the
# token t, as llguidance and XGrammar have it.
Mask = npt.NDArray[np.int32]
MaskKey = tuple[SequenceId, int]  # the sequence, and the position of the token to be chosen


class Constraint(Protocol):
    """A rule for what one sequence may say next; it is told each token that is final.

    Inside of `quickly` (`grammar/turns.py`) it may raise NotQuick, and is then as before the call;
    for that, it is told tokens one at a time there.
    """

    def mask_into(self, mask: Mask) -> None:
        """Set the bits of the tokens that may come next in a mask of zeros."""

    def forced(self, most: int) -> Sequence[int]:
        """Return the tokens that must come next, one after the other, at most so many."""
        ...

    def accept(self, token_ids: Sequence[int]) -> None:
        """Go on past these tokens, each of which must be allowed when its turn comes."""

    def rollback(self, num_tokens: int) -> None:
        """Take back so many of the tokens accepted last, MAX_ROLLBACK at most."""

    @property
    def is_complete(self) -> bool:
        """Return whether the tokens so far are a whole output."""
        ...

    @property
    def num_to_end(self) -> int | None:
        """Return how few tokens can make the output whole; None if unknown."""
        ...

    def fits(self, num_tokens: int) -> bool:
        """Return whether so many tokens can make the output whole; True if unknown."""
        ...

    def next_to_end(self) -> int:
        """Return the next token of a shortest way to an end; at an end, the one that ends it.

        A negative result means that bans leave no way.
        """
        ...


MAX_ROLLBACK = 256

# Called once for each sequence of a request, when it is added; None where all may be said. It may
# raise InvalidRequest, which refuses the request.
ConstraintFactory = Callable[[Request, int], Constraint | None]


class ConstraintMaker(Protocol):
    """A maker of constraints for requests that have a shape, apart from the thread of the steps."""

    def start(self, request: Request) -> Future[Sequence[Constraint]]:
        """Begin to make the constraints of a request, one for each sequence; return their future.

        InvalidRequest, raised at once or by the future, refuses the request. Cancel the future when
        its result is no longer wanted.
        """

    def close(self) -> None:
        """End what is under way, and drop what was made."""


def empty_mask(vocab_size: int) -> Mask:
    """Return a mask that allows nothing."""
    return np.zeros(-(-vocab_size // 32), np.int32)


def set_bit(mask: Mask, token_id: int, is_allowed: bool) -> None:
    """Allow a token, or forbid it."""
    words = mask.view(np.uint32)
    bit = np.uint32(1 << token_id % 32)
    if is_allowed:
        words[token_id // 32] |= bit
    else:
        words[token_id // 32] &= ~bit


def is_allowed(mask: Mask, token_id: int) -> bool:
    """Return whether a mask allows a token."""
    return bool(mask[token_id // 32] >> token_id % 32 & 1)


def only_token(mask: Mask) -> int | None:
    """Return the token that a mask allows, if it is the only one."""
    if np.count_nonzero(mask) != 1:
        return None
    index = int((mask != 0).argmax())
    word = int(mask[index]) & 0xFFFFFFFF
    return index * 32 + word.bit_length() - 1 if word.bit_count() == 1 else None


def first_position(chunk: ScheduledChunk) -> int:
    """Return the position of the first token that a chunk draws."""
    return chunk.start + chunk.num_tokens - len(chunk.proposed_token_ids)
