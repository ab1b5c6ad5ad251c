"""Run a worker's job and send its events, or cancel the job: the endpoints of a worker."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Coroutine, Iterator, Mapping, Sequence
from contextlib import aclosing, closing
from typing import Any

import msgspec
from msgspec import UNSET
from starlette.requests import Request as HttpRequest
from starlette.responses import Response

from inferno.client import ServedEngine
from inferno.server.generation.body_parser import ignored_header
from inferno.server.generation.call import (
    Call,
    finish_reason,
    json_response,
    read_call,
    read_fields,
    run,
    stop_reason,
    while_connected,
)
from inferno.server.generation.engine_requests import (
    EngineRequest,
    chat_requests,
    completion_requests,
)
from inferno.server.generation.streams import SseResponse, event
from inferno.server.http import CHAT_PARAM_NAMES, ApiError, Lease, RequestContext, renamed_params
from inferno.server.openai.chat import ignored_by_template, template_args
from inferno.server.openai.request_types import GenerateFields
from inferno.server.openai.response_types import ToolCallDelta
from inferno.server.openai.tool_calls import ToolCallDeltas
from inferno.server.worker.messages import (
    Cancelled,
    CancelRequest,
    ChatJob,
    Counts,
    End,
    Metrics,
    PromptJob,
    Started,
    Timings,
    Token,
)
from inferno.server.worker.worker import JobCancelled, RunningJob, worker_of
from inferno.text.completion import Chunk, Completion

_PARAM_NAMES: Mapping[str, str] = {}
_NULL = msgspec.Raw(b"null")
_METRICS_SECONDS = 1.0

_encode = msgspec.json.Encoder().encode


class _Shape(msgspec.Struct):
    """The part of a body that tells the two kinds of jobs apart."""

    messages: msgspec.Raw = _NULL


async def execute(http: HttpRequest) -> Response:
    """Send a job's events, until it is done."""
    if _has_messages(await http.body()):
        return await _execute_chat(http)
    return await _execute_prompt(http)


async def cancel(http: HttpRequest) -> Response:
    """End a running job; the job's stream gets its last event."""
    body = await read_fields(http, CancelRequest)
    worker_of(http).cancel(body.fields.job_id)
    return json_response(Cancelled(job_id=body.fields.job_id), body.ignored)


def _has_messages(raw: bytes) -> bool:
    try:
        return msgspec.json.decode(raw, type=_Shape).messages != _NULL
    except (msgspec.MsgspecError, RecursionError):
        return False  # and whoever reads it next says what is wrong


async def _execute_chat(http: HttpRequest) -> Response:
    call = await read_call(http, ChatJob)
    args = template_args(call.service.text, call.fields.reasoning_effort)
    making = chat_requests(
        call.service, call.fields, args, call.origin, call.num_bytes, is_by_token=True
    )
    ignored = call.ignored + ignored_by_template(call.fields, call.service.text, args)
    return await _stream(call, call.fields.job_id, making, CHAT_PARAM_NAMES, ignored)


async def _execute_prompt(http: HttpRequest) -> Response:
    call = await read_call(http, PromptJob)
    making = completion_requests(call.service, call.fields, call.origin, is_by_token=True)
    return await _stream(call, call.fields.job_id, making, _PARAM_NAMES, call.ignored)


async def _stream(
    call: Call[Any],
    job_id: str,
    making: Coroutine[Any, Any, list[EngineRequest]],
    names: Mapping[str, str],
    ignored: tuple[str, ...],
) -> Response:
    """Return the stream of events of the one job whose engine request is being made."""
    service = call.service
    with closing(making):  # where it never gets to begin
        running = worker_of(call.http).begin(job_id, call.context)
        with renamed_params(names):
            [engine_request] = await while_connected(call.http.receive, call.prepared(making))
    lease = call.admit([engine_request])
    running.run_in(lease, lambda: service.engine.abort(engine_request.request.request_id, 0))
    stream = JobStream(
        job_id,
        call.fields,
        engine_request,
        running,
        service.engine,
        call.context,
        ToolCallDeltas(engine_request.texts.tool_use),
    )
    return SseResponse(
        stream.events(lease, run([engine_request], lease, names)),
        headers=ignored_header(ignored),
        keep_alive=service.settings.sse_keep_alive,
        done=b"",
        write_error=error_event,
    )


