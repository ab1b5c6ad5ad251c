"""Define a worker's messages: that it is ready, jobs and their events, and all as JSON Schema."""

from __future__ import annotations

from collections.abc import Collection
from enum import StrEnum
from inspect import cleandoc
from typing import Annotated, Any, ClassVar, Literal

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from inferno.server.openai.request_types import (
    UNSUPPORTED_IN_CHATS,
    UNSUPPORTED_IN_COMPLETIONS,
    ChatRequest,
    CompletionRequest,
    RequestFields,
    RequestId,
    StreamOptions,
    TokenId,
    Unsupported,
)
from inferno.server.openai.response_types import Error, FinishReasonName, ToolCallDelta

Milliseconds = Annotated[float, Meta(ge=0)]
Bytes = Annotated[int, Meta(ge=0)]
Count = Annotated[int, Meta(ge=0)]
JobId = Annotated[RequestId, Meta(description="The fleet's own name for the job.")]

# Fields that shape a client's answer: a job has one answer, and its events always tell the same.
_ANSWERS: Unsupported = {
    "n": (1,),
    "stream": (True,),
    "stream_options": (),
    "stream_interval": (1,),
    "logprobs": (False,),
    "top_logprobs": (0,),
    "prompt_logprobs": (),
    "return_token_ids": (True,),
    "return_tokens_as_token_ids": (False,),
    "echo": (False,),
    "request_id": (),
}


class DeviceKind(StrEnum):
    """A kind of device that a worker may compute on."""

    CPU = "cpu"
    CUDA = "cuda"
    METAL = "metal"


class Device(Struct, frozen=True, kw_only=True):
    """The device that a worker computes on; the index is null for the CPU."""

    kind: DeviceKind
    index: Count | None


class Model(Struct, frozen=True, kw_only=True):
    """The served model; its fingerprint changes with the weights and with inferno's version."""

    name: str
    fingerprint: str
    dtype: str
    vocab_size: Count
    max_model_len: Count


class Memory(Struct, frozen=True, kw_only=True):
    """Bytes on the device by use, such as `weights`, and those of the engine's process."""

    device_bytes: dict[str, Bytes]
    rss_bytes: Bytes


class Capabilities(Struct, frozen=True, kw_only=True):
    """The limits of what a fleet may send: how many jobs run at once, and how many wait.

    chat            whether jobs may have messages: the model has a chat template.
    kv_cache_tokens what the KV cache holds, of all jobs together.
    """

    routes: list[str]
    chat: bool
    max_running_jobs: Count
    max_waiting_jobs: Count
    kv_cache_tokens: Count


class Ready(Struct, frozen=True, kw_only=True, tag="ready", tag_field="type"):
    """The message that is posted to the callback URL once jobs are taken.

    message_id      the same in every attempt to deliver this message, and in no other message.
    uri             where the routes are.
    """

    protocol: Literal[1] = 1
    message_id: str
    worker_id: str
    uri: str
    version: str
    model: Model
    device: Device
    memory: Memory
    capabilities: Capabilities


class Started(Struct, frozen=True, kw_only=True):
    """The first event of a job: it has a place, and may wait for its first token."""

    job_id: str
    prompt_tokens: Count


class Token(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One token, in order; the texts of all put together are the whole text.

    text            what it makes certain: nothing while a character or a stop string may go on.
    id              null where text comes after the last token, which `index` then names again.
    reasoning       what it adds to the model's reasoning, which `text` doesn't have.
    tool_calls      what it adds to calls of tools, as in the stream of a chat completion.
    """

    text: str
    id: Count | None
    index: Annotated[int, Meta(ge=-1)]
    reasoning: str | UnsetType = UNSET
    tool_calls: list[ToolCallDelta] | UnsetType = UNSET


class Metrics(Struct, frozen=True, kw_only=True):
    """The progress of a job and the load of its worker, sent now and then and before the end.

    running, waiting    jobs of the engine. device_bytes: as in the ready message.
    """

    completion_tokens: Count
    time_to_first_token_ms: Milliseconds | None
    tokens_per_second: float | None
    running: Count
    waiting: Count
    blocks_used: Count
    blocks_free: Count
    device_bytes: dict[str, Bytes]


class Counts(Struct, frozen=True, kw_only=True):
    """Tokens; those of reasoning are not known of a job that was cancelled."""

    prompt_tokens: Count
    cached_tokens: Count
    completion_tokens: Count
    reasoning_tokens: Count | None


class Timings(Struct, frozen=True, kw_only=True):
    """Times from the request's arrival; the rate is that of tokens after those that came first.

    Null where none came later, or too few and too soon to tell.
    """

    time_to_first_token_ms: Milliseconds | None
    total_ms: Milliseconds
    tokens_per_second: float | None


class End(Struct, frozen=True, kw_only=True):
    """The last event of a job that did not fail.

    stop            the stop string or the token that ended it, where one of the job did.
    """

    job_id: str
    stop_reason: FinishReasonName | Literal["cancelled"]
    stop: str | int | None
    counts: Counts
    timings: Timings


class Cancelled(Struct, frozen=True, kw_only=True):
    """The answer to a request to end a job: it was under way, and ends now."""

    job_id: str
    status: Literal["cancelling"] = "cancelling"


class ChatJob(ChatRequest, kw_only=True):
    """A job with messages; all other fields as in a chat completion."""

    unsupported: ClassVar[Unsupported] = {
        **UNSUPPORTED_IN_CHATS,
        **_ANSWERS,
        "prompt": (),
        "return_prompt_text": (False,),
    }
    job_id: JobId


class PromptJob(CompletionRequest, kw_only=True):
    """A job with a prompt; all other fields as in a completion."""

    unsupported: ClassVar[Unsupported] = {**UNSUPPORTED_IN_COMPLETIONS, **_ANSWERS}
    job_id: JobId
    prompt: Annotated[str | list[TokenId], Meta(description="A text, or its token ids.")]


class CancelRequest(RequestFields, kw_only=True):
    """The job to end."""

    job_id: JobId


# The event's name, and what its data is.
EVENTS: dict[str, type[msgspec.Struct]] = {
    "started": Started,
    "token": Token,
    "metrics": Metrics,
    "end": End,
    "error": Error,
}
_JOBS = (ChatJob, PromptJob)
_OTHERS = (Ready, CancelRequest, Cancelled)


def protocol_schema() -> dict[str, Any]:
    """Return the schema of every message, by the names of docs/worker.md."""
    types = [*_JOBS, *_OTHERS, *EVENTS.values()]
    _, definitions = msgspec.json.schema_components(types, ref_template="#/$defs/{name}")
    for kind in _JOBS:
        definitions[kind.__name__] = _without(definitions[kind.__name__], kind.unsupported)
    del definitions[StreamOptions.__name__]  # of a field that is refused
    for definition in definitions.values():
        definition["description"] = cleandoc(definition.get("description", ""))
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "inferno worker",
        "$defs": dict(sorted(definitions.items())),
    }


def _without(schema: dict[str, Any], unsupported: Collection[str]) -> dict[str, Any]:
    """Return the schema without these fields, and closed to fields that are unknown."""
    taken = {name: of for name, of in schema["properties"].items() if name not in unsupported}
    return {**schema, "properties": taken, "additionalProperties": False}
