"""Turn the events of one request into pieces of text and, at the end, completions."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Any

from inferno.requests import (
    PREDICTION,
    FinishReason,
    ProposalCounts,
    SamplingParams,
    TokenEvent,
    TokenLogprobs,
)
from inferno.structured import AnswerSchema
from inferno.text.completion import Chunk, Completion, Timings, TokenRate, Usage
from inferno.text.output import Delta, OutputText
from inferno.text.parsers.answer import join_pieces
from inferno.text.parsers.calls.syntax import ToolUse
from inferno.text.parsers.choose import Dialect
from inferno.text.parsers.parser import Piece
from inferno.text.tokenizer import Tokenizer


class SequenceTexts:
    """The texts of a request's n sequences, as they grow; times count from when this is built.

    is_continuation, tool_use, max_tool_calls   see OutputText.
    is_by_token     each token has a chunk of its own, even if several come together.
    prediction_ids      the token ids of a prediction of the texts.
    schema              the type of the answers, where one was given.
    prompt_logprobs     where asked for, from the first event of the first sequence on.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        params: SamplingParams,
        *,
        prompt_index: int,
        prompt: str | None,
        prompt_token_ids: tuple[int, ...],
        prediction_ids: tuple[int, ...] = (),
        dialect: Dialect = Dialect.PLAIN,
        tool_use: ToolUse | None = None,
        is_continuation: bool = False,
        is_by_token: bool = False,
        schema: AnswerSchema | None = None,
        max_tool_calls: int | None = None,
    ) -> None:
        self.params = params
        self.dialect = dialect
        self.tool_use = tool_use
        self._is_by_token = is_by_token
        self._schema = schema
        self.prompt_token_ids = prompt_token_ids
        self.prediction_ids = prediction_ids
        self.prompt_logprobs: tuple[TokenLogprobs | None, ...] | None = None
        self.prompt_index = prompt_index
        self._prompt = prompt
        self._started = time.perf_counter()
        self._sequences = [
            _Sequence(
                OutputText(
                    tokenizer,
                    params,
                    dialect=dialect,
                    prompt_token_ids=prompt_token_ids,
                    tool_use=tool_use,
                    is_continuation=is_continuation,
                    max_tool_calls=max_tool_calls,
                )
            )
            for _ in range(params.n)
        ]

    def feed(self, event: TokenEvent) -> Sequence[Chunk]:
        """Return the text that an event adds, if any; a sequence's last has the completion."""
        sequence = self._sequences[event.sequence_index]
        now = time.perf_counter()
        if event.token_ids:
            sequence.rate.note(len(event.token_ids), now)
            sequence.num_received += len(event.token_ids)
        if self._is_by_token and len(event.token_ids) > 1:
            chunks = [self._chunk(each, sequence, now) for each in _one_by_one(event)]
            return [chunk for chunk in chunks if chunk is not None]
        chunk = self._chunk(event, sequence, now)
        return () if chunk is None else (chunk,)

    def _chunk(self, event: TokenEvent, sequence: _Sequence, now: float) -> Chunk | None:
        if sequence.is_done:
            return None  # tokens that were under way when its text ended
        if event.prompt_logprobs is not None:
            self.prompt_logprobs = event.prompt_logprobs
        delta = self._add(event, sequence, now)
        reason = FinishReason.STOP if delta.is_last else event.finish_reason
        completion = None
        if reason is not None:
            completion = self._complete(event, sequence, reason)
        if not delta.pieces and completion is None:
            return None
        token_ids, logprobs = sequence.take_unsent()
        return Chunk(
            prompt_index=self.prompt_index,
            sequence_index=event.sequence_index,
            pieces=delta.pieces,
            token_ids=token_ids,
            logprobs=logprobs,
            completion=completion,
        )

    def _add(self, event: TokenEvent, sequence: _Sequence, now: float) -> Delta:
        """Return the text that the event's tokens add; tokens after its end are dropped.

        How many tokens an event holds depends on timing, and nothing that is told may.
        """
        if len(event.token_ids) < 2 or not sequence.output.may_end_within:
            return sequence.feed(event, now)
        pieces: tuple[Piece, ...] = ()
        for each in _one_by_one(event):
            delta = sequence.feed(each, now)
            pieces += delta.pieces
            if delta.is_last:
                return delta._replace(pieces=pieces)
        return Delta(pieces)

    def _complete(self, event: TokenEvent, sequence: _Sequence, reason: FinishReason) -> Completion:
        sequence.is_done = True
        accepted, rejected = _of_prediction(event, sequence.num_received - len(sequence.token_ids))
        answer = join_pieces(sequence.pieces)
        wants_logprobs = self.params.logprobs is not None
        return Completion(
            prompt_index=self.prompt_index,
            sequence_index=event.sequence_index,
            prompt=self._prompt,
            prompt_token_ids=self.prompt_token_ids,
            text=answer.content,
            reasoning=answer.reasoning,
            tool_calls=answer.tool_calls,
            parsed=self._parse(answer.content, reason, sequence.output.stop_reason),
            token_ids=tuple(sequence.token_ids),
            finish_reason=reason,
            stop_reason=sequence.output.stop_reason,
            logprobs=tuple(sequence.logprobs) if wants_logprobs else None,
            prompt_logprobs=sequence.prompt_logprobs,
            usage=Usage(
                prompt_tokens=len(self.prompt_token_ids),
                cached_tokens=sequence.num_cached_tokens,
                completion_tokens=len(sequence.token_ids),
                reasoning_tokens=sequence.output.num_reasoning_tokens,
                accepted_prediction_tokens=accepted,
                rejected_prediction_tokens=rejected,
            ),
            timings=self._timings(sequence),
            error=event.error,
        )

    def _parse(self, text: str, reason: FinishReason, stop: str | int | None) -> Any:
        is_whole = reason is FinishReason.STOP and not isinstance(stop, str)
        return self._schema.read(text) if self._schema is not None and is_whole else None

    def _timings(self, sequence: _Sequence) -> Timings:
        now = time.perf_counter()
        if sequence.first_token_at is None:
            return Timings(None, now - self._started, None)
        first, rate = sequence.first_token_at - self._started, sequence.rate.per_second
        return Timings(first, now - self._started, rate, sequence.proposals)


