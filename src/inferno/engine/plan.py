"""What one step computes and what comes of it: plain data between scheduler and executor."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from inferno.engine.step_cost import StepWork
from inferno.requests import Request, TokenLogprobs


class ScheduledChunk(NamedTuple):
    """One sample's share of a step: compute `num_tokens` of its tokens from position `start` on.

    A named tuple, for it takes a fifth of the time that a frozen dataclass takes to build.

    token_ids       every token the sample has, prompt and output. Like the tables it is the
                    scheduler's own list, so that a step copies nothing: read it before the next
                    plan or commit, never write it.
    block_tables    per group of layers: entry b is the block of positions b * block_size and up,
                    or 0 where the group's window has left.
    wants_token     the chunk closes the gap, so its last position's logits give a new token.
    wants_prompt_logprobs   see StepResult.
    """

    request: Request
    sample_index: int
    token_ids: Sequence[int]
    start: int
    num_tokens: int
    block_tables: tuple[Sequence[int], ...]
    wants_token: bool
    wants_prompt_logprobs: bool

    @property
    def request_id(self) -> str:
        return self.request.request_id

    @property
    def num_prompt_tokens(self) -> int:
        return len(self.request.prompt_token_ids)


@dataclass(frozen=True, slots=True)
class StepPlan:
    """What the next step computes; an empty plan needs no step."""

    chunks: tuple[ScheduledChunk, ...]
    work: StepWork


@dataclass(frozen=True, slots=True)
class StepResult:
    """What came of one chunk.

    token_ids       new tokens: at least one if the chunk wanted any, none otherwise.
    logprobs        one entry per new token, if the request asked for them.
    prompt_logprobs if the chunk wanted them: None for the prompt's first token, and for each of the
                    chunk's positions p the entry of token p + 1 as long as that is in the prompt.
                    So the results of all chunks, one after the other, have one entry per token.
    error           why this sample can't go on; its tokens don't count then.
    """

    token_ids: tuple[int, ...] = ()
    logprobs: tuple[TokenLogprobs, ...] = ()
    prompt_logprobs: tuple[TokenLogprobs | None, ...] = ()
    error: str | None = None
