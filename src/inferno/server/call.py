"""The steps that generating routes share: read a request, find it a place, name its answer."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Iterable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

import msgspec
from msgspec import UNSET, UnsetType
from starlette.requests import Request as HttpRequest
from starlette.responses import Response

from inferno.server.answers import (
    CompletionDetails,
    FinishReason,
    Metrics,
    PromptDetails,
    Usage,
)
from inferno.server.body import Body, ignored_header, read_body
from inferno.server.edge import Record, Slot, admission_of, record_of
from inferno.server.fields import GenerateFields, RequestFields
from inferno.server.in_vain import hints_in_vain
from inferno.server.jobs import Job, Origin
from inferno.server.logprobs import TokenNames
from inferno.server.served import Served, served_of
from inferno.text.completion import Completion

Fields = TypeVar("Fields", bound=GenerateFields)
AnyFields = TypeVar("AnyFields", bound=RequestFields)

_LARGE_BODY = 1 << 18
_LOGGED_TOKENS = 64


@dataclass(frozen=True, slots=True)
class Call(Generic[Fields]):
    """One HTTP request that asks for text.

    request_id  what answers and logs call it.
    ignored     the names of what had no effect.
    num_bytes   of its body.
    """

    http: HttpRequest
    served: Served
    record: Record
    fields: Fields
    ignored: tuple[str, ...]
    num_bytes: int

    @property
    def request_id(self) -> str:
        """Return the id that the client gave in the body, or else the edge's id of the request."""
        return self.fields.request_id or self.record.request_id

    @property
    def origin(self) -> Origin:
        """Return the id and the cache salt under which the call's jobs go to the engine."""
        return Origin(self.request_id, self.record.cache_salt)

    async def prepared(self, jobs: Awaitable[list[Job]]) -> list[Job]:
        """Wait for the call's jobs; raise DeadlineExceeded when making them takes too long."""
        return await self.served.in_time(jobs, self.record, self.fields.timeout)

    def slot(self, jobs: Sequence[Job]) -> Slot:
        """Return a place in the engine's queue; raise Refusal where there is none."""
        if self.served.settings.log_prompts:
            beginning = jobs[0].request.prompt_token_ids[:_LOGGED_TOKENS]
            self.record.prompt = self.names.text(beginning, skip_special_tokens=False)
        return admission_of(self.http.scope).slot(
            sum(job.num_tokens for job in jobs),
            record=self.record,
            num_samples=len(jobs) * self.fields.n,
            timeout=self.fields.timeout,
        )

    def head(self, prefix: str) -> Head:
        """Return the id, the time, the model and the fingerprint of every object of the answer."""
        return Head(
            id=prefix + self.request_id,
            created=int(time.time()),
            model=self.fields.model or self.served.names[0],
            system_fingerprint=self.served.fingerprint,
        )

    @property
    def names(self) -> TokenNames:
        """Return the spelling of tokens that this request asked for: as text or as ids."""
        tokenizer = self.served.text.tokenizer
        return TokenNames(tokenizer, as_ids=self.fields.return_tokens_as_token_ids)

    @property
    def metrics(self) -> Metrics | UnsetType:
        """Return times and rates of the request so far; UNSET unless per_request_metrics is on."""
        if not self.served.settings.per_request_metrics:
            return UNSET
        first, rate = self.record.first_token_seconds, self.record.rate.per_second
        if first is None:
            return Metrics(None, None, None, None)
        return Metrics(
            time_to_first_token_ms=first * 1000,
            generation_time_ms=(self.record.seconds - first) * 1000,
            mean_itl_ms=1000 / rate if rate else None,
            tokens_per_second=rate,
        )


@dataclass(frozen=True, slots=True)
class Head:
    """The keys that every object of an answer begins with: its id, time, model and fingerprint."""

    id: str
    created: int
    model: str
    system_fingerprint: str


async def read_call(http: HttpRequest, kind: type[Fields]) -> Call[Fields]:
    """Return the call that a request makes, whose model is known; raise Refusal."""
    body = await read_fields(http, kind)
    served = served_of(http)
    served.check_model(body.fields.model)
    ignored = body.ignored + hints_in_vain(body.fields)
    num_bytes = len(await http.body())
    return Call(http, served, record_of(http.scope), body.fields, ignored, num_bytes)


async def read_fields(http: HttpRequest, kind: type[AnyFields]) -> Body[AnyFields]:
    """Return the fields of any request; large bodies are read beside the event loop."""
    raw = await http.body()
    served = served_of(http)

    def read() -> Body[AnyFields]:
        return read_body(raw, kind, is_lenient=served.settings.lenient)

    if len(raw) <= _LARGE_BODY:
        return read()
    return await served.in_time(served.on_body(read), record_of(http.scope))


def json_response(answer: msgspec.Struct, ignored: tuple[str, ...] = ()) -> Response:
    """Return an answer as one JSON response, whose header names the ignored fields."""
    return Response(
        msgspec.json.encode(answer),
        headers=ignored_header(ignored),
        media_type="application/json",
    )


def usage_of(jobs: Iterable[Job], completions: Sequence[Completion]) -> Usage:
    """Return the usage of a whole call; a prompt counts once, however many choices it has."""
    return usage(
        prompt=sum(job.num_tokens for job in jobs),
        completion=sum(done.usage.completion_tokens for done in completions),
        cached=cached_tokens(completions),
        reasoning=sum(done.usage.reasoning_tokens for done in completions),
    )


def cached_tokens(completions: Iterable[Completion]) -> int:
    """Count the tokens of all prompts that the prefix cache spared their first choice."""
    return sum(done.usage.cached_tokens for done in completions if done.sample_index == 0)


def usage(*, prompt: int, completion: int, cached: int, reasoning: int) -> Usage:
    """Return these numbers as OpenAI nests them."""
    return Usage(
        prompt_tokens=prompt,
        completion_tokens=completion,
        total_tokens=prompt + completion,
        prompt_tokens_details=PromptDetails(cached),
        completion_tokens_details=CompletionDetails(reasoning),
    )


def stop_reason(completion: Completion, fields: GenerateFields) -> str | int | None:
    """Return the request's stop string or token that ended it; the model's own end is none."""
    stop = completion.stop_reason
    return stop if isinstance(stop, str) or stop in (fields.stop_token_ids or ()) else None


def finish_reason(completion: Completion) -> FinishReason:
    """Return OpenAI's name for an ending that is no error."""
    return "length" if completion.finish_reason == "length" else "stop"
