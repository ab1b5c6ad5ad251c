"""Run a call that generates text: read, admitted, and run until its end or its client leaves."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Coroutine, Iterable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import msgspec
from msgspec import UNSET, UnsetType
from starlette.requests import Request as HttpRequest
from starlette.responses import Response

from inferno.errors import EngineError
from inferno.requests import FinishReason
from inferno.server.generation.body_parser import Body, ignored_header, ignored_hints, read_body
from inferno.server.generation.engine_requests import EngineRequest, Origin
from inferno.server.http import (
    ClientDisconnected,
    Lease,
    Receive,
    RequestContext,
    Unavailable,
    admission_of,
    context_of,
    renamed_params,
)
from inferno.server.model_service import ModelService, service_of
from inferno.server.openai.logprobs import TokenNames
from inferno.server.openai.request_types import GenerateFields, RequestFields
from inferno.server.openai.response_types import (
    CompletionDetails,
    FinishReasonName,
    Metrics,
    PromptDetails,
    Usage,
)
from inferno.text.completion import Chunk, Completion
from inferno.text.completion import Usage as SequenceUsage

Fields = TypeVar("Fields", bound=GenerateFields)
AnyFields = TypeVar("AnyFields", bound=RequestFields)
T = TypeVar("T")

_REPETITION = "repetition_detected"  # vLLM's word
_SHORT_BODY = 1 << 13  # whose texts are encoded in a millisecond
_LARGE_BODY = 1 << 18
_LOGGED_TOKENS = 64


@dataclass(frozen=True, slots=True)
class Call(Generic[Fields]):
    """One HTTP request that asks for text.

    request_id  the name of the call in answers and logs.
    ignored     the names of fields that have no effect.
    num_bytes   the size of the request's body.
    """

    http: HttpRequest
    service: ModelService
    context: RequestContext
    fields: Fields
    ignored: tuple[str, ...]
    num_bytes: int

    @property
    def request_id(self) -> str:
        """Return the id that the client gave in the body, or else the id of the HTTP request."""
        return self.fields.request_id or self.context.request_id

    @property
    def origin(self) -> Origin:
        """Return the id and the cache salt under which the call's prompts go to the engine."""
        return Origin(self.request_id, self.context.cache_salt)

    async def prepared(
        self, engine_requests: Awaitable[list[EngineRequest]]
    ) -> list[EngineRequest]:
        """Wait for engine requests to be made; raise DeadlineExceeded when that takes too long."""
        return await self.service.in_time(engine_requests, self.context, self.fields.timeout)

    def admit(self, engine_requests: Sequence[EngineRequest]) -> Lease:
        """Return a lease of the engine; raise ApiError where the server is full."""
        if self.service.settings.log_prompts:
            beginning = engine_requests[0].request.prompt_token_ids[:_LOGGED_TOKENS]
            self.context.prompt = self.names.text(beginning, skip_special_tokens=False)
        return admission_of(self.http.scope).acquire(
            sum(engine_request.num_tokens for engine_request in engine_requests),
            context=self.context,
            num_sequences=len(engine_requests) * self.fields.n,
            timeout=self.fields.timeout,
        )

    def head(self, prefix: str) -> ResponseHead:
        """Return the id, the time, the model and the fingerprint of every object of the answer."""
        return ResponseHead(
            id=prefix + self.request_id,
            created=int(time.time()),
            model=self.fields.model or self.service.names[0],
            system_fingerprint=self.service.fingerprint,
        )

    @property
    def names(self) -> TokenNames:
        """Return the spelling of tokens that the request asks for: as text or as ids."""
        tokenizer = self.service.text.tokenizer
        return TokenNames(tokenizer, as_ids=self.fields.return_tokens_as_token_ids)

    @property
    def metrics(self) -> Metrics | UnsetType:
        """Return times and rates of the request so far; UNSET unless per_request_metrics is on."""
        if not self.service.settings.per_request_metrics:
            return UNSET
        first, rate = self.context.first_token_seconds, self.context.rate.per_second
        queued = self.context.queue_seconds
        queue_time_ms = None if queued is None else queued * 1000
        if first is None:
            return Metrics(None, None, None, None, queue_time_ms)
        proposals: dict[str, Counter[str]] = {}
        for counts in self.context.proposals.values():
            for each in counts:
                by_name = proposals.setdefault(each.name, Counter())
                by_name.update(proposed_tokens=each.num_proposed, accepted_tokens=each.num_stood)
        return Metrics(
            time_to_first_token_ms=first * 1000,
            generation_time_ms=(self.context.seconds - first) * 1000,
            mean_itl_ms=1000 / rate if rate else None,
            tokens_per_second=rate,
            queue_time_ms=queue_time_ms,
            speculative_decoding=proposals or UNSET,
        )


