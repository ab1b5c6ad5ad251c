"""Define the data of a request and of the events that answer it: plain and frozen."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from inferno.sampling_params import MAX_TOKEN_ID, SamplingParams

__all__ = [
    "MAX_TOKEN_ID",
    "PREDICTION",
    "FinishReason",
    "ProposalCounts",
    "Reasoning",
    "Request",
    "SamplingParams",
    "TokenEvent",
    "TokenLogprobs",
]


class FinishReason(StrEnum):
    """The reason why a sequence ended."""

    STOP = "stop"  # an end-of-sequence token, a stop token or a stop string
    LENGTH = "length"  # max_tokens, or the end of the context
    REPETITION = "repetition"  # it repeats itself, as repetition_detection says
    ABORTED = "aborted"  # its owner ended it
    ERROR = "error"  # a step failed


@dataclass(frozen=True, slots=True)
class Reasoning:
    """The tokens that separate a model's reasoning from its answer.

    opens   begin an output's reasoning; skips begin the answer where there is no reasoning, and may
            be empty. The two differ.
    closes  from the end of the reasoning to the beginning of the answer; never empty.
    marks   special tokens that must not occur inside the reasoning.
    is_open whether the prompt has begun the reasoning already.
    """

    opens: tuple[int, ...]
    skips: tuple[int, ...]
    closes: tuple[int, ...]
    marks: frozenset[int]
    is_open: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A request to the engine: token ids in, token ids out.

    eos_token_ids   tokens that end the output unless params.ignore_eos is set.
    bad_words_ids   params.bad_words as token ids: the last token of each is never chosen after the
                    others.
    reasoning       how the output may begin before an answer that has a shape; None if the output
                    is an answer from its first token on.
    answer_so_far   the beginning of the answer, if the prompt ends with one: the shape continues
                    from there.
    priority        higher runs first; then the earlier arrival.
    prediction_ids  a prediction of the output; see SamplingParams.prediction.
    cache_salt      prefix-cache blocks are shared only between requests with the same salt.
    reads_prefix_cache  False computes every prompt token, so that all their logits exist.
    """

    request_id: str
    prompt_token_ids: tuple[int, ...]
    params: SamplingParams
    eos_token_ids: frozenset[int] = frozenset()
    bad_words_ids: tuple[tuple[int, ...], ...] = ()
    reasoning: Reasoning | None = None
    answer_so_far: str = ""
    prediction_ids: tuple[int, ...] = ()
    priority: int = 0
    cache_salt: str = ""
    reads_prefix_cache: bool = True


@dataclass(frozen=True, slots=True)
class TokenLogprobs:
    """The log-probability of a token, and the likeliest tokens at its position, likeliest first.

    rank        the token's rank among all tokens, from 1; given for a prompt's tokens only.
    """

    token_id: int
    logprob: float
    top: tuple[tuple[int, float], ...]
    rank: int | None = None


PREDICTION = "prediction"  # the name of whoever proposes Request.prediction_ids


class ProposalCounts(NamedTuple):
    """The number of tokens that a proposer proposed, and of those that stood."""

    name: str
    num_proposed: int
    num_stood: int


class TokenEvent(NamedTuple):
    """An event of one sequence of a request: new tokens, the end, or both.

    token_ids       new tokens since the last event; a stop token that ended the sequence is the
                    last.
    logprobs        one entry per token, when asked for.
    prompt_logprobs one entry per prompt token (None for the first), once, with the first tokens.
    num_cached_tokens   prompt tokens that the prefix cache spared.
    stop_token_id   the token that ended the sequence, when one did.
    error           what went wrong, when finish_reason is `error`.
    queue_seconds   how long the sequence waited before its first step.
    proposals       counts of the tokens proposed for the sequence so far.

    It is a NamedTuple, because one is built per token, four times faster than a frozen dataclass.
    """

    request_id: str
    sequence_index: int = 0
    token_ids: tuple[int, ...] = ()
    logprobs: tuple[TokenLogprobs, ...] = ()
    prompt_logprobs: tuple[TokenLogprobs | None, ...] | None = None
    num_cached_tokens: int = 0
    finish_reason: FinishReason | None = None
    stop_token_id: int | None = None
    error: str | None = None
    queue_seconds: float = 0.0
    proposals: tuple[ProposalCounts, ...] = ()
