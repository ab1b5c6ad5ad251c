"""Completions as server-sent events."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import aclosing

import msgspec
from msgspec import UNSET, UnsetType

from inferno.server.answers import Completion, CompletionChoice, Metrics, Usage
from inferno.server.call import Call
from inferno.server.completion_choice import ChoiceWriter
from inferno.server.edge import Slot
from inferno.server.fields import CompletionRequest
from inferno.server.jobs import Job
from inferno.server.sse import event
from inferno.server.tally import Pace, Tally
from inferno.server.template import TextTemplate
from inferno.text.completion import Chunk

PREFIX = "cmpl-"
_encode = msgspec.json.Encoder().encode


class CompletionStream:
    """Makes the events of one call, whose prompts and choices come as they are done."""

    def __init__(self, call: Call[CompletionRequest], jobs: Sequence[Job]) -> None:
        fields, names = call.fields, call.names
        self._call = call
        self._head = call.head(PREFIX)
        self._fields = fields
        self._tally = Tally(fields, sum(job.num_tokens for job in jobs))
        self._pace = Pace(fields.stream_interval)
        self._writers = {
            (job.texts.prompt_index, index): ChoiceWriter(fields, job, index, names)
            for job in jobs
            for index in range(fields.n)
        }
        self._waiting: list[Chunk] = []
        self._templates: dict[tuple[int, int], TextTemplate] = {}  # of choices that have begun
        tells_tokens = fields.logprobs is not None or fields.return_token_ids
        self._is_plain = not (tells_tokens or fields.repeats_usage or fields.stream_interval > 1)

    async def events(
        self, slot: Slot, chunks: AsyncGenerator[Chunk, None]
    ) -> AsyncGenerator[bytes, None]:
        """Yield the stream's events but for [DONE]; the slot is given back at the end."""
        async with slot, aclosing(chunks):
            async for chunk in chunks:
                self._tally.add(chunk)
                if (plain := self._plain_event(chunk)) is not None:
                    yield plain
                    continue
                for ready in self._ready(chunk):
                    yield self._event_of(ready)
        if self._fields.includes_usage:
            yield self._event([], self._tally.usage, self._call.metrics)

    def _plain_event(self, chunk: Chunk) -> bytes | None:
        """Return the event of a chunk amid a choice that tells only text; None for other chunks."""
        template = self._templates.get((chunk.prompt_index, chunk.sample_index))
        if template is None or chunk.completion is not None:
            return None
        return template.fill(chunk.text)

    def _event_of(self, chunk: Chunk) -> bytes:
        writer = self._writer(chunk)
        if self._is_plain:
            self._templates[chunk.prompt_index, chunk.sample_index] = TextTemplate(
                lambda text: self._event([writer.plain(text)], self._tally.of_event)
            )
        return self._event([writer.write(chunk)], self._tally.of_event)

    def _ready(self, chunk: Chunk) -> Iterator[Chunk]:
        """Yield the chunks that can be sent now, and keep those whose prompt isn't scored yet."""
        self._waiting += self._pace.feed(chunk)
        waiting, self._waiting = self._waiting, []
        for each in waiting:
            if self._writer(each).waits_for_prompt:
                self._waiting.append(each)
            else:
                yield each

    def _writer(self, chunk: Chunk) -> ChoiceWriter:
        return self._writers[chunk.prompt_index, chunk.sample_index]

    def _event(
        self,
        choices: list[CompletionChoice],
        usage: Usage | UnsetType | None,
        metrics: Metrics | UnsetType = UNSET,
    ) -> bytes:
        answer = Completion(
            id=self._head.id,
            created=self._head.created,
            model=self._head.model,
            system_fingerprint=self._head.system_fingerprint,
            choices=choices,
            usage=usage,
            metrics=metrics,
        )
        return event(_encode(answer))