def _of_prediction(event: TokenEvent, num_dropped: int) -> tuple[int, int]:
    """Return how many tokens of the prediction stood and were told, and how many fell.

    num_dropped     tokens that came with the last ones, behind the end of the text: the last of
                    them is never a proposal.
    """
    for name, num_proposed, num_stood in event.proposals:
        if name == PREDICTION:
            return max(0, num_stood - max(0, num_dropped - 1)), num_proposed - num_stood
    return 0, 0


def _one_by_one(event: TokenEvent) -> Iterator[TokenEvent]:
    """Yield an event's news token by token."""
    last = len(event.token_ids) - 1
    for i in range(last):
        yield event._replace(
            token_ids=event.token_ids[i : i + 1],
            logprobs=event.logprobs[i : i + 1],
            finish_reason=None,
            stop_token_id=None,
        )
    yield event._replace(token_ids=event.token_ids[last:], logprobs=event.logprobs[last:])


class _Sequence:
    """The state of one sequence: its pieces, tokens, log-probabilities and timing so far."""

    def __init__(self, output: OutputText) -> None:
        self.output = output
        self.pieces: list[Piece] = []
        self.token_ids: list[int] = []
        self.logprobs: list[TokenLogprobs] = []
        self.prompt_logprobs: tuple[TokenLogprobs | None, ...] | None = None
        self.num_unsent = 0
        self.num_received = 0  # tokens, those behind the end of the text among them
        self.num_cached_tokens = 0
        self.proposals: tuple[ProposalCounts, ...] = ()
        self.first_token_at: float | None = None
        self.rate = TokenRate()
        self.is_done = False

    def feed(self, event: TokenEvent, now: float) -> Delta:
        """Take an event, and return the new text, and the stop string that it ran into."""
        if event.token_ids and self.first_token_at is None:
            self.first_token_at = now
        self.token_ids += event.token_ids
        self.num_unsent += len(event.token_ids)
        self.logprobs += event.logprobs
        self.num_cached_tokens = max(self.num_cached_tokens, event.num_cached_tokens)
        if event.proposals:
            self.proposals = event.proposals
        if event.prompt_logprobs is not None:
            self.prompt_logprobs = event.prompt_logprobs
        delta = self.output.feed(event)
        self.pieces += delta.pieces
        return delta

    def take_unsent(self) -> tuple[tuple[int, ...], tuple[TokenLogprobs, ...]]:
        """Return the tokens since the last chunk, those of text held back then among them."""
        first = len(self.token_ids) - self.num_unsent
        self.num_unsent = 0
        return tuple(self.token_ids[first:]), tuple(self.logprobs[first:])
