"""A chat's answer as server-sent events."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing

import msgspec
from msgspec import UNSET, UnsetType

from inferno.server.answers import ChatChunk, ChatLogprobs, ChunkChoice, Delta, Metrics, Usage
from inferno.server.call import Call, finish_reason, stop_reason
from inferno.server.edge import Slot
from inferno.server.fields import ChatRequest
from inferno.server.jobs import Job
from inferno.server.logprobs import chat_logprobs
from inferno.server.messages import last_answer
from inferno.server.sse import event
from inferno.server.tally import Pace, Tally
from inferno.server.template import TextTemplate
from inferno.text.completion import Chunk
from inferno.text.parsers.parser import Part

PREFIX = "chatcmpl-"
_encode = msgspec.json.Encoder().encode


class ChatStream:
    """Makes the events of one chat: for each choice a first one with its role, then its text."""

    def __init__(self, call: Call[ChatRequest], job: Job) -> None:
        self._call = call
        self._head = call.head(PREFIX)
        self._fields = call.fields
        self._job = job
        self._names = call.names
        self._tally = Tally(call.fields, job.num_tokens)
        self._begun: set[int] = set()
        self._tells_tokens = call.fields.logprobs or call.fields.return_token_ids
        self._is_plain = not (
            self._tells_tokens or call.fields.repeats_usage or call.fields.stream_interval > 1
        )
        self._templates: dict[tuple[int, Part], TextTemplate] = {}  # of choices that have begun

    async def events(
        self, slot: Slot, chunks: AsyncGenerator[Chunk, None]
    ) -> AsyncGenerator[bytes, None]:
        """Yield the stream's events but for [DONE]; the slot is given back at the end."""
        pace = Pace(self._fields.stream_interval)
        async with slot, aclosing(chunks):
            async for chunk in chunks:
                self._tally.add(chunk)
                if (plain := self._plain_event(chunk)) is not None:
                    yield plain
                    continue
                for ready in pace.feed(chunk):
                    yield self._events_of(ready)
        if self._fields.includes_usage:
            yield self._event([], self._tally.usage, metrics=self._call.metrics)

    def _plain_event(self, chunk: Chunk) -> bytes | None:
        """Return the event of a chunk amid a choice that tells only text; None for other chunks."""
        if len(chunk.pieces) != 1 or chunk.completion is not None:
            return None
        (piece,) = chunk.pieces
        template = self._templates.get((chunk.sample_index, piece.part))
        if template is None:
            return None
        return template.fill(piece.text) if piece.text else b""

    def _events_of(self, chunk: Chunk) -> bytes:
        first = b""
        if chunk.sample_index not in self._begun:
            self._begun.add(chunk.sample_index)
            first = self._first(chunk.sample_index)
            if self._is_plain:
                self._prepare(chunk.sample_index)
        reasoning = chunk.reasoning if self._fields.include_reasoning else ""
        content, done = chunk.text, chunk.completion
        if not content and not reasoning and done is None and not self._tells_tokens:
            return first
        choice = ChunkChoice(
            index=chunk.sample_index,
            delta=_delta(content, reasoning),
            logprobs=self._logprobs(chunk),
            finish_reason=None if done is None else finish_reason(done),
            stop_reason=UNSET if done is None else stop_reason(done, self._fields),
            token_ids=list(chunk.token_ids) if self._fields.return_token_ids else UNSET,
        )
        return first + self._event([choice], self._tally.of_event)

    def _prepare(self, index: int) -> None:
        """Make the templates of a choice."""

        def event_of(delta: Delta) -> bytes:
            return self._event([ChunkChoice(index=index, delta=delta)], self._tally.of_event)

        self._templates[index, Part.CONTENT] = TextTemplate(lambda text: event_of(_delta(text, "")))
        if self._fields.include_reasoning:
            self._templates[index, Part.REASONING] = TextTemplate(
                lambda text: event_of(_delta("", text))
            )

    def _first(self, index: int) -> bytes:
        echo = last_answer(self._fields.messages) if self._fields.echo else ""
        prompt = self._job.texts.prompt_token_ids
        return self._event(
            [ChunkChoice(index=index, delta=Delta(role="assistant", content=echo))],
            self._tally.of_event,
            prompt_token_ids=list(prompt) if self._fields.return_token_ids else UNSET,
        )

    def _event(
        self,
        choices: list[ChunkChoice],
        usage: Usage | UnsetType | None,
        prompt_token_ids: list[int] | UnsetType = UNSET,
        metrics: Metrics | UnsetType = UNSET,
    ) -> bytes:
        chunk = ChatChunk(
            id=self._head.id,
            created=self._head.created,
            model=self._head.model,
            system_fingerprint=self._head.system_fingerprint,
            choices=choices,
            usage=usage,
            prompt_token_ids=prompt_token_ids,
            metrics=metrics,
        )
        return event(_encode(chunk))

    def _logprobs(self, chunk: Chunk) -> ChatLogprobs | None:
        if not self._fields.logprobs:
            return None
        return chat_logprobs(chunk.logprobs, self._names, self._fields.top_logprobs)


def _delta(content: str, reasoning: str) -> Delta:
    return Delta(
        content=content or UNSET,
        reasoning=reasoning or UNSET,
        reasoning_content=reasoning or UNSET,
    )
