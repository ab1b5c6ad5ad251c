"""Prompts become jobs for the engine: encoded, cut, checked. Runs beside the event loop."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from inferno.errors import InvalidRequest
from inferno.requests import MAX_TOKEN_ID, Request, SamplingParams
from inferno.server.fields import ChatRequest, CompletionRequest, GenerateFields, TokenizeRequest
from inferno.server.messages import with_plain_content
from inferno.server.params import chat_params, completion_params
from inferno.server.served import Served
from inferno.text.parsers.choose import Dialect
from inferno.text.samples import SampleTexts

MAX_PROMPTS = 1024
MAX_CHOICES = 1024


@dataclass(frozen=True, slots=True)
class Job:
    """One prompt of a call: what the engine is asked, and the texts that come of it.

    prompt          as it was given, if that was a text of which nothing was cut off.
    """

    request: Request
    texts: SampleTexts
    prompt: str | None = None

    @property
    def num_tokens(self) -> int:
        """Of the prompt."""
        return len(self.request.prompt_token_ids)


@dataclass(frozen=True, slots=True)
class Origin:
    """Who asks: what the request is called, and what sets its prefixes apart from other keys'."""

    request_id: str
    cache_salt: str


def chat_jobs(
    served: Served, fields: ChatRequest, template_args: dict[str, Any], origin: Origin
) -> list[Job]:
    """The one job of a chat."""
    params = chat_params(fields, served.text.defaults)
    ids = encode_chat(served, fields, template_args)
    return [
        _job(
            served,
            fields,
            params,
            origin,
            0,
            ids,
            dialect=served.text.dialect,
            is_continuation=fields.continue_final_message,
        )
    ]


def completion_jobs(served: Served, fields: CompletionRequest, origin: Origin) -> list[Job]:
    """A job for each prompt."""
    params = completion_params(fields, served.text.defaults)
    prompts = _prompts(fields.prompt)
    if len(prompts) * fields.n > MAX_CHOICES:
        raise InvalidRequest(
            f"{len(prompts)} prompts with n={fields.n} are more than {MAX_CHOICES} choices",
            param="n",
        )
    return [
        _job(
            served,
            fields,
            params,
            origin,
            index,
            encode(served, prompt, add_special_tokens=fields.add_special_tokens),
            prompt=prompt,
            is_continuation=True,
        )
        for index, prompt in enumerate(prompts)
    ]


def encode(served: Served, prompt: str | list[int], *, add_special_tokens: bool) -> list[int]:
    """A prompt's token ids."""
    if isinstance(prompt, list):
        return prompt
    return served.text.encode(
        prompt, max_model_len=served.facts.max_model_len, add_special_tokens=add_special_tokens
    )


def encode_chat(
    served: Served, fields: ChatRequest | TokenizeRequest, template_args: dict[str, Any]
) -> list[int]:
    """The token ids of a conversation."""
    if fields.chat_template is not None and not served.settings.trust_request_chat_template:
        raise InvalidRequest(
            "chat_template is taken by servers that run with --trust-request-chat-template",
            param="chat_template",
        )
    kwargs = {**template_args, **(fields.chat_template_kwargs or {})}
    if fields.documents is not None:
        kwargs["documents"] = fields.documents
    return served.text.encode_chat(
        with_plain_content(fields.messages or []),
        max_model_len=served.facts.max_model_len,
        add_generation_prompt=fields.add_generation_prompt,
        continue_final_message=fields.continue_final_message,
        kwargs=kwargs,
        template=fields.chat_template,
    )


def _job(
    served: Served,
    fields: GenerateFields,
    params: SamplingParams,
    origin: Origin,
    index: int,
    token_ids: list[int],
    *,
    dialect: Dialect = Dialect.PLAIN,
    prompt: str | list[int] | None = None,
    is_continuation: bool,
) -> Job:
    facts = served.facts
    most_output = max(1, facts.max_model_len // 2)  # that a prompt is cut down for
    room = facts.max_model_len - max(1, min(params.max_tokens or 1, most_output))
    kept = tuple(_cut(token_ids, fields, max(1, room)))
    texts = SampleTexts(
        served.text.tokenizer,
        params,
        prompt_index=index,
        prompt=None,
        prompt_token_ids=kept,
        dialect=dialect,
        is_continuation=is_continuation,
    )
    request = served.text.request(
        texts,
        request_id=served.engine_id(origin.request_id, index),
        vocab_size=facts.vocab_size,
        priority=fields.priority,
        cache_salt=origin.cache_salt + (fields.cache_salt or ""),
    )
    if isinstance(prompt, str) and len(kept) == len(token_ids):
        return Job(request, texts, prompt)
    return Job(request, texts)


def _cut(token_ids: list[int], fields: GenerateFields, room: int) -> Sequence[int]:
    """As truncate_prompt_tokens says, -1 being what leaves room for the output,
    but no less than half of the context."""
    most = fields.truncate_prompt_tokens
    if most is None:
        return token_ids
    most = room if most == -1 else most
    if most == 0:
        raise InvalidRequest(
            "truncate_prompt_tokens must be -1 or at least 1", param="truncate_prompt_tokens"
        )
    return token_ids[-most:] if fields.truncation_side == "left" else token_ids[:most]


def _prompts(given: object) -> list[str | list[int]]:
    """The prompts of a completion, in whichever of four shapes they came."""
    if isinstance(given, str):
        return [given]
    if not isinstance(given, list) or not given:
        raise _refused("a text, a list of texts, token ids, or lists of them")
    if len(given) > MAX_PROMPTS and not isinstance(given[0], int):
        raise _refused(f"at most {MAX_PROMPTS} prompts")
    if all(isinstance(each, str) for each in given):
        return list(given)
    if all(isinstance(each, list) for each in given):
        return [_token_ids(each) for each in given]
    return [_token_ids(given)]


def _token_ids(given: list[object]) -> list[int]:
    ids = [i for i in given if type(i) is int and 0 <= i <= MAX_TOKEN_ID]
    if not ids or len(ids) < len(given):
        raise _refused("texts or token ids, at least one and all of a kind")
    return ids


def _refused(expected: str) -> InvalidRequest:
    return InvalidRequest(f"prompt must be {expected}", param="prompt")
