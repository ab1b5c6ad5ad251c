"""Steer constrained outputs to an end within their budgets, so that no output is cut off.

A constraint knows how few tokens make an output whole. Whatever is drawn stands as long as the
output can still be made whole in the tokens that are left; else the token is banned and the row is
drawn again, with the same random number. After MOST_BANNED bans only the token of a shortest way to
the end is left. So a budget that is enough at the start, which `new_sequences` checks, is enough
always.

A constraint may take long to answer. Steps wait for about a millisecond; then the sequence sits
out: it gets no token until it is known which, and from step to step some more of the answer is
worked out. Its token is drawn again then, with the same random number and so the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from inferno.engine.sampling.constraints import (
    Constraint,
    Mask,
    MaskKey,
    empty_mask,
    first_position,
    is_allowed,
    set_bit,
)
from inferno.engine.scheduling.sequence import SequenceState, Status
from inferno.engine.step_plan import ScheduledChunk, StepResult
from inferno.grammar.turns import Aside, NotQuick, quickly
from inferno.requests import FinishReason

MOST_BANNED = 2

# What a step gives to answers that it doesn't wait for: so many turns, and of a processor's time as
# much in each. A search takes a third of a second at most.
_NUM_TURNS, _TURN_SECONDS = 6, 0.005
_WAIT_SECONDS = 0.02

# Ends one sequence whose constraint raised.
_Fail = Callable[[SequenceState, BaseException], None]

_TokenIds = tuple[int, ...]


@dataclass(slots=True)
class _Known:
    """The answers of a constraint since its sequence got its last token.

    Each is kept by the tokens that would come before, of which the constraint has confirmed none.

    masks       with what was banned; num_banned says how much.
    fits        whether an end fits after such tokens.
    """

    masks: dict[_TokenIds, Mask] = field(default_factory=dict)
    num_banned: dict[_TokenIds, int] = field(default_factory=dict)
    fits: dict[_TokenIds, bool] = field(default_factory=dict)


class Steering:
    """The owner of what constraints have answered, and of the answers that take long.

    fail    ends one sequence, whose constraint raised.
    """

    def __init__(self, fail: _Fail) -> None:
        self._fail = fail
        self._known: dict[SequenceState, _Known] = {}
        self._asides: dict[SequenceState, Aside] = {}  # of those that sit out; who is next first

    @property
    def is_idle(self) -> bool:
        """Return whether no sequence sits out."""
        return not self._asides

    def sits_out(self, sequence: SequenceState) -> bool:
        """Return whether no step is to compute a sequence, as its token isn't known for so long."""
        return sequence in self._asides

    def begin(
        self, sequences: Iterable[SequenceState], chunks: Iterable[ScheduledChunk]
    ) -> StepSteering:
        """Return the constraints of a step whose tokens are to be drawn."""
        return StepSteering(self, sequences, chunks)

    def known(self, sequence: SequenceState) -> _Known:
        """Return what is known of a sequence's next tokens."""
        return self._known.setdefault(sequence, _Known())

    def ask(self, sequence: SequenceState, question: Callable[[], bool]) -> bool | None:
        """Return the answer to a question; None if the sequence sits out from now on, or has ended.

        question    keeps what it finds. If it raises anything but NotQuick, the sequence ends.
        """
        try:
            with quickly():
                return question()
        except NotQuick:
            self._asides[sequence] = Aside(question)
        except Exception as problem:
            self._fail(sequence, problem)
        return None

    def work(self) -> None:
        """Go on with the answers that take long, by turns, for as long as steps can wait."""
        if not self._asides:
            return
        num_turns = num_idle = 0
        while num_turns < _NUM_TURNS and num_idle < len(self._asides):
            sequence = next(iter(self._asides))
            aside = self._asides[sequence] = self._asides.pop(sequence)
            has_run = aside.lend(_TURN_SECONDS)
            num_turns, num_idle = num_turns + has_run, 0 if has_run else num_idle + 1
        for sequence, aside in list(self._asides.items()):
            # A step in flight may still count on the token that was taken back.
            if aside.is_done and not sequence.num_in_flight:
                del self._asides[sequence]
                if aside.problem is not None:
                    self._fail(sequence, aside.problem)

    def wait(self) -> None:
        """Wait a moment for answers on which a library works, where there is nothing else to do."""
        asides = list(self._asides.values())
        if asides and all(aside.is_away for aside in asides):
            asides[0].wait_until_here(_WAIT_SECONDS)

    def follow(
        self, sequence: SequenceState, token_ids: Sequence[int], reason: FinishReason | None
    ) -> FinishReason | None:
        """Let a sequence's constraint follow its new tokens; return why it ended, if it did.

        reason      why the sequence ended by its tokens alone. A whole output that uses up its
                    budget isn't cut off.
        """
        self.forget(sequence)
        constraint = sequence.constraint
        if constraint is None or reason is FinishReason.STOP:
            return reason
        try:
            constraint.accept(token_ids)
            is_whole = reason is FinishReason.LENGTH and constraint.is_complete
        except Exception as problem:
            self._fail(sequence, problem)
            return reason
        return FinishReason.STOP if is_whole else reason

    def forget(self, sequence: SequenceState) -> None:
        """Drop what is known of the next tokens of a sequence: it has them, or has ended."""
        self._known.pop(sequence, None)
        aside = self._asides.pop(sequence, None)
        if aside is not None:
            aside.drop()

    def clear(self) -> None:
        """Forget all sequences."""
        for sequence in [*self._known, *self._asides]:  # an interrupt may have left either
            self.forget(sequence)


