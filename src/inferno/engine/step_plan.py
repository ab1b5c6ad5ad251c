"""Define plans of steps and their results: plain data between scheduler and executor.

A plan holds nothing that changes after it was made, and shares nothing with its maker. An executor,
also one in another process, can run a step from the plans up to that one alone: known_sequences.py
keeps what plans have said.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple, overload

from inferno.engine.scheduling.step_cost import StepWork
from inferno.requests import SamplingParams, TokenLogprobs


class SequenceId(NamedTuple):
    """The key of a sequence: its request's id, and its index among the request's sequences."""

    request_id: str
    sequence_index: int


class NewSequence(NamedTuple):
    """The description of a sequence that an executor doesn't know, or doesn't know any more.

    params          with the seed that its random numbers are keyed by.
    bad_words_ids   see Request, like eos_token_ids.
    token_ids       all tokens, prompt and output.
    block_tables    per group of layers: entry b is the block of positions b * block_size and up,
                    or 0 where the group's window has left.
    """

    sequence_id: SequenceId
    params: SamplingParams
    eos_token_ids: frozenset[int]
    bad_words_ids: tuple[tuple[int, ...], ...]
    num_prompt_tokens: int
    token_ids: tuple[int, ...]
    block_tables: tuple[tuple[int, ...], ...]


class ScheduledChunk(NamedTuple):
    """One sequence's share of a step: compute `num_tokens` of its tokens from position `start` on.

    A named tuple, for it takes a fifth of the time that a frozen dataclass takes to build.

    num_tokens      counts the proposals too, which come last. Where a step is planned while another
                    is in flight, the token may be one that the executor is still to draw.
    new_token_ids   tokens after the ones that the executor was told.
    new_blocks      per group, entries after the ones of the table that the executor knows; empty
                    where no group has new ones.
    num_left        per group, leading entries of the table that its window has left.
    wants_token     the chunk computes the last token, so its last position's logits give a new
                    token, as do the logits of each proposal that stands.
    wants_prompt_logprobs   see StepResult.
    proposed_token_ids  guesses of what follows the sequence's tokens; they are none of its tokens
                    until the result says how many stand.
    """

    sequence_id: SequenceId
    start: int
    num_tokens: int
    new_token_ids: tuple[int, ...]
    new_blocks: tuple[tuple[int, ...], ...]
    num_left: tuple[int, ...]
    wants_token: bool
    wants_prompt_logprobs: bool
    proposed_token_ids: tuple[int, ...] = ()

    @property
    def num_sampled_rows(self) -> int:
        """Return how many of the chunk's last positions are sampled."""
        return 1 + len(self.proposed_token_ids) if self.wants_token else 0

    @property
    def request_id(self) -> str:
        return self.sequence_id.request_id

    @property
    def sequence_index(self) -> int:
        return self.sequence_id.sequence_index


class TableChange(NamedTuple):
    """The change of one sequence's block tables; the fields are those of ScheduledChunk.

    place   of the sequence's chunk among those of the step.
    """

    place: int
    new_blocks: tuple[tuple[int, ...], ...]
    num_left: tuple[int, ...]


class NextTokens(NamedTuple):
    """The chunks of the plan before, each moved on by one token; so hundreds are told in few words.

    Each chunk of that plan computes one token and wants another. This step computes that one, and
    wants one more. No token is told: the ones before a chunk's start were drawn by the executor,
    and stand.
    """

    num_chunks: int
    changes: tuple[TableChange, ...]


class BlockCopies(NamedTuple):
    """Whole blocks to copy, in all layers, between the device's cache and host memory.

    First all of `out`, (block, host block), as the step may write to those blocks; then all of
    `back`, (host block, block), as the step reads them. A host block that is copied to may be one
    that is copied from. Host blocks count from 0.
    """

    out: tuple[tuple[int, int], ...] = ()
    back: tuple[tuple[int, int], ...] = ()


class StepPlan(NamedTuple):
    """The work of the next step; an empty plan needs no step.

    An executor follows a plan in this order: if the epoch is new, forget all sequences; forget
    `gone`; add `new`; copy blocks; compute the chunks, one per sequence.

    epoch   grows when a plan may not have been followed to its end.
    next    the chunks, where they are those of the plan before, each with its next token; `chunks`
            is empty then, as are `gone` and `new`, and the epoch is the same.
    """

    epoch: int
    gone: tuple[SequenceId, ...]
    new: tuple[NewSequence, ...]
    chunks: tuple[ScheduledChunk, ...]
    work: StepWork
    copies: BlockCopies = BlockCopies()
    next: NextTokens | None = None

    @property
    def num_chunks(self) -> int:
        """Return the number of chunks that the step computes."""
        return len(self.chunks) if self.next is None else self.next.num_chunks


class StepResult(NamedTuple):
    """The result of one chunk.

    token_ids       new tokens: at least one if the chunk wanted any, else none. All but the last
                    are the proposals that stand, which were drawn as proposed.
    logprobs        one entry per new token, if the request asked for them.
    prompt_logprobs if the chunk wanted them: None for the prompt's first token, and for each of the
                    chunk's positions p the entry of token p + 1 as long as that is in the prompt.
                    So the results of all chunks, one after the other, have one entry per token.
    error           why this sequence can't go on; its tokens don't count then.
    """

    token_ids: tuple[int, ...] = ()
    logprobs: tuple[TokenLogprobs, ...] = ()
    prompt_logprobs: tuple[TokenLogprobs | None, ...] = ()
    error: str | None = None


class LaterChunks(Sequence[ScheduledChunk]):
    """Chunks that were each moved on by some tokens, as NextTokens says; made when looked at.

    They tell nothing of a sequence that is new; their num_left is of the first chunks.
    """

    def __init__(self, chunks: Sequence[ScheduledChunk], num_tokens: int) -> None:
        self.num_tokens = num_tokens
        self._chunks = chunks
        self._made: list[ScheduledChunk] | None = None

    def __len__(self) -> int:
        return len(self._chunks)

    @overload
    def __getitem__(self, index: int) -> ScheduledChunk: ...

    @overload
    def __getitem__(self, index: slice) -> list[ScheduledChunk]: ...

    def __getitem__(self, index: int | slice) -> ScheduledChunk | list[ScheduledChunk]:
        return self._all()[index]

    def __iter__(self) -> Iterator[ScheduledChunk]:
        return iter(self._all())

    def _all(self) -> list[ScheduledChunk]:
        if self._made is None:
            self._made = [
                chunk._replace(start=chunk.start + self.num_tokens, new_token_ids=(), new_blocks=())
                for chunk in self._chunks
            ]
        return self._made


class DrawnTokens(Sequence[StepResult]):
    """Results that are one token each and nothing else, which are made when looked at."""

    def __init__(self, token_ids: list[int]) -> None:
        self.token_ids = token_ids

    def __len__(self) -> int:
        return len(self.token_ids)

    @overload
    def __getitem__(self, index: int) -> StepResult: ...

    @overload
    def __getitem__(self, index: slice) -> list[StepResult]: ...

    def __getitem__(self, index: int | slice) -> StepResult | list[StepResult]:
        if isinstance(index, slice):
            return [StepResult((token_id,)) for token_id in self.token_ids[index]]
        return StepResult((self.token_ids[index],))

    def __iter__(self) -> Iterator[StepResult]:
        return iter([StepResult((token_id,)) for token_id in self.token_ids])
