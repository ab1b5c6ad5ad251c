"""The results that a caller of the library gets: completed texts, or a stream of pieces."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any, NamedTuple

from inferno.requests import FinishReason, ProposalCounts, TokenLogprobs
from inferno.text.parsers.answer import ToolCall
from inferno.text.parsers.parser import Part, Piece

_SHOWN = 200  # characters of a text that a Completion's repr shows


@dataclass(frozen=True, slots=True)
class Usage:
    """The numbers of tokens: of the prompt, of its cached part, and of the output.

    reasoning_tokens    new tokens that are reasoning, without its marks.
    accepted_prediction_tokens, rejected_prediction_tokens  tokens of the prediction that were
                        proposed and stood, or didn't stand.
    """

    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int
    reasoning_tokens: int = 0
    accepted_prediction_tokens: int = 0
    rejected_prediction_tokens: int = 0


@dataclass(frozen=True, slots=True)
class Timings:
    """The seconds from the call to the first token and to the end, and new tokens per second.

    The rate is a TokenRate's. Proposals are counts of speculative decoding, by proposer.
    """

    time_to_first_token: float | None
    total: float
    tokens_per_second: float | None
    proposals: tuple[ProposalCounts, ...] = ()


_LEAST_SPAN = 0.01
_MANY_ARRIVALS = 4


class TokenRate:
    """The rate of tokens: all after the first that came, over the time until the last came.

    Tokens that come together with the first aren't counted, for nothing is known of their time. The
    rate is None where no later tokens came, or only a few times within 10 ms, when they may have
    been delayed and come together.
    """

    __slots__ = ("_first_at", "_last_at", "_num_arrivals", "_num_later")

    def __init__(self) -> None:
        self._first_at: float | None = None
        self._last_at = 0.0
        self._num_arrivals = 0
        self._num_later = 0

    def note(self, num_tokens: int, now: float) -> None:
        """Note that so many tokens have come together."""
        if self._first_at is None:
            self._first_at = now
        else:
            self._num_later += num_tokens
            self._num_arrivals += 1
        self._last_at = now

    @property
    def per_second(self) -> float | None:
        """Return the tokens per second so far, or None while the rate isn't known."""
        if self._first_at is None or self._last_at <= self._first_at:
            return None
        span = self._last_at - self._first_at
        is_known = span >= _LEAST_SPAN or self._num_arrivals >= _MANY_ARRIVALS
        return self._num_later / span if is_known else None


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Completion:
    """The completed output of one sequence of one prompt.

    prompt_index, sequence_index  the number of the prompt in the call, and of the sequence among
                                  its n.
    prompt          the prompt as text; None where token ids were given.
    text            the answer; in a chat, without reasoning and tool_calls, which have fields of
                    their own.
    token_ids       new tokens; a stop token that ended the output is the last, and not in `text`.
    stop_reason     the stop string or stop token that ended the output, where one did.
    prompt_logprobs of the first sequence only.
    parsed          the value of the text, where a `schema` was given and the answer is whole.
    error           what went wrong, where finish_reason is `error`.
    """

    prompt_index: int
    sequence_index: int
    prompt: str | None
    prompt_token_ids: tuple[int, ...]
    text: str
    token_ids: tuple[int, ...]
    finish_reason: FinishReason
    stop_reason: str | int | None
    logprobs: tuple[TokenLogprobs, ...] | None
    prompt_logprobs: tuple[TokenLogprobs | None, ...] | None
    usage: Usage
    timings: Timings
    reasoning: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    parsed: Any = None
    error: str | None = None

    @property
    def sample_index(self) -> int:
        """Return sequence_index, by its former name."""
        return _by_former_name("Completion", self.sequence_index)

    def __repr__(self) -> str:
        """Return the most important fields, shortened, without the prompt."""
        parts = [f"prompt_index={self.prompt_index}", f"sequence_index={self.sequence_index}"]
        for name in ("reasoning", "text"):
            text = getattr(self, name)
            if text or name == "text":
                parts.append(f"{name}={_shortened(text)}")
        if self.tool_calls:
            parts.append(f"tool_calls={self.tool_calls!r}")
        parts.append(f"finish_reason={self.finish_reason.value!r}")
        if self.stop_reason is not None:
            parts.append(f"stop_reason={self.stop_reason!r}")
        if self.error is not None:
            parts.append(f"error={self.error!r}")
        usage = self.usage
        parts.append(f"tokens={usage.prompt_tokens}+{usage.completion_tokens}")
        return f"Completion({', '.join(parts)})"


class Chunk(NamedTuple):
    """The new text and tokens of a sequence since the last chunk; the last has the completion.

    logprobs    log-probabilities of the tokens, where asked for.

    A chunk is a NamedTuple, which is quick to build, for there is one per token.
    """

    sequence_index: int
    pieces: tuple[Piece, ...]
    token_ids: tuple[int, ...]
    prompt_index: int = 0
    logprobs: tuple[TokenLogprobs, ...] = ()
    completion: Completion | None = None

    @property
    def sample_index(self) -> int:
        """Return sequence_index, by its former name."""
        return _by_former_name("Chunk", self.sequence_index)

    @property
    def text(self) -> str:
        """Return the new text of the answer."""
        return self._of(Part.CONTENT)

    @property
    def reasoning(self) -> str:
        """Return the new text of the reasoning."""
        return self._of(Part.REASONING)

    def _of(self, part: Part) -> str:
        return "".join([piece.text for piece in self.pieces if piece.part is part])


def _by_former_name(owner: str, sequence_index: int) -> int:
    warnings.warn(
        f"{owner}.sample_index is called sequence_index now; the former name goes with the next "
        "release",
        DeprecationWarning,
        stacklevel=3,
    )
    return sequence_index


def _shortened(text: str) -> str:
    """Return a text in quotes, its middle left out where it is long."""
    half = _SHOWN // 2
    return repr(text if len(text) <= _SHOWN else f"{text[:half]} ... {text[-half:]}")
