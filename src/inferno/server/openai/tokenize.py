"""Turn text into token ids and back: the endpoints of the tokenizer."""

from __future__ import annotations

from starlette.requests import Request as HttpRequest
from starlette.responses import Response

from inferno.errors import InvalidRequest
from inferno.server.generation.body_parser import ignored_chat_fields
from inferno.server.generation.call import json_response, read_fields, while_wanted
from inferno.server.generation.engine_requests import encode_all, encode_chat, tools_of
from inferno.server.http import CHAT_PARAM_NAMES, context_of, renamed_params
from inferno.server.model_service import ModelService, service_of
from inferno.server.openai.request_types import DetokenizeRequest, TokenizeRequest
from inferno.server.openai.response_types import Detokenized, Tokenized


async def tokenize(http: HttpRequest) -> Response:
    """Return the token ids of a prompt or of a conversation."""
    body = await read_fields(http, TokenizeRequest)
    service = service_of(http)
    service.check_model(body.fields.model)
    work = _tokenized(service, body.fields, len(await http.body()))
    answer = await while_wanted(http, service.in_time(work, context_of(http.scope)))
    return json_response(answer, body.ignored + ignored_chat_fields(body.fields, service.text))


async def detokenize(http: HttpRequest) -> Response:
    """Return the text of token ids."""
    body = await read_fields(http, DetokenizeRequest)
    service = service_of(http)
    service.check_model(body.fields.model)
    work = service.on_text(len(body.fields.tokens), lambda: _detokenized(service, body.fields))
    answer = await while_wanted(http, service.in_time(work, context_of(http.scope)))
    return json_response(answer, body.ignored)


async def _tokenized(service: ModelService, fields: TokenizeRequest, num_bytes: int) -> Tokenized:
    ids = await _encoded(service, fields, num_bytes)
    tokenizer = service.text.tokenizer

    def strings() -> list[str]:
        return [tokenizer.id_to_token(i) or "" for i in ids]

    shown = await service.on_text(len(ids), strings) if fields.return_token_strs else None
    return Tokenized(len(ids), service.facts.max_model_len, ids, shown)


async def _encoded(service: ModelService, fields: TokenizeRequest, num_bytes: int) -> list[int]:
    if (fields.prompt is None) == (fields.messages is None):
        raise InvalidRequest("give either a prompt or messages", param="prompt")
    if fields.prompt is not None:
        if fields.tools is not None:
            raise InvalidRequest("tools go with messages", param="tools")
        adds = fields.add_special_tokens is not False
        [ids] = await encode_all(service, [fields.prompt], add_special_tokens=adds)
        return ids
    with renamed_params(CHAT_PARAM_NAMES):
        chat = await encode_chat(service, fields, {}, num_bytes, tools_of(fields))
        return chat.token_ids


def _detokenized(service: ModelService, fields: DetokenizeRequest) -> Detokenized:
    vocab_size = service.facts.vocab_size
    if any(token_id >= vocab_size for token_id in fields.tokens):
        raise InvalidRequest(f"tokens must be ids from 0 to {vocab_size - 1}", param="tokens")
    return Detokenized(service.text.tokenizer.decode(fields.tokens, skip_special_tokens=False))
