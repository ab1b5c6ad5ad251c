"""The endpoint of chats: a conversation is answered, in one piece or as a stream."""

from __future__ import annotations

from typing import Any

from msgspec import UNSET
from starlette.requests import Request as HttpRequest
from starlette.responses import Response

from inferno.server.answers import ChatChoice, ChatCompletion, Message
from inferno.server.body import ignored_header
from inferno.server.call import (
    Call,
    finish_reason,
    json_response,
    read_call,
    stop_reason,
    usage_of,
)
from inferno.server.chat_stream import PREFIX, ChatStream
from inferno.server.edge import Slot
from inferno.server.errors import CHAT_NAMES, renamed
from inferno.server.fields import ChatRequest
from inferno.server.in_vain import chat_in_vain
from inferno.server.jobs import Job, chat_jobs
from inferno.server.logprobs import TokenNames, chat_logprobs, prompt_logprobs
from inferno.server.messages import last_answer
from inferno.server.running import run, run_all, while_connected
from inferno.server.sse import SseResponse
from inferno.text.completion import Completion
from inferno.text.model_text import ModelText


async def create_chat_completion(http: HttpRequest) -> Response:
    """Answer a conversation as the assistant."""
    call = await read_call(http, ChatRequest)
    args = template_args(call.served.text, call.fields.reasoning_effort)
    ignored = call.ignored + ignored_by_template(call.fields, call.served.text, args)
    making = chat_jobs(call.served, call.fields, args, call.origin, call.num_bytes)
    with renamed(CHAT_NAMES):
        jobs = await while_connected(http.receive, call.prepared(making))
    slot = call.slot(jobs)
    if call.fields.stream:
        stream = ChatStream(call, jobs[0])
        return SseResponse(
            stream.events(slot, run(jobs, slot, CHAT_NAMES)),
            headers=ignored_header(ignored),
            silence=call.served.settings.sse_keep_alive,
        )
    answer = await while_connected(http.receive, _whole(call, jobs, slot))
    return json_response(answer, ignored)


async def _whole(call: Call[ChatRequest], jobs: list[Job], slot: Slot) -> ChatCompletion:
    async with slot:
        completions = await run_all(jobs, slot, CHAT_NAMES)
    head, fields, names = call.head(PREFIX), call.fields, call.names
    prompt = next((done.prompt_logprobs for done in completions if done.prompt_logprobs), None)
    return ChatCompletion(
        id=head.id,
        created=head.created,
        model=head.model,
        system_fingerprint=head.system_fingerprint,
        choices=[_choice(done, fields, names) for done in completions],
        usage=usage_of(jobs, completions),
        prompt_token_ids=list(jobs[0].texts.prompt_token_ids) if fields.return_token_ids else UNSET,
        prompt_logprobs=UNSET
        if prompt is None
        else prompt_logprobs(prompt, names, fields.prompt_logprobs or 0),
        metrics=call.metrics,
    )


def _choice(done: Completion, fields: ChatRequest, names: TokenNames) -> ChatChoice:
    return ChatChoice(
        index=done.sample_index,
        message=_message(done, fields),
        logprobs=None
        if done.logprobs is None
        else chat_logprobs(done.logprobs, names, fields.top_logprobs),
        finish_reason=finish_reason(done),
        stop_reason=stop_reason(done, fields),
        token_ids=list(done.token_ids) if fields.return_token_ids else UNSET,
    )


def _message(done: Completion, fields: ChatRequest) -> Message:
    echo = last_answer(fields.messages) if fields.echo else ""
    shown = done.reasoning if fields.include_reasoning else ""
    return Message(
        content=echo + done.text,
        reasoning=shown or UNSET,
        reasoning_content=shown or UNSET,
    )


def ignored_by_template(
    fields: ChatRequest, text: ModelText, args: dict[str, Any]
) -> tuple[str, ...]:
    """Return the names of a chat's fields that have no effect on its prompt.

    args        the template's arguments that reasoning_effort has become.
    """
    is_in_vain = fields.reasoning_effort is not None and not args
    return (("reasoning_effort",) if is_in_vain else ()) + chat_in_vain(fields, text)


def template_args(text: ModelText, effort: str | None) -> dict[str, Any]:
    """Return the chat template's arguments for reasoning_effort; none where it doesn't take it."""
    if effort == "none" and text.takes_template_arg("enable_thinking"):
        return {"enable_thinking": False}
    if effort is not None and text.takes_template_arg("reasoning_effort"):
        return {"reasoning_effort": effort}
    return {}