@dataclass(frozen=True, slots=True)
class ResponseHead:
    """The keys that every object of an answer begins with: its id, time, model and fingerprint."""

    id: str
    created: int
    model: str
    system_fingerprint: str


async def read_call(http: HttpRequest, kind: type[Fields]) -> Call[Fields]:
    """Return the call of a request; raise ApiError where a field or the model's name is wrong."""
    return await call_of(http, await read_fields(http, kind))


async def call_of(http: HttpRequest, body: Body[Fields]) -> Call[Fields]:
    """Return the call of a request whose body is read; raise ApiError for a wrong model's name."""
    service = service_of(http)
    service.check_model(body.fields.model)
    ignored = body.ignored + ignored_hints(body.fields)
    num_bytes = len(await http.body())
    return Call(http, service, context_of(http.scope), body.fields, ignored, num_bytes)


async def read_fields(http: HttpRequest, kind: type[AnyFields]) -> Body[AnyFields]:
    """Return the fields of any request; large bodies are parsed in a thread."""
    raw = await http.body()
    service = service_of(http)

    def read() -> Body[AnyFields]:
        return read_body(raw, kind, is_lenient=service.settings.lenient)

    if len(raw) <= _LARGE_BODY:
        return read()
    reading = service.in_time(service.on_body(read), context_of(http.scope))
    return await while_connected(http.receive, reading)


def json_response(answer: msgspec.Struct, ignored: tuple[str, ...] = ()) -> Response:
    """Return an answer as one JSON response, whose header names the ignored fields."""
    return Response(
        msgspec.json.encode(answer),
        headers=ignored_header(ignored),
        media_type="application/json",
    )


def usage_of(engine_requests: Iterable[EngineRequest], completions: Sequence[Completion]) -> Usage:
    """Return the usage of a whole call; a prompt counts once, however many choices it has."""
    return usage(
        prompt=sum(engine_request.num_tokens for engine_request in engine_requests),
        completion=sum(done.usage.completion_tokens for done in completions),
        cached=cached_tokens(completions),
        details=completion_details([done.usage for done in completions]),
    )


def cached_tokens(completions: Iterable[Completion]) -> int:
    """Count the tokens of all prompts that the prefix cache had for each prompt's first choice."""
    return sum(done.usage.cached_tokens for done in completions if done.sequence_index == 0)


def completion_details(usages: Sequence[SequenceUsage]) -> CompletionDetails:
    """Return how many of all choices' new tokens were reasoning, or from the prediction."""
    return CompletionDetails(
        sum(each.reasoning_tokens for each in usages),
        sum(each.accepted_prediction_tokens for each in usages),
        sum(each.rejected_prediction_tokens for each in usages),
    )


def usage(*, prompt: int, completion: int, cached: int, details: CompletionDetails) -> Usage:
    """Return the usage object in which OpenAI nests the numbers of tokens."""
    return Usage(
        prompt_tokens=prompt,
        completion_tokens=completion,
        total_tokens=prompt + completion,
        prompt_tokens_details=PromptDetails(cached),
        completion_tokens_details=details,
    )


def stop_reason(completion: Completion, fields: GenerateFields) -> str | int | None:
    """Return the request's own stop string or token id that ended an output; else None."""
    if completion.finish_reason is FinishReason.REPETITION:
        return _REPETITION
    stop = completion.stop_reason
    return stop if isinstance(stop, str) or stop in (fields.stop_token_ids or ()) else None


