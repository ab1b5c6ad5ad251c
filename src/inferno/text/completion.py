"""What a caller of the library gets: completed texts, or a stream of their pieces."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from inferno.requests import FinishReason, TokenLogprobs
from inferno.text.parsers.answer import ToolCall
from inferno.text.parsers.parser import Part, Piece


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens of the prompt, those of them that the prefix cache spared, and new ones.

    reasoning_tokens    those of the new ones that are reasoning, its marks not counted.
    """

    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int
    reasoning_tokens: int = 0


@dataclass(frozen=True, slots=True)
class Timings:
    """Seconds from the call to the first token and to the end, and new tokens per second.

    The rate counts tokens after the first over the time after the first; None where there is none.
    """

    time_to_first_token: float | None
    total: float
    tokens_per_second: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Completion:
    """One sample of one prompt.

    prompt_index, sample_index  which prompt of the call, which of its n samples.
    prompt          the prompt as text; None where token ids were given.
    text            the answer; with chat, without reasoning and tool_calls, which stand apart.
    token_ids       new tokens; a stop token that ended it is the last of them, and not in `text`.
    stop_reason     the stop string or stop token that ended it, where one did.
    prompt_logprobs of the first sample only.
    error           what went wrong, where finish_reason is `error`.
    """

    prompt_index: int
    sample_index: int
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
    error: str | None = None


class Chunk(NamedTuple):
    """New text of one sample, and the tokens since the last chunk; the last has it all.

    logprobs    of these tokens, where asked for.

    (A NamedTuple for the reason of TokenEvent: there is one per token.)
    """

    sample_index: int
    pieces: tuple[Piece, ...]
    token_ids: tuple[int, ...]
    prompt_index: int = 0
    logprobs: tuple[TokenLogprobs, ...] = ()
    completion: Completion | None = None

    @property
    def text(self) -> str:
        """What is new of the answer."""
        return self._of(Part.CONTENT)

    @property
    def reasoning(self) -> str:
        """What is new of the reasoning."""
        return self._of(Part.REASONING)

    def _of(self, part: Part) -> str:
        return "".join([piece.text for piece in self.pieces if piece.part is part])
