"""Answer a conversation, in one piece or as a stream: the endpoint of chats."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Any

import msgspec
from msgspec import UNSET, UnsetType
from starlette.requests import Request as HttpRequest
from starlette.responses import Response

from inferno.requests import TokenLogprobs
from inferno.server.generation.body_parser import ignored_chat_fields, ignored_header
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
)
from inferno.server.generation.engine_requests import EngineRequest, chat_requests
from inferno.server.generation.streams import (
    SseResponse,
    StreamInterval,
    StreamUsage,
    TextTemplate,
    event,
)
from inferno.server.http import CHAT_PARAM_NAMES, Lease, renamed_params
from inferno.server.openai.logprobs import TokenNames, chat_logprobs, prompt_logprobs
from inferno.server.openai.request_types import ChatRequest
from inferno.server.openai.response_types import (
    ChatChoice,
    ChatChunk,
    ChatCompletion,
    ChatLogprobs,
    ChunkChoice,
    Delta,
    Message,
    Metrics,
    ToolCallDelta,
    Usage,
)
from inferno.server.openai.tool_calls import ToolCallDeltas, whole_calls
from inferno.text.completion import Chunk, Completion
from inferno.text.conversation import last_answer
from inferno.text.model_text import ModelText
from inferno.text.parsers.calls.syntax import ToolUse
from inferno.text.parsers.parser import Part

_PREFIX = "chatcmpl-"

_encode = msgspec.json.Encoder().encode


async def create_chat_completion(http: HttpRequest) -> Response:
    """Answer a conversation as the assistant."""
    call = await read_call(http, ChatRequest)
    args = template_args(call.service.text, call.fields.reasoning_effort)
    ignored = call.ignored + ignored_by_template(call.fields, call.service.text, args)
    making = chat_requests(call.service, call.fields, args, call.origin, call.num_bytes)
    with renamed_params(CHAT_PARAM_NAMES):
        engine_requests = await while_connected(http.receive, call.prepared(making))
    lease = call.admit(engine_requests)
    if call.fields.stream:
        stream = ChatStream(call, engine_requests[0])
        return SseResponse(
            stream.events(lease, run(engine_requests, lease, CHAT_PARAM_NAMES)),
            headers=ignored_header(ignored),
            keep_alive=call.service.settings.sse_keep_alive,
        )
    answer = await while_connected(http.receive, _whole(call, engine_requests, lease))
    return json_response(answer, ignored)


async def _whole(
    call: Call[ChatRequest], engine_requests: list[EngineRequest], lease: Lease
) -> ChatCompletion:
    async with lease:
        completions = await run_all(engine_requests, lease, CHAT_PARAM_NAMES)
    head, fields, names = call.head(_PREFIX), call.fields, call.names
    prompt = next((done.prompt_logprobs for done in completions if done.prompt_logprobs), None)
    return ChatCompletion(
        id=head.id,
        created=head.created,
        model=head.model,
        system_fingerprint=head.system_fingerprint,
        choices=[_choice(done, call, engine_requests[0]) for done in completions],
        usage=usage_of(engine_requests, completions),
        prompt_token_ids=list(engine_requests[0].texts.prompt_token_ids)
        if fields.return_token_ids
        else UNSET,
        prompt_text=engine_requests[0].prompt_text if fields.return_prompt_text else UNSET,
        prompt_logprobs=UNSET
        if prompt is None
        else prompt_logprobs(prompt, names, fields.prompt_logprobs or 0),
        metrics=call.metrics,
    )


def _choice(done: Completion, call: Call[ChatRequest], engine_request: EngineRequest) -> ChatChoice:
    fields = call.fields
    return ChatChoice(
        index=done.sequence_index,
        message=_message(done, fields, engine_request.texts.tool_use),
        logprobs=None if done.logprobs is None else _logprobs(done.logprobs, fields, call.names),
        finish_reason=finish_reason(done),
        stop_reason=stop_reason(done, fields),
        token_ids=list(done.token_ids) if fields.return_token_ids else UNSET,
    )


def _logprobs(
    entries: Sequence[TokenLogprobs], fields: ChatRequest, names: TokenNames
) -> ChatLogprobs:
    return chat_logprobs(entries, names, None if fields.has_logprob_ids else fields.top_logprobs)


def _message(done: Completion, fields: ChatRequest, tool_use: ToolUse | None) -> Message:
    echo = last_answer(fields.messages) if fields.echo else ""
    shown = done.reasoning if fields.include_reasoning else ""
    content = echo + done.text
    calls = whole_calls(done, tool_use)
    return Message(
        content=content if content or not calls else None,
        reasoning=shown or UNSET,
        reasoning_content=shown or UNSET,
        tool_calls=calls or UNSET,
    )


def ignored_by_template(
    fields: ChatRequest, text: ModelText, args: dict[str, Any]
) -> tuple[str, ...]:
    """Return the names of a chat's fields that have no effect on its prompt.

    args        the template's arguments made of reasoning_effort.
    """
    is_ignored = fields.reasoning_effort is not None and not args
    return (("reasoning_effort",) if is_ignored else ()) + ignored_chat_fields(fields, text)


def template_args(text: ModelText, effort: str | None) -> dict[str, Any]:
    """Return the chat template's arguments for reasoning_effort; empty if it has none."""
    if effort == "none" and text.takes_template_arg("enable_thinking"):
        return {"enable_thinking": False}
    if effort is not None and text.takes_template_arg("reasoning_effort"):
        return {"reasoning_effort": effort}
    return {}