def finish_reason(completion: Completion) -> FinishReasonName:
    """Return OpenAI's name for an ending that is no error; `repetition` is vLLM's."""
    match completion.finish_reason:
        case FinishReason.LENGTH:
            return "length"
        case FinishReason.REPETITION:
            return "repetition"
    return "tool_calls" if completion.tool_calls else "stop"


def run(
    engine_requests: Sequence[EngineRequest], lease: Lease, names: Mapping[str, str]
) -> AsyncGenerator[Chunk, None]:
    """Return a generator of the chunks of all prompts, in the order they come.

    names       this route's names of parameters, for InvalidRequest.

    Closing the generator aborts all sequences that still run. Raises InvalidRequest, ApiError,
    EngineError.
    """
    runs = [_run_one(engine_request, lease, names) for engine_request in engine_requests]
    return runs[0] if len(runs) == 1 else _merged(runs)


async def run_all(
    engine_requests: Sequence[EngineRequest], lease: Lease, names: Mapping[str, str]
) -> list[Completion]:
    """Run all prompts to their ends; return every completion, in the order of the choices."""
    done = [
        chunk.completion
        async for chunk in run(engine_requests, lease, names)
        if chunk.completion is not None
    ]
    return sorted(done, key=lambda each: (each.prompt_index, each.sequence_index))


async def while_connected(receive: Receive, work: Coroutine[Any, Any, T]) -> T:
    """Return the work's result; cancel it and raise ClientDisconnected when the client leaves."""
    working = asyncio.create_task(work)
    leaving = asyncio.create_task(_disconnect(receive))
    try:
        await asyncio.wait({working, leaving}, return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise ClientDisconnected
        return working.result()
    finally:
        await _end(working, leaving)


async def while_wanted(http: HttpRequest, work: Coroutine[Any, Any, T]) -> T:
    """Return the work's result; for long bodies, cancel it when the client leaves."""
    is_short = len(await http.body()) <= _SHORT_BODY
    return await (work if is_short else while_connected(http.receive, work))


async def _run_one(
    engine_request: EngineRequest, lease: Lease, names: Mapping[str, str]
) -> AsyncGenerator[Chunk, None]:
    # As text.model_text.chunks_of, without a generator more for each token to pass.
    with renamed_params({**names, "structured": engine_request.shape_name}):
        async with aclosing(lease.generate(engine_request.request)) as events:
            async for event in events:
                for chunk in engine_request.texts.feed(event):
                    if chunk.completion is not None:
                        _check(chunk.completion)
                    yield chunk
                    if chunk.completion is not None and event.finish_reason is None:
                        lease.stop(event.request_id, chunk.sequence_index)  # at a stop string


def _check(completion: Completion) -> None:
    if completion.finish_reason is FinishReason.ERROR:
        raise EngineError(completion.error or "a step of the engine failed")
    if completion.finish_reason is FinishReason.ABORTED:
        message = "The server stops and this request was ended; try it again."
        raise Unavailable("aborted", message, retry_after=1)


async def _disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _merged(runs: Sequence[AsyncGenerator[T, None]]) -> AsyncGenerator[T, None]:
    """Yield the items of several generators as they come; the first error ends them all."""
    items: asyncio.Queue[T | _End] = asyncio.Queue(maxsize=len(runs))
    tasks = [asyncio.create_task(_pump(each, items)) for each in runs]
    try:
        num_open = len(runs)
        while num_open:
            item = await items.get()
            if not isinstance(item, _End):
                yield item
                continue
            num_open -= 1
            if item.problem is not None:
                raise item.problem
    finally:
        await _end(*tasks)


class _End:
    """The mark of a generator that is done; `problem` is the error that ended it, if one did."""

    def __init__(self, problem: Exception | None) -> None:
        self.problem = problem


async def _pump(run: AsyncGenerator[T, None], items: asyncio.Queue[T | _End]) -> None:
    problem = None
    try:
        async with aclosing(run):
            async for item in run:
                await items.put(item)
    except Exception as error:
        problem = error
    await items.put(_End(problem))


async def _end(*tasks: asyncio.Task[Any]) -> None:
    for task in tasks:
        task.cancel()
    waiting: Awaitable[Any] = asyncio.gather(*tasks, return_exceptions=True)
    await waiting
