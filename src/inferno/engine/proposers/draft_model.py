"""Propose the tokens that a second, smaller model draws in place of the first.

The draft model has keys and values of its own, in blocks of its own. It draws with the parameters
and the random numbers that the model will draw with at the same position, so both agree as often as
their logits allow. A pass of it gives one more guess to each sequence that is to have one.

The first pass of a call also computes what a sequence lacks: the token that the last step drew, or
a whole prompt after it came, was preempted, or went without proposals for a while. Much of it takes
several calls, and until then the sequence gets no guesses. Rejected guesses are overwritten: only
tokens before them count as computed. Where blocks run out, the sequences that were asked about
longest ago lose theirs, and compute them again.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from itertools import takewhile

import torch

from inferno.engine.execution.batcher import Batcher
from inferno.engine.execution.footprint import Footprint
from inferno.engine.execution.known_sequences import KnownSequence
from inferno.engine.execution.runner import Runner
from inferno.engine.kv.block_manager import BlockManager, BlockTables, Prefix
from inferno.engine.sampling.constraints import MAX_ROLLBACK, Mask, MaskKey, empty_mask
from inferno.engine.sampling.logits_processors import LogitsRow
from inferno.engine.sampling.sampler import Sampler
from inferno.engine.scheduling.sequence import SequenceState
from inferno.engine.step_plan import ScheduledChunk
from inferno.grammar.turns import NotQuick, quickly
from inferno.ops import KernelContext
from inferno.requests import SamplingParams

# Tokens that a call computes of what all sequences lack: more would hold up those that lack little.
MOST_CAUGHT_UP = 256


@dataclass(slots=True, eq=False)
class _Draft:
    """The draft model's part in one sequence.

    known           the sequence as batches read it: its tokens, and tables of the draft's cache.
    params          those of its request, without what is only told.
    num_computed    leading tokens of which the cache has keys and values, guesses among them.
    guesses         of the latest call; the first of them is for position guessed_from.
    most            how many guesses this call is to make at most.
    num_accepted    guesses that its constraint was told of, until they are taken back.
    num_checked     leading tokens that the draft model is known to have in its vocabulary.
    """

    sequence: SequenceState
    known: KnownSequence
    tables: BlockTables
    params: SamplingParams
    num_computed: int = 0
    guessed_from: int = 0
    guesses: list[int] = field(default_factory=list)
    most: int = 0
    num_accepted: int = 0
    num_checked: int = 0

    @property
    def num_tokens(self) -> int:
        return len(self.sequence.token_ids)

    @property
    def request_id(self) -> str:
        return self.sequence.request.request_id

    def take_back(self) -> None:
        """Count as computed what stood of the latest guesses, and not the last token of all.

        Its logits are yet to be made, or to be made again.
        """
        since = self.sequence.token_ids[self.guessed_from :]
        pairs = zip(self.guesses, since, strict=False)
        num_stood = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
        stood = self.guessed_from + num_stood
        self.num_computed = min(self.num_computed, stood, self.num_tokens - 1)
        self.guessed_from, self.guesses = self.num_tokens, []

    def roll_back(self) -> None:
        """Leave its constraint as it was before this call."""
        if self.sequence.constraint is not None and self.num_accepted:
            num_accepted, self.num_accepted = self.num_accepted, 0
            self.sequence.constraint.rollback(num_accepted)

    def chunk(self, num_tokens: int, *, wants_token: bool, guess: Sequence[int]) -> ScheduledChunk:
        """Return the part of a pass that computes its next tokens, of which the last is a guess."""
        sequence_id, start = self.sequence.sequence_id, self.num_computed
        none = (), (), ()
        return ScheduledChunk(sequence_id, start, num_tokens, *none, wants_token, False, (*guess,))

    def logits_row(self) -> LogitsRow:
        """Return what the logits after its tokens and guesses are for."""
        sequence = self.sequence
        return LogitsRow(
            sequence.sequence_id,
            self.params,
            self.known.seed,
            self.num_tokens + len(self.guesses),
            sequence.token_ids,
            sequence.num_prompt_tokens,
            self.known.eos_token_ids,
            self.known.bad_words_ids,
            tuple(self.guesses),
        )


_Part = tuple[_Draft, ScheduledChunk]


class DraftModelProposer:
    """A proposer with a draft model, its cache, and what is computed of each sequence.

    sampler         draws among the tokens that both models' vocabularies have; see num_common.
    kernels         the engine's own kernel context, so that both models take turns.
    num_common      ids below it are tokens of both models.
    mask_size       the size of the vocabulary that constraints' masks are for.
    max_model_len   tokens that a sequence may have before it gets no more guesses.
    """

    name = "draft"
    takes_passes = True

    def __init__(
        self,
        blocks: BlockManager,
        batcher: Batcher,
        runner: Runner,
        sampler: Sampler,
        kernels: KernelContext,
        *,
        num_common: int,
        mask_size: int,
        max_model_len: int,
    ) -> None:
        self._blocks = blocks
        self._batcher = batcher
        self._runner = runner
        self._sampler = sampler
        self._kernels = kernels
        self._num_common = num_common
        self._mask_size = mask_size
        self._max_model_len = max_model_len
        self._drafts: dict[SequenceState, _Draft] = {}  # asked about longest ago first

    @property
    def footprint(self) -> Footprint:
        """Return the memory that the draft model and its cache take."""
        return self._runner.footprint

    @property
    def num_bytes(self) -> int:
        found = self.footprint
        return found.weights_bytes + found.kv_cache_bytes

    def serves(self, sequence: SequenceState) -> bool:
        """Return True, for a model has a guess for any sequence."""
        return True

    def propose(
        self, sequences: Sequence[SequenceState], most: Sequence[int]
    ) -> Sequence[Sequence[int]]:
        try:
            with self._kernels, torch.inference_mode():
                return self._propose(sequences, most)
        except BaseException:
            self.clear()  # nobody knows what it was in the midst of
            raise

    def forget(self, sequence: SequenceState) -> None:
        draft = self._drafts.pop(sequence, None)
        if draft is not None:
            self._blocks.release(draft.tables)
            self._sampler.forget([sequence.sequence_id])

    def clear(self) -> None:
        self._sampler.forget([sequence.sequence_id for sequence in self._drafts])
        self._drafts.clear()
        self._blocks.reset()

    def _propose(
        self, sequences: Sequence[SequenceState], most: Sequence[int]
    ) -> Sequence[Sequence[int]]:
        drafts = [self._take_up(*pair) for pair in zip(sequences, most, strict=True)]
        with ExitStack() as stack:
            for draft in drafts:
                stack.callback(draft.roll_back)
            going = self._run(self._grant(drafts))
            while going:
                parts = [
                    (draft, draft.chunk(1, wants_token=True, guess=draft.guesses[-1:]))
                    for draft in going
                ]
                going = self._run(parts)
        return [draft.guesses for draft in drafts]

    # What each sequence gets of a call

    def _take_up(self, sequence: SequenceState, most: int) -> _Draft:
        """Return what is known of a sequence, by its tokens now, as the latest one asked about."""
        draft = self._drafts.pop(sequence, None) or self._new(sequence)
        self._drafts[sequence] = draft
        draft.take_back()
        self._blocks.commit(draft.tables, sequence.token_ids, draft.num_computed)
        self._blocks.slide(draft.tables, draft.num_computed)
        draft.most = min(most, self._max_model_len + 1 - draft.num_tokens)
        if sequence.constraint is not None:
            draft.most = min(draft.most, MAX_ROLLBACK)
        if any(
            token_id >= self._num_common for token_id in sequence.token_ids[draft.num_checked :]
        ):
            draft.most = 0  # the draft model has no such token, nor has it any after that
        else:
            draft.num_checked = draft.num_tokens
        return draft

    def _new(self, sequence: SequenceState) -> _Draft:
        request = sequence.request
        assert request.params.seed is not None, "the engine draws a seed at admission"
        # As that of the sequence's own tables, it keeps apart what may not share a cache.
        tables = self._blocks.new_tables(sequence.tables.root)
        params = replace(request.params, logprobs=None, prompt_logprobs=None, logprob_token_ids=())
        known = KnownSequence(
            sequence_id=sequence.sequence_id,
            params=params,
            seed=request.params.seed,
            eos_token_ids=request.eos_token_ids,
            bad_words_ids=request.bad_words_ids,
            num_prompt_tokens=sequence.num_prompt_tokens,
            token_ids=sequence.token_ids,
            num_told=0,
            block_tables=tables.groups,
            num_left=(),
        )
        return _Draft(sequence, known, tables, params)

    def _grant(self, drafts: Sequence[_Draft]) -> list[_Part]:
        """Return what the first pass computes: all that is lacking, or as much as may be.

        Who lacks least comes first.
        """
        parts: list[_Part] = []
        granted: set[_Draft] = set()
        catching_up: set[str] = set()
        budget = MOST_CAUGHT_UP
        for draft in sorted(drafts, key=self._num_lacking):
            if not self._could_hold(draft):
                self._release(draft)
                continue
            prefix = self._prefix(draft)
            num_cached = draft.num_computed if prefix is None else prefix.num_tokens
            lacking = draft.num_tokens - num_cached
            # Sequences of a request begin alike: one computes that, the others find it cached.
            is_long = lacking > self._blocks.block_size
            if not budget or (is_long and draft.request_id in catching_up):
                continue
            if prefix is not None:
                self._blocks.share(draft.tables, prefix)
                draft.num_computed = prefix.num_tokens
            num_tokens = min(lacking, budget)
            if not self._make_room(draft, num_tokens, granted):
                if prefix is not None:
                    self._release(draft)
                continue
            budget -= num_tokens
            granted.add(draft)
            if is_long:
                catching_up.add(draft.request_id)
            parts.append(
                (draft, draft.chunk(num_tokens, wants_token=num_tokens == lacking, guess=()))
            )
        return parts

    def _num_lacking(self, draft: _Draft) -> int:
        prefix = self._prefix(draft)
        return draft.num_tokens - (draft.num_computed if prefix is None else prefix.num_tokens)

    def _prefix(self, draft: _Draft) -> Prefix | None:
        """Return what the cache has of a sequence that has nothing; it must be used at once."""
        if draft.num_computed:
            return None
        token_ids = draft.sequence.token_ids
        return self._blocks.find_prefix(draft.tables, token_ids, len(token_ids) - 1)

    def _could_hold(self, draft: _Draft) -> bool:
        """Return whether the draft model could ever guess for a sequence of this length."""
        if draft.most <= 0:
            return False
        num_blocks = self._blocks.num_peak_blocks(draft.num_tokens, MOST_CAUGHT_UP)
        return num_blocks <= self._blocks.pool.num_blocks

    def _make_room(self, draft: _Draft, num_tokens: int, granted: set[_Draft]) -> bool:
        """Get blocks for the next tokens, and the guesses after the last; fewer if they lack."""
        reach = draft.num_computed + num_tokens
        if reach < draft.num_tokens:
            return self._allocate(draft, reach, granted)
        while not self._allocate(draft, reach + draft.most - 1, granted):
            if draft.most == 1:
                return False
            draft.most //= 2
        return True

    def _allocate(self, draft: _Draft, num_tokens: int, granted: set[_Draft]) -> bool:
        """Make a table reach so far, if need be at the cost of those that got nothing yet."""
        num_new = self._blocks.num_new_blocks(draft.tables, num_tokens)
        missing = num_new - self._blocks.pool.num_available
        if missing > 0:
            others = [
                other
                for other in self._drafts.values()
                if other not in granted and other is not draft and other.tables.num_held
            ]
            if missing > sum(other.tables.num_held for other in others):
                return False
            for other in others:
                self._release(other)
                if num_new <= self._blocks.pool.num_available:
                    break
            else:
                return False  # they shared blocks with others
        self._blocks.allocate(draft.tables, num_tokens)
        return True

    def _release(self, draft: _Draft) -> None:
        """Give back what the draft model has of a sequence: it would compute it again."""
        self._blocks.release(draft.tables)
        draft.num_computed = 0

    # Passes of the model

    def _run(self, parts: Sequence[_Part]) -> list[_Draft]:
        """Compute parts, and guess a token where one is wanted; return who goes on guessing."""
        if not parts:
            return []
        guessing, rows, end = [], [], 0
        masks: dict[MaskKey, Mask] = {}
        for draft, chunk in parts:
            end += chunk.num_tokens
            draft.num_computed = chunk.start + chunk.num_tokens
            if chunk.wants_token and self._find_mask(draft, masks):
                guessing.append(draft)
                rows.append(end - 1)
        chunks = tuple(chunk for _, chunk in parts)
        batch = self._batcher.build(chunks, [draft.known for draft, _ in parts], rows)
        hidden = self._runner.forward(batch)
        if not guessing:
            return []
        places = rows if batch.rows_N is None else range(len(rows))
        logits_RV = self._runner.logits(hidden, places)
        if logits_RV.shape[1] > self._num_common:
            logits_RV = logits_RV[:, : self._num_common].contiguous()
        drawn = self._sampler.sample(logits_RV, [each.logits_row() for each in guessing], masks)
        going = []
        for draft, sampled in zip(guessing, drawn, strict=True):
            if sampled.error is None and self._note(draft, sampled.token_id):
                going.append(draft)
        return going

    def _note(self, draft: _Draft, token_id: int) -> bool:
        """Take a guess; return whether another may follow it. Nothing follows a stop token.

        Nor does anything where the constraint takes long: steps don't wait for guesses.
        """
        sequence = draft.sequence
        if token_id in sequence.stop_token_ids:
            return False
        draft.guesses.append(token_id)
        if len(draft.guesses) == draft.most:
            return False
        if sequence.constraint is not None:
            try:
                with quickly():
                    sequence.constraint.accept((token_id,))
            except NotQuick:
                return False
            draft.num_accepted += 1
        return True

    def _find_mask(self, draft: _Draft, masks: dict[MaskKey, Mask]) -> bool:
        """Add the mask of what a sequence may say next; return False if that takes too long.

        It is of as many tokens as are drawn of: the draft model may have fewer.
        """
        constraint = draft.sequence.constraint
        if constraint is None:
            return True
        mask = empty_mask(self._mask_size)
        with suppress(NotQuick), quickly():
            constraint.mask_into(mask)
            num_words = len(empty_mask(self._num_common))
            position = draft.num_tokens + len(draft.guesses)
            masks[draft.sequence.sequence_id, position] = mask[:num_words]
            return True
        return False