class ChatStream:
    """A maker of one chat's events: for each choice a first one with its role, then its text."""

    def __init__(self, call: Call[ChatRequest], engine_request: EngineRequest) -> None:
        self._call = call
        self._head = call.head(_PREFIX)
        self._fields = call.fields
        self._engine_request = engine_request
        self._names = call.names
        self._usage = StreamUsage(call.fields, engine_request.num_tokens)
        self._calls: dict[int, ToolCallDeltas] = {}  # of choices that have begun
        self._includes_tokens = call.fields.logprobs or call.fields.return_token_ids
        self._is_plain = not (
            self._includes_tokens or call.fields.repeats_usage or call.fields.stream_interval > 1
        )
        self._templates: dict[tuple[int, Part], TextTemplate] = {}  # of choices that have begun

    async def events(
        self, lease: Lease, chunks: AsyncGenerator[Chunk, None]
    ) -> AsyncGenerator[bytes, None]:
        """Yield the stream's events except [DONE]; the lease is released at the end."""
        interval = StreamInterval(self._fields.stream_interval)
        async with lease, aclosing(chunks):
            async for chunk in chunks:
                self._usage.add(chunk)
                if (plain := self._plain_event(chunk)) is not None:
                    yield plain
                    continue
                for ready in interval.feed(chunk):
                    yield self._events_of(ready)
        if self._fields.includes_usage:
            yield self._event([], self._usage.usage, metrics=self._call.metrics)

    def _plain_event(self, chunk: Chunk) -> bytes | None:
        """Return the event of a chunk amid a choice that has only text; None for other chunks."""
        if len(chunk.pieces) != 1 or chunk.completion is not None:
            return None
        (piece,) = chunk.pieces
        template = self._templates.get((chunk.sequence_index, piece.part))
        if template is None:
            return None
        return template.fill(piece.text) if piece.text else b""

    def _events_of(self, chunk: Chunk) -> bytes:
        first = b""
        if chunk.sequence_index not in self._calls:
            tool_use = self._engine_request.texts.tool_use
            self._calls[chunk.sequence_index] = ToolCallDeltas(tool_use)
            first = self._first(chunk.sequence_index)
            if self._is_plain:
                self._prepare(chunk.sequence_index)
        reasoning = chunk.reasoning if self._fields.include_reasoning else ""
        content, done = chunk.text, chunk.completion
        calls = self._calls[chunk.sequence_index].of(chunk.pieces)
        is_silent = not (content or reasoning or calls or self._includes_tokens)
        if is_silent and done is None:
            return first
        choice = ChunkChoice(
            index=chunk.sequence_index,
            delta=_delta(content, reasoning, calls),
            logprobs=self._logprobs(chunk),
            finish_reason=None if done is None else finish_reason(done),
            stop_reason=UNSET if done is None else stop_reason(done, self._fields),
            token_ids=list(chunk.token_ids) if self._fields.return_token_ids else UNSET,
        )
        return first + self._event([choice], self._usage.of_event)

    def _prepare(self, index: int) -> None:
        """Make the templates of a choice."""

        def event_of(delta: Delta) -> bytes:
            return self._event([ChunkChoice(index=index, delta=delta)], self._usage.of_event)

        self._templates[index, Part.CONTENT] = TextTemplate(
            lambda text: event_of(_delta(text, "", []))
        )
        if self._fields.include_reasoning:
            self._templates[index, Part.REASONING] = TextTemplate(
                lambda text: event_of(_delta("", text, []))
            )

    def _first(self, index: int) -> bytes:
        fields, engine_request = self._fields, self._engine_request
        echo = last_answer(fields.messages) if fields.echo else ""
        content = echo or (None if fields.tools else "")  # there may be calls alone
        return self._event(
            [ChunkChoice(index=index, delta=Delta(role="assistant", content=content))],
            self._usage.of_event,
            prompt_token_ids=list(engine_request.texts.prompt_token_ids)
            if fields.return_token_ids
            else UNSET,
            prompt_text=engine_request.prompt_text if fields.return_prompt_text else UNSET,
        )

    def _event(
        self,
        choices: list[ChunkChoice],
        usage: Usage | UnsetType | None,
        prompt_token_ids: list[int] | UnsetType = UNSET,
        prompt_text: str | UnsetType = UNSET,
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
            prompt_text=prompt_text,
            metrics=metrics,
        )
        return event(_encode(chunk))

    def _logprobs(self, chunk: Chunk) -> ChatLogprobs | None:
        if not self._fields.logprobs:
            return None
        return _logprobs(chunk.logprobs, self._fields, self._names)


def _delta(content: str, reasoning: str, calls: list[ToolCallDelta]) -> Delta:
    return Delta(
        content=content or UNSET,
        reasoning=reasoning or UNSET,
        reasoning_content=reasoning or UNSET,
        tool_calls=calls or UNSET,
    )
