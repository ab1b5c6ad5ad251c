"""The endpoint of completions: prompts are gone on with, in one piece or as a stream."""

from __future__ import annotations

from collections.abc import Mapping

from starlette.requests import Request as HttpRequest
from starlette.responses import Response

from inferno.server.answers import Completion as CompletionAnswer
from inferno.server.body import ignored_header
from inferno.server.call import Call, json_response, read_call, usage_of
from inferno.server.completion_choice import ChoiceWriter
from inferno.server.completion_stream import PREFIX, CompletionStream
from inferno.server.edge import Slot
from inferno.server.fields import CompletionRequest
from inferno.server.jobs import Job, completion_jobs
from inferno.server.running import run, run_all, while_connected
from inferno.server.sse import SseResponse
from inferno.text.completion import Chunk, Completion
from inferno.text.parsers.parser import Part, Piece

_NAMES: Mapping[str, str] = {}


async def create_completion(http: HttpRequest) -> Response:
    """Go on with one prompt or several."""
    call = await read_call(http, CompletionRequest)
    jobs = await call.prepared(completion_jobs(call.served, call.fields, call.origin))
    slot = call.slot(jobs)
    if call.fields.stream:
        stream = CompletionStream(call, jobs)
        return SseResponse(
            stream.events(slot, run(jobs, slot, _NAMES)),
            headers=ignored_header(call.ignored),
            silence=call.served.settings.sse_keep_alive,
        )
    answer = await while_connected(http.receive, _whole(call, jobs, slot))
    return json_response(answer, call.ignored)


async def _whole(call: Call[CompletionRequest], jobs: list[Job], slot: Slot) -> CompletionAnswer:
    async with slot:
        completions = await run_all(jobs, slot, _NAMES)
    head, names = call.head(PREFIX), call.names
    return CompletionAnswer(
        id=head.id,
        created=head.created,
        model=head.model,
        system_fingerprint=head.system_fingerprint,
        choices=[
            ChoiceWriter(call.fields, jobs[done.prompt_index], done.sample_index, names).write(
                _as_chunk(done)
            )
            for done in completions
        ],
        usage=usage_of(jobs, completions),
        metrics=call.metrics,
    )


def _as_chunk(done: Completion) -> Chunk:
    """Return the whole of a completion, as one piece of a stream."""
    return Chunk(
        prompt_index=done.prompt_index,
        sample_index=done.sample_index,
        pieces=(Piece(Part.CONTENT, done.text),),
        token_ids=done.token_ids,
        logprobs=done.logprobs or (),
        completion=done,
    )
