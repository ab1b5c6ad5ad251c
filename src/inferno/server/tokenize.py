"""The endpoints between text and token ids."""

from __future__ import annotations

from starlette.requests import Request as HttpRequest
from starlette.responses import Response

from inferno.errors import InvalidRequest
from inferno.server.answers import Detokenized, Tokenized
from inferno.server.call import json_response, read_fields
from inferno.server.edge import record_of
from inferno.server.errors import CHAT_NAMES, renamed
from inferno.server.fields import DetokenizeRequest, TokenizeRequest
from inferno.server.in_vain import chat_in_vain
from inferno.server.jobs import encode_all, encode_chat
from inferno.server.served import Served, served_of


async def tokenize(http: HttpRequest) -> Response:
    """Return the token ids of a prompt or of a conversation."""
    body = await read_fields(http, TokenizeRequest)
    served = served_of(http)
    served.check_model(body.fields.model)
    work = _tokenized(served, body.fields, len(await http.body()))
    answer = await served.in_time(work, record_of(http.scope))
    return json_response(answer, body.ignored + chat_in_vain(body.fields, served.text))


async def detokenize(http: HttpRequest) -> Response:
    """Return the text of token ids."""
    body = await read_fields(http, DetokenizeRequest)
    served = served_of(http)
    served.check_model(body.fields.model)
    work = served.on_text(len(body.fields.tokens), lambda: _detokenized(served, body.fields))
    answer = await served.in_time(work, record_of(http.scope))
    return json_response(answer, body.ignored)


async def _tokenized(served: Served, fields: TokenizeRequest, num_bytes: int) -> Tokenized:
    ids = await _encoded(served, fields, num_bytes)
    tokenizer = served.text.tokenizer

    def strings() -> list[str]:
        return [tokenizer.id_to_token(i) or "" for i in ids]

    shown = await served.on_text(len(ids), strings) if fields.return_token_strs else None
    return Tokenized(len(ids), served.facts.max_model_len, ids, shown)


async def _encoded(served: Served, fields: TokenizeRequest, num_bytes: int) -> list[int]:
    if (fields.prompt is None) == (fields.messages is None):
        raise InvalidRequest("give either a prompt or messages", param="prompt")
    if fields.prompt is not None:
        adds = fields.add_special_tokens is not False
        [ids] = await encode_all(served, [fields.prompt], add_special_tokens=adds)
        return ids
    if fields.add_special_tokens:
        raise InvalidRequest(
            "add_special_tokens goes with a prompt: a chat template writes its own",
            param="add_special_tokens",
        )
    with renamed(CHAT_NAMES):
        return await encode_chat(served, fields, {}, num_bytes)


def _detokenized(served: Served, fields: DetokenizeRequest) -> Detokenized:
    vocab_size = served.facts.vocab_size
    if any(token_id >= vocab_size for token_id in fields.tokens):
        raise InvalidRequest(f"tokens must be ids from 0 to {vocab_size - 1}", param="tokens")
    return Detokenized(served.text.tokenizer.decode(fields.tokens, skip_special_tokens=False))
