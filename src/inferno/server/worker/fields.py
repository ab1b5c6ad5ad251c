"""The fields of jobs: those of chats and completions that choose tokens, and the job's id."""

from __future__ import annotations

from typing import Annotated, ClassVar

from msgspec import Meta

from inferno.server.fields import (
    ChatRequest,
    CompletionRequest,
    RequestFields,
    RequestId,
    TokenId,
)
from inferno.server.refused import CHAT, COMPLETION, Harmless

JobId = Annotated[RequestId, Meta(description="The fleet's own name for the job.")]

# What shapes the answer to a client: a job has one answer, and its events always tell the same.
_ANSWERS: Harmless = {
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


class ChatJob(ChatRequest, kw_only=True):
    """A job with messages; all other fields as in a chat completion."""

    refused: ClassVar[Harmless] = {**CHAT, **_ANSWERS, "prompt": ()}
    job_id: JobId


class PromptJob(CompletionRequest, kw_only=True):
    """A job with a prompt; all other fields as in a completion."""

    refused: ClassVar[Harmless] = {**COMPLETION, **_ANSWERS}
    job_id: JobId
    prompt: Annotated[str | list[TokenId], Meta(description="A text, or its token ids.")]


class CancelRequest(RequestFields, kw_only=True):
    """The job to end."""

    job_id: JobId
