"""What a job may say: the fields of /v1 that choose tokens, and the job's id."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

from inferno.server.fields import ChatRequest, CompletionRequest, RequestId, TokenId
from inferno.server.refused import CHAT, COMPLETION, Harmless

JobId = Annotated[RequestId, Meta(description="The fleet's own name for the job.")]


class ChatJob(ChatRequest, kw_only=True):
    """POST /execute with messages; all else as in /v1/chat/completions."""

    job_id: JobId


class PromptJob(CompletionRequest, kw_only=True):
    """POST /execute with a prompt; all else as in /v1/completions."""

    job_id: JobId
    prompt: Annotated[str | list[TokenId], Meta(description="A text, or its token ids.")]


class CancelRequest(Struct, kw_only=True):
    """POST /cancel."""

    job_id: JobId


# What shapes an answer of /v1: a job has one answer, and its events always tell the same.
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
CHAT_JOB: Harmless = {**CHAT, **_ANSWERS, "prompt": ()}
PROMPT_JOB: Harmless = {**COMPLETION, **_ANSWERS}
