"""Propose tokens with the model's own first layers, final norm and head: self-speculation.

The model would compute the same of these tokens, so nothing is computed twice: see first_layers.py.
This is LayerSkip's draft (arXiv:2404.16710), for models that weren't trained for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from itertools import accumulate

import torch

from inferno.engine.execution.first_layers import FirstLayers
from inferno.engine.sampling.constraints import MAX_ROLLBACK, Mask, MaskKey, empty_mask
from inferno.engine.sampling.logits_processors import LogitsRow
from inferno.engine.sampling.sampler import Sampled, Sampler
from inferno.engine.scheduling.sequence import SequenceState
from inferno.engine.step_plan import ScheduledChunk
from inferno.grammar.turns import NotQuick, quickly
from inferno.ops import KernelContext
from inferno.requests import SamplingParams


class EarlyLayersProposer:
    """A proposer that drafts tokens with a model's first layers, a token of each sequence a pass.

    first_layers    the executor's own, which later runs the step's other layers.
    sampler         a sampler for drafts alone, since it keeps counts of each sequence.
    kernels         those of the executor.
    """

    name = "early"
    takes_passes = True

    def __init__(
        self, first_layers: FirstLayers, sampler: Sampler, kernels: KernelContext, vocab_size: int
    ) -> None:
        self._first_layers = first_layers
        self._sampler = sampler
        self._kernels = kernels
        self._vocab_size = vocab_size
        self._params: dict[SequenceState, SamplingParams] = {}

    @property
    def num_bytes(self) -> int:
        return self._first_layers.num_bytes

    def serves(self, sequence: SequenceState) -> bool:
        """Return True, for a model has a guess for any sequence."""
        return True

    @torch.inference_mode()
    def propose(
        self, sequences: Sequence[SequenceState], most: Sequence[int]
    ) -> Sequence[Sequence[int]]:
        self._first_layers.clear()
        drafts = [
            _Draft(sequence, room, self._draft_params(sequence))
            for sequence, room in zip(sequences, most, strict=True)
        ]
        with ExitStack() as stack:  # whatever one of them raises
            for draft in drafts:
                stack.callback(draft.rewind)
            stack.enter_context(self._kernels)
            while unfinished := [draft for draft in drafts if draft.room]:
                self._extend(unfinished)
        return [draft.drafted for draft in drafts]

    def forget(self, sequence: SequenceState) -> None:
        if self._params.pop(sequence, None) is not None:
            self._sampler.forget([sequence.sequence_id])
            self._first_layers.forget(sequence.sequence_id)

    def clear(self) -> None:
        self._sampler.forget([sequence.sequence_id for sequence in self._params])
        self._params.clear()
        self._first_layers.clear()

    def _draft_params(self, sequence: SequenceState) -> SamplingParams:
        """Return how a sequence draws, but for log-probabilities, which nobody asks of drafts."""
        params = self._params.get(sequence)
        if params is None:
            params = sequence.request.params
            if params.logprobs is not None:
                params = replace(params, logprobs=None, logprob_token_ids=())
            self._params[sequence] = params
        return params

    def _extend(self, drafts: Sequence[_Draft]) -> None:
        """Add a token to each draft, or end it."""
        chunks = [draft.chunk() for draft in drafts]
        streams_TE = self._first_layers.run(chunks, drafts)
        ends = accumulate(chunk.num_tokens for chunk in chunks)
        masks: dict[MaskKey, Mask] = {}
        rows = {
            draft: end - 1
            for draft, end in zip(drafts, ends, strict=True)
            if draft.find_mask(masks, self._vocab_size)
        }
        if not rows:
            return
        logits_RV = self._first_layers.early_logits(streams_TE, list(rows.values()))
        sampled = self._sampler.sample(logits_RV, [draft.row() for draft in rows], masks)
        for draft, token in zip(rows, sampled, strict=True):
            draft.take(token)


@dataclass(slots=True, eq=False)
class _Draft:
    """Tokens that are proposed for a sequence, while they become more."""

    sequence: SequenceState
    room: int
    params: SamplingParams
    drafted: list[int] = field(default_factory=list)
    num_accepted: int = 0  # by the constraint

    @property
    def token_ids(self) -> Sequence[int]:
        return self.sequence.token_ids

    @property
    def block_tables(self) -> Sequence[Sequence[int]]:
        return self.sequence.tables.groups

    @property
    def length(self) -> int:
        """Return how many tokens the sequence has with those that are proposed."""
        return len(self.sequence.token_ids) + len(self.drafted)

    def chunk(self) -> ScheduledChunk:
        """Return the tokens that the layers have not seen: the sequence's first, then one each."""
        proposed = tuple(self.drafted[-1:])
        start = self.length - 1 if proposed else self.sequence.num_planned_tokens
        num_tokens = self.length - start
        return ScheduledChunk(
            self.sequence.sequence_id, start, num_tokens, (), (), (), False, False, proposed
        )

    def row(self) -> LogitsRow:
        """Return how the next token is chosen: as the sequence will choose it."""
        sequence, seed = self.sequence, self.params.seed
        assert seed is not None, "the engine draws a seed at admission"
        return LogitsRow(
            sequence.sequence_id,
            self.params,
            seed,
            self.length,
            sequence.token_ids,
            sequence.num_prompt_tokens,
            sequence.request.eos_token_ids,
            sequence.request.bad_words_ids,
            tuple(self.drafted),
        )

    def find_mask(self, masks: dict[MaskKey, Mask], vocab_size: int) -> bool:
        """Add the mask of the next token; where that takes too long, end the draft: return False.

        Steps don't wait for guesses.
        """
        constraint = self.sequence.constraint
        if constraint is None:
            return True
        words = empty_mask(vocab_size)
        with suppress(NotQuick), quickly():
            constraint.mask_into(words)
            masks[self.sequence.sequence_id, self.length] = words
            return True
        self.room = 0
        return False

    def take(self, token: Sampled) -> None:
        """Add a token, and end the draft where nothing can follow or nobody may go on."""
        if token.error is not None or token.token_id in self.sequence.stop_token_ids:
            self.room = 0
            return
        self.drafted.append(token.token_id)
        self.room -= 1
        constraint = self.sequence.constraint
        if constraint is None or not self.room:
            return
        if self.num_accepted == MAX_ROLLBACK:
            self.room = 0
            return
        try:
            with quickly():
                constraint.accept((token.token_id,))
        except NotQuick:
            self.room = 0
        else:
            self.num_accepted += 1

    def rewind(self) -> None:
        """Leave the sequence's constraint as it was."""
        constraint = self.sequence.constraint
        if constraint is not None and self.num_accepted:
            constraint.rollback(self.num_accepted)
            self.num_accepted = 0
