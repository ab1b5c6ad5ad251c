"""Answer with a response, in one piece or as a stream: the endpoint of OpenAI's Responses API."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import aclosing, contextmanager
from dataclasses import replace
from typing import Any

from msgspec.structs import asdict
from starlette.requests import Request as HttpRequest
from starlette.responses import Response

from inferno.errors import InvalidRequest, TemplateError, TokenizerError
from inferno.requests import TokenLogprobs
from inferno.server.generation.body_parser import Body, ignored_header
from inferno.server.generation.call import (
    Call,
    call_of,
    json_response,
    read_fields,
    run,
    while_connected,
    while_wanted,
)
from inferno.server.generation.engine_requests import FEW_BYTES, EngineRequest, chat_requests
from inferno.server.generation.streams import SseResponse
from inferno.server.http import ApiError, Lease, api_error_of, context_of
from inferno.server.model_service import service_of
from inferno.server.openai.chat import ignored_by_template, template_args
from inferno.server.openai.logprobs import chat_logprobs
from inferno.server.openai.request_types import ChatRequest
from inferno.server.openai.response_types import ChatLogprob
from inferno.server.openai.responses.answer import (
    ResponseObject,
    ResponseReasoning,
    ResponseText,
)
from inferno.server.openai.responses.request import ChosenFunction, ResponseRequest, chat_of
from inferno.server.openai.responses.writer import ResponseWriter, encoded
from inferno.text.completion import Chunk

_PREFIX = "resp_"
_FORMAT = "text.format"
# What a chat calls otherwise.
_NAMES = {
    "prompt": "input",
    "prompt_token_ids": "input",
    "messages": "input",
    "logprobs": "top_logprobs",
    "max_tokens": "max_output_tokens",
    "reasoning_effort": "reasoning.effort",
    "response_format": _FORMAT,
    "verbosity": "text.verbosity",
}
_WORDS = (
    (re.compile(r"messages\[\d+\]\.tool_calls\[\d+\]\.function"), "a function_call's"),
    (re.compile(r"(tools\[\d+\])\.function\b"), r"\1"),
    (re.compile(r"\bresponse_format\b"), _FORMAT),
    (re.compile(r"\bmax_tokens\b"), "max_output_tokens"),
)


async def create_response(http: HttpRequest) -> Response:
    """Answer a conversation with a response."""
    body = await read_fields(http, ResponseRequest)
    fields = body.fields
    with _own_names(http):
        chat, ignored = await while_wanted(http, _chat_of(http, fields))
        call = await call_of(http, Body(chat, ignored))
        args = template_args(call.service.text, chat.reasoning_effort)
        ignored = call.ignored + ignored_by_template(chat, call.service.text, args)
        making = chat_requests(call.service, chat, args, call.origin, call.num_bytes)
        [made] = await while_connected(http.receive, call.prepared(making))
    is_format = made.shape_name == "response_format"
    engine_request = replace(made, shape_name=_FORMAT) if is_format else made
    lease = call.admit([engine_request])
    writer = _writer(fields, call, engine_request)
    chunks = run([engine_request], lease, _NAMES)
    own_ignored = body.ignored + tuple(map(_own_name, ignored))
    if chat.stream:
        return SseResponse(
            _events(writer, lease, chunks),
            headers=ignored_header(own_ignored),
            keep_alive=call.service.settings.sse_keep_alive,
            done=b"",
            write_error=writer.failed,
        )
    answer = await while_connected(http.receive, _whole(writer, lease, chunks))
    return json_response(answer, own_ignored)


async def _chat_of(
    http: HttpRequest, fields: ResponseRequest
) -> tuple[ChatRequest, tuple[str, ...]]:
    if len(await http.body()) <= FEW_BYTES:
        return chat_of(fields)
    return await service_of(http).on_body(lambda: chat_of(fields))


async def _whole(
    writer: ResponseWriter, lease: Lease, chunks: AsyncGenerator[Chunk, None]
) -> ResponseObject:
    async with lease, aclosing(chunks):
        async for chunk in chunks:
            writer.feed(chunk)
    return writer.response


async def _events(
    writer: ResponseWriter, lease: Lease, chunks: AsyncGenerator[Chunk, None]
) -> AsyncGenerator[bytes, None]:
    async with lease, aclosing(chunks):
        async for chunk in chunks:
            yield encoded(writer.feed(chunk))


def _writer(
    fields: ResponseRequest, call: Call[ChatRequest], engine_request: EngineRequest
) -> ResponseWriter:
    names = call.names

    def entries(logprobs: Sequence[TokenLogprobs]) -> list[ChatLogprob]:
        return chat_logprobs(logprobs, names, fields.top_logprobs).content

    return ResponseWriter(
        _blank(fields, call, engine_request),
        num_prompt_tokens=engine_request.num_tokens,
        tool_use=engine_request.texts.tool_use,
        tells_reasoning=fields.include_reasoning,
        logprobs_of=entries if call.fields.logprobs else None,
    )


def _blank(
    fields: ResponseRequest, call: Call[ChatRequest], engine_request: EngineRequest
) -> ResponseObject:
    head, params = call.head(_PREFIX), engine_request.request.params
    text = fields.text
    format = None if text is None else text.format
    choice = fields.tool_choice
    return ResponseObject(
        id=head.id,
        created_at=head.created,
        status="in_progress",
        instructions=fields.instructions,
        max_output_tokens=fields.max_output_tokens,
        metadata=fields.metadata or {},
        model=head.model,
        parallel_tool_calls=fields.parallel_tool_calls,
        prompt_cache_key=fields.prompt_cache_key,
        reasoning=ResponseReasoning(fields.effort),
        safety_identifier=fields.safety_identifier,
        temperature=params.temperature,
        text=ResponseText(
            {"type": "text"} if format is None else _given(asdict(format)),
            (None if text is None else text.verbosity) or "medium",
        ),
        tool_choice=asdict(choice) if isinstance(choice, ChosenFunction) else choice or "auto",
        tools=fields.tools or [],
        top_logprobs=fields.top_logprobs,
        top_p=params.top_p,
        user=fields.user,
    )


def _given(fields: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}


def _own_name(name: str) -> str:
    """Return the name that a request for a response has for a field of a chat."""
    own = _NAMES.get(name, name)
    return own.replace("messages[]", "input[]", 1)


@contextmanager
def _own_names(http: HttpRequest) -> Iterator[None]:
    """Have errors of a chat speak of the fields of a response, until the block ends."""
    try:
        yield
    except (InvalidRequest, TemplateError, TokenizerError) as problem:
        error = api_error_of(problem, context_of(http.scope).request_id)
        message = error.message
        for pattern, own in _WORDS:
            message = pattern.sub(own, message)
        param = None if error.param is None else _own_name(error.param)
        raise ApiError(error.status, error.code, message, param=param) from problem
