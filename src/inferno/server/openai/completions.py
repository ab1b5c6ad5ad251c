"""Complete prompts, in one piece or as a stream: the endpoint of completions."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from contextlib import aclosing

import msgspec
from msgspec import UNSET, UnsetType
from starlette.requests import Request as HttpRequest
from starlette.responses import Response

from inferno.server.generation.body_parser import ignored_header
from inferno.server.generation.call import (
    Call,
    finish_reason,
    json_response,
    read_call,
    run,
    run_all,
    stop_reason,
    usage_of,
    while_connected,
    while_wanted,
)
from inferno.server.generation.engine_requests import EngineRequest, completion_requests
from inferno.server.generation.streams import (
    SseResponse,
    StreamInterval,
    StreamUsage,
    TextTemplate,
    event,
)
from inferno.server.http import Lease
from inferno.server.openai.logprobs import (
    CompletionLogprobsWriter,
    TokenNames,
    concatenated,
    prompt_logprobs,
)
from inferno.server.openai.request_types import CompletionRequest
from inferno.server.openai.response_types import Completion as CompletionResponse
from inferno.server.openai.response_types import (
    CompletionChoice,
    CompletionLogprobs,
    Metrics,
    PromptLogprobs,
    Usage,
)
from inferno.text.completion import Chunk, Completion
from inferno.text.parsers.parser import Part, Piece

_PARAM_NAMES: Mapping[str, str] = {}
_PREFIX = "cmpl-"

_encode = msgspec.json.Encoder().encode


async def create_completion(http: HttpRequest) -> Response:
    """Answer one prompt or several."""
    call = await read_call(http, CompletionRequest)
    making = completion_requests(call.service, call.fields, call.origin)
    engine_requests = await while_wanted(http, call.prepared(making))
    lease = call.admit(engine_requests)
    if call.fields.stream:
        stream = CompletionStream(call, engine_requests)
        return SseResponse(
            stream.events(lease, run(engine_requests, lease, _PARAM_NAMES)),
            headers=ignored_header(call.ignored),
            keep_alive=call.service.settings.sse_keep_alive,
        )
    answer = await while_connected(http.receive, _whole(call, engine_requests, lease))
    return json_response(answer, call.ignored)


async def _whole(
    call: Call[CompletionRequest], engine_requests: list[EngineRequest], lease: Lease
) -> CompletionResponse:
    async with lease:
        completions = await run_all(engine_requests, lease, _PARAM_NAMES)
    head, names = call.head(_PREFIX), call.names
    return CompletionResponse(
        id=head.id,
        created=head.created,
        model=head.model,
        system_fingerprint=head.system_fingerprint,
        choices=[
            ChoiceWriter(
                call.fields, engine_requests[done.prompt_index], done.sequence_index, names
            ).write(_as_chunk(done))
            for done in completions
        ],
        usage=usage_of(engine_requests, completions),
        metrics=call.metrics,
    )


def _as_chunk(done: Completion) -> Chunk:
    """Return the whole of a completion, as one piece of a stream."""
    return Chunk(
        prompt_index=done.prompt_index,
        sequence_index=done.sequence_index,
        pieces=(Piece(Part.CONTENT, done.text),),
        token_ids=done.token_ids,
        logprobs=done.logprobs or (),
        completion=done,
    )


class CompletionStream:
    """A maker of one call's events, of its prompts and choices as their chunks come."""

    def __init__(
        self, call: Call[CompletionRequest], engine_requests: Sequence[EngineRequest]
    ) -> None:
        fields, names = call.fields, call.names
        self._call = call
        self._head = call.head(_PREFIX)
        self._fields = fields
        self._usage = StreamUsage(
            fields, sum(engine_request.num_tokens for engine_request in engine_requests)
        )
        self._interval = StreamInterval(fields.stream_interval)
        self._writers = {
            (engine_request.texts.prompt_index, index): ChoiceWriter(
                fields, engine_request, index, names
            )
            for engine_request in engine_requests
            for index in range(fields.n)
        }
        self._waiting: list[Chunk] = []
        self._templates: dict[tuple[int, int], TextTemplate] = {}  # of choices that have begun
        includes_tokens = fields.logprobs is not None or fields.return_token_ids
        self._is_plain = not (includes_tokens or fields.repeats_usage or fields.stream_interval > 1)

    async def events(
        self, lease: Lease, chunks: AsyncGenerator[Chunk, None]
    ) -> AsyncGenerator[bytes, None]:
        """Yield the stream's events except [DONE]; the lease is released at the end."""
        async with lease, aclosing(chunks):
            async for chunk in chunks:
                self._usage.add(chunk)
                if (plain := self._plain_event(chunk)) is not None:
                    yield plain
                    continue
                for ready in self._ready(chunk):
                    yield self._event_of(ready)
        if self._fields.includes_usage:
            yield self._event([], self._usage.usage, self._call.metrics)

    def _plain_event(self, chunk: Chunk) -> bytes | None:
        """Return the event of a chunk amid a choice that has only text; None for other chunks."""
        template = self._templates.get((chunk.prompt_index, chunk.sequence_index))
        if template is None or chunk.completion is not None:
            return None
        return template.fill(chunk.text)

    def _event_of(self, chunk: Chunk) -> bytes:
        writer = self._writer(chunk)
        if self._is_plain:
            self._templates[chunk.prompt_index, chunk.sequence_index] = TextTemplate(
                lambda text: self._event([writer.plain(text)], self._usage.of_event)
            )
        return self._event([writer.write(chunk)], self._usage.of_event)

    def _ready(self, chunk: Chunk) -> Iterator[Chunk]:
        """Yield the chunks that can be sent now, and keep those whose prompt isn't scored yet."""
        self._waiting += self._interval.feed(chunk)
        waiting, self._waiting = self._waiting, []
        for each in waiting:
            if self._writer(each).waits_for_prompt:
                self._waiting.append(each)
            else:
                yield each

    def _writer(self, chunk: Chunk) -> ChoiceWriter:
        return self._writers[chunk.prompt_index, chunk.sequence_index]

    def _event(
        self,
        choices: list[CompletionChoice],
        usage: Usage | UnsetType | None,
        metrics: Metrics | UnsetType = UNSET,
    ) -> bytes:
        answer = CompletionResponse(
            id=self._head.id,
            created=self._head.created,
            model=self._head.model,
            system_fingerprint=self._head.system_fingerprint,
            choices=choices,
            usage=usage,
            metrics=metrics,
        )
        return event(_encode(answer))


