"""The endpoints of a worker: a job is run, and cancelled."""

from __future__ import annotations

from collections.abc import Coroutine, Mapping
from contextlib import closing
from typing import Any

import msgspec
from starlette.requests import Request as HttpRequest
from starlette.responses import Response

from inferno.server.body import ignored_header
from inferno.server.call import Call, json_response, read_call, read_fields
from inferno.server.chat import ignored_by_template, template_args
from inferno.server.errors import CHAT_NAMES, renamed
from inferno.server.jobs import Job, chat_jobs, completion_jobs
from inferno.server.running import run, while_connected
from inferno.server.sse import SseResponse
from inferno.server.worker.fields import CancelRequest, ChatJob, PromptJob
from inferno.server.worker.messages import Cancelled
from inferno.server.worker.stream import JobStream, error_event
from inferno.server.worker.worker import worker_of

_PROMPT_NAMES: Mapping[str, str] = {}
_NULL = msgspec.Raw(b"null")


class _Shape(msgspec.Struct):
    """The part of a body that tells the two kinds of jobs apart."""

    messages: msgspec.Raw = _NULL


async def execute(http: HttpRequest) -> Response:
    """Send a job's events, until it is done."""
    if _has_messages(await http.body()):
        return await _execute_chat(http)
    return await _execute_prompt(http)


async def cancel(http: HttpRequest) -> Response:
    """End a job that is under way; its stream ends with what came of it."""
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
    args = template_args(call.served.text, call.fields.reasoning_effort)
    jobs = chat_jobs(call.served, call.fields, args, call.origin, call.num_bytes, is_by_token=True)
    ignored = call.ignored + ignored_by_template(call.fields, call.served.text, args)
    return await _stream(call, call.fields.job_id, jobs, CHAT_NAMES, ignored)


async def _execute_prompt(http: HttpRequest) -> Response:
    call = await read_call(http, PromptJob)
    jobs = completion_jobs(call.served, call.fields, call.origin, is_by_token=True)
    return await _stream(call, call.fields.job_id, jobs, _PROMPT_NAMES, call.ignored)


async def _stream(
    call: Call[Any],
    job_id: str,
    jobs: Coroutine[Any, Any, list[Job]],
    names: Mapping[str, str],
    ignored: tuple[str, ...],
) -> Response:
    """Return the stream of events of the one job that is being made."""
    served = call.served
    with closing(jobs):  # where it never gets to begin
        under_way = worker_of(call.http).begin(job_id, call.record)
        with renamed(names):
            [job] = await while_connected(call.http.receive, call.prepared(jobs))
    slot = call.slot([job])
    under_way.run_in(slot, lambda: served.engine.abort(job.request.request_id, 0))
    stream = JobStream(job_id, call.fields, job, under_way, served.engine, call.record)
    return SseResponse(
        stream.events(slot, run([job], slot, names)),
        headers=ignored_header(ignored),
        silence=served.settings.sse_keep_alive,
        done=b"",
        write_error=error_event,
    )