class StepSteering:
    """The constraints of one step: its masks, and what of its results must be drawn again.

    late    the places of chunks whose tokens are to be taken back: their sequences sit out.
    """

    def __init__(
        self,
        steering: Steering,
        sequences: Iterable[SequenceState],
        chunks: Iterable[ScheduledChunk],
    ) -> None:
        self._steering = steering
        self._chunks = [
            (index, sequence, chunk, sequence.constraint)
            for index, (sequence, chunk) in enumerate(zip(sequences, chunks, strict=True))
            if sequence.constraint is not None and chunk.wants_token
        ]
        self._masks: dict[MaskKey, Mask] = {}
        self.late: list[int] = []

    def masks(self, vocab_size: int) -> Mapping[MaskKey, Mask]:
        """Return the mask of each row; a constraint that fails ends its sequence."""
        for index, sequence, chunk, constraint in self._chunks:
            if sequence.status is Status.FINISHED:
                continue
            known, proposed = self._steering.known(sequence), chunk.proposed_token_ids
            question = partial(_find_masks, known, constraint, proposed, vocab_size)
            if self._ask(index, sequence, question):
                first = first_position(chunk)
                for count in range(len(proposed) + 1):
                    mask = known.masks.get(proposed[:count])
                    if mask is not None:
                        self._masks[chunk.sequence_id, first + count] = mask
        return self._masks

    def masks_to_redraw(
        self, results: Sequence[StepResult], vocab_size: int
    ) -> dict[MaskKey, Mask]:
        """Return masks of all rows of the chunks that must be drawn again; empty if no chunk must.

        results     the results of all the step's chunks so far.
        """
        masks: dict[MaskKey, Mask] = {}
        for index, sequence, chunk, constraint in self._chunks:
            token_ids = results[index].token_ids
            if sequence.status is Status.FINISHED or index in self.late or not token_ids:
                continue
            known = self._steering.known(sequence)
            question = partial(
                _ban_overrun, known, constraint, sequence, tuple(token_ids), vocab_size
            )
            if self._ask(index, sequence, question):
                masks |= {
                    key: mask for key, mask in self._masks.items() if key[0] == chunk.sequence_id
                }
        return masks

    def _ask(self, index: int, sequence: SequenceState, question: Callable[[], bool]) -> bool:
        found = self._steering.ask(sequence, question)
        if self._steering.sits_out(sequence):
            self.late.append(index)
        return bool(found)


class _Walk:
    """A constraint on its way along tokens that may yet be taken back."""

    def __init__(self, constraint: Constraint, token_ids: _TokenIds) -> None:
        self._constraint = constraint
        self._token_ids = token_ids
        self._num_accepted = 0

    def go_to(self, num_tokens: int) -> None:
        """Have the constraint accept so many of the tokens, and no more."""
        if num_tokens < self._num_accepted:
            num_back = self._num_accepted - num_tokens
            self._num_accepted = num_tokens
            self._constraint.rollback(num_back)
        while self._num_accepted < num_tokens:
            self._constraint.accept((self._token_ids[self._num_accepted],))
            self._num_accepted += 1


def _find_masks(
    known: _Known, constraint: Constraint, proposed: _TokenIds, vocab_size: int
) -> bool:
    """Find the masks of the next token, and of those after proposals. Returns True.

    The constraint has accepted all tokens before, and is left as it was. A proposal that isn't
    allowed can't stand, so the rows after it need no mask.
    """
    walk = _Walk(constraint, proposed)
    try:
        for count in range(len(proposed) + 1):
            before = proposed[:count]
            if before not in known.masks:
                walk.go_to(count)
                mask = empty_mask(vocab_size)
                constraint.mask_into(mask)
                known.masks[before] = mask
            if count < len(proposed) and not is_allowed(known.masks[before], proposed[count]):
                break
    finally:
        walk.go_to(0)
    return True


def _ban_overrun(
    known: _Known,
    constraint: Constraint,
    sequence: SequenceState,
    token_ids: _TokenIds,
    vocab_size: int,
) -> bool:
    """Forbid the first token after which too few are left for an end; return whether there is one.

    Then the tokens are to be drawn again.
    """
    room = sequence.max_length - len(sequence.token_ids)
    walk = _Walk(constraint, token_ids)
    try:
        for count, token_id in enumerate(token_ids, start=1):
            if token_id in sequence.stop_token_ids:
                break
            before, here = token_ids[: count - 1], token_ids[:count]
            if known.num_banned.get(before, 0) > MOST_BANNED:
                continue  # its row has no other token; if none fits, the output is cut off
            if here not in known.fits:
                walk.go_to(count)
                known.fits[here] = constraint.fits(room - count)
            if not known.fits[here]:
                walk.go_to(count - 1)
                _forbid(known, constraint, before, token_id, vocab_size)
                return True
    finally:
        walk.go_to(0)
    return False


def _forbid(
    known: _Known, constraint: Constraint, before: _TokenIds, token_id: int, vocab_size: int
) -> None:
    mask, num_banned = known.masks[before], known.num_banned.get(before, 0) + 1
    rest = mask.copy()
    set_bit(rest, token_id, is_allowed=False)
    if num_banned >= MOST_BANNED or not rest.any():
        num_banned = MOST_BANNED + 1
        following = constraint.next_to_end()
        if following >= 0:
            rest = empty_mask(vocab_size)
        set_bit(rest, following if following >= 0 else token_id, is_allowed=True)
    mask[:] = rest
    known.num_banned[before] = num_banned