def error_event(error: ApiError) -> bytes:
    """Return the last event of a job that failed."""
    return b"event: error\n" + event(error.body)


class JobStream:
    """A maker of one job's events."""

    def __init__(
        self,
        job_id: str,
        fields: GenerateFields,
        engine_request: EngineRequest,
        running: RunningJob,
        engine: ServedEngine,
        context: RequestContext,
        calls: ToolCallDeltas,
    ) -> None:
        self._job_id = job_id
        self._fields = fields
        self._engine_request = engine_request
        self._running = running
        self._engine = engine
        self._context = context
        self._calls = calls
        self._num_sent = 0
        self._completion: Completion | None = None
        self._metrics_due = time.monotonic() + _METRICS_SECONDS

    async def events(
        self, lease: Lease, chunks: AsyncGenerator[Chunk, None]
    ) -> AsyncGenerator[bytes, None]:
        """Yield the job's events, except for an error's; the lease is released at the end."""
        yield _event(
            b"started", Started(job_id=self._job_id, prompt_tokens=self._engine_request.num_tokens)
        )
        async with lease, aclosing(chunks):
            try:
                async for chunk in chunks:
                    self._completion = chunk.completion
                    yield b"".join(self._events_of(chunk))
            except JobCancelled:
                self._completion = None
            finally:
                self._running.end()  # before its last event, whose reader may use its id again
        yield _event(b"metrics", self._metrics()) + _event(b"end", self._end())

    def _events_of(self, chunk: Chunk) -> Iterator[bytes]:
        """Yield an event for each token; held-back text comes with the token that completes it."""
        *held, last = chunk.token_ids or (None,)
        for token_id in held:
            yield self._token("", token_id)
        if last is not None or chunk.pieces:
            calls = self._calls.of(chunk.pieces)
            yield self._token(chunk.text, last, chunk.reasoning, calls)
        if (now := time.monotonic()) >= self._metrics_due:
            self._metrics_due = now + _METRICS_SECONDS
            yield _event(b"metrics", self._metrics())

    def _token(
        self,
        text: str,
        token_id: int | None,
        reasoning: str = "",
        calls: Sequence[ToolCallDelta] = (),
    ) -> bytes:
        if token_id is not None:
            self._num_sent += 1
        token = Token(
            text=text,
            id=token_id,
            index=self._num_sent - 1,
            reasoning=reasoning or UNSET,
            tool_calls=list(calls) or UNSET,
        )
        return _event(b"token", token)

    def _metrics(self) -> Metrics:
        stats = self._engine.stats()
        return Metrics(
            completion_tokens=self._num_sent,
            time_to_first_token_ms=self._first_token_ms,
            tokens_per_second=self._context.rate.per_second,
            running=stats.running,
            waiting=stats.waiting,
            blocks_used=stats.blocks_used,
            blocks_free=stats.blocks_free,
            device_bytes=dict(stats.device_bytes),
        )

    def _end(self) -> End:
        done = self._completion
        return End(
            job_id=self._job_id,
            stop_reason="cancelled" if done is None else finish_reason(done),
            stop=None if done is None else stop_reason(done, self._fields),
            counts=Counts(
                prompt_tokens=self._engine_request.num_tokens,
                cached_tokens=self._context.cached_tokens,
                completion_tokens=self._num_sent,
                reasoning_tokens=None if done is None else done.usage.reasoning_tokens,
            ),
            timings=Timings(
                time_to_first_token_ms=self._first_token_ms,
                total_ms=self._context.seconds * 1000,
                tokens_per_second=self._context.rate.per_second,
            ),
        )

    @property
    def _first_token_ms(self) -> float | None:
        first = self._context.first_token_seconds
        return None if first is None else first * 1000


def _event(kind: bytes, message: msgspec.Struct) -> bytes:
    return b"event: " + kind + b"\n" + event(_encode(message))