class ChoiceWriter:
    """A writer of one choice, whole or chunk by chunk; an echo, if asked for, comes first."""

    def __init__(
        self,
        fields: CompletionRequest,
        engine_request: EngineRequest,
        sequence_index: int,
        names: TokenNames,
    ) -> None:
        self._fields = fields
        self._engine_request = engine_request
        self._index = engine_request.texts.prompt_index * fields.n + sequence_index
        self._names = names
        self._logprobs = CompletionLogprobsWriter(
            names,
            fields.logprobs or 0,
            skip_special_tokens=fields.skip_special_tokens,
            is_beginning=fields.echo,
        )
        self._is_first = True

    @property
    def waits_for_prompt(self) -> bool:
        """Return whether the echo lacks its log-probabilities, which another choice brings."""
        is_scored = self._fields.echo and self._fields.logprobs is not None
        return is_scored and self._is_first and self._engine_request.texts.prompt_logprobs is None

    def write(self, chunk: Chunk) -> CompletionChoice:
        """Return the choice's new part for a chunk; the first has the echo, the last the end."""
        is_first, self._is_first = self._is_first, False
        done, fields = chunk.completion, self._fields
        prompt_ids = list(self._engine_request.texts.prompt_token_ids)
        includes_prompt = is_first and fields.return_token_ids
        return CompletionChoice(
            index=self._index,
            text=(self._echo() if is_first and fields.echo else "") + chunk.text,
            logprobs=self._logprobs_of(chunk, is_first=is_first),
            finish_reason=None if done is None else finish_reason(done),
            stop_reason=None if done is None else stop_reason(done, fields),
            token_ids=list(chunk.token_ids) if fields.return_token_ids else UNSET,
            prompt_token_ids=prompt_ids if includes_prompt else UNSET,
            prompt_logprobs=self._prompt_logprobs() or UNSET,
        )

    def plain(self, text: str) -> CompletionChoice:
        """Return a new part with nothing but text, which is neither the first nor the last."""
        return CompletionChoice(
            index=self._index, text=text, logprobs=None, finish_reason=None, stop_reason=None
        )

    def _echo(self) -> str:
        if self._engine_request.prompt is not None:
            return self._engine_request.prompt
        return self._names.text(
            self._engine_request.texts.prompt_token_ids,
            skip_special_tokens=self._fields.skip_special_tokens,
        )

    def _logprobs_of(self, chunk: Chunk, *, is_first: bool) -> CompletionLogprobs | None:
        if self._fields.logprobs is None:
            return None
        write, is_all = self._logprobs.write, self._fields.has_logprob_ids
        if not (is_first and self._fields.echo):
            return write(chunk.token_ids, chunk.logprobs, is_all_told=is_all)
        texts = self._engine_request.texts
        echoed = write(
            texts.prompt_token_ids, texts.prompt_logprobs or (), spelled=self._engine_request.prompt
        )
        return concatenated(echoed, write(chunk.token_ids, chunk.logprobs, is_all_told=is_all))

    def _prompt_logprobs(self) -> PromptLogprobs | None:
        entries = self._engine_request.texts.prompt_logprobs
        if self._fields.prompt_logprobs is None or entries is None:
            return None
        return prompt_logprobs(entries, self._names, self._fields.prompt_logprobs)
