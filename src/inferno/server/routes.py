"""List all routes: which function answers at which path, to whom, and when.

Applications, admission, the scopes of keys, the OpenAPI document, the reference page, the
documentation and the tests follow from this table; no other file of the server names a path. A row
without a `key_scope` is for keys that may ask for inference; `api_keys.py` says what each scope
allows.
"""

from __future__ import annotations

from inferno.server.api_keys import KeyScope
from inferno.server.docs.openapi import get_openapi
from inferno.server.docs.reference_page import get_reference
from inferno.server.http import Needs, StatusViews
from inferno.server.openai import request_types, response_types
from inferno.server.openai.chat import create_chat_completion
from inferno.server.openai.completions import create_completion
from inferno.server.openai.models import get_model, get_version, list_models
from inferno.server.openai.responses.answer import ResponseEvent, ResponseObject
from inferno.server.openai.responses.endpoint import create_response
from inferno.server.openai.responses.request import ResponseRequest
from inferno.server.openai.tokenize import detokenize, tokenize
from inferno.server.page import get_page, get_page_file
from inferno.server.route import GET, GET_OR_HEAD, POST, Route, Tag
from inferno.server.worker.endpoints import cancel, execute
from inferno.server.worker.messages import Cancelled, CancelRequest, ChatJob, PromptJob

STATUS_ROUTES = (
    Route(
        methods=GET_OR_HEAD,
        path="/health",
        view=StatusViews.get_health,
        summary="200 while the process lives and its engine gets on.",
        needs=Needs.NOTHING,
        key_scope=None,
        errors=(503,),
        tag=Tag.STATUS,
    ),
    Route(
        methods=GET_OR_HEAD,
        path="/ready",
        view=StatusViews.get_ready,
        summary="200 while requests are taken.",
        needs=Needs.NOTHING,
        key_scope=None,
        errors=(503,),
        tag=Tag.STATUS,
    ),
    Route(
        methods=GET_OR_HEAD,
        path="/metrics",
        view=StatusViews.get_metrics,
        summary="Counts and times, for Prometheus.",
        needs=Needs.NOTHING,
        key_scope=KeyScope.METRICS,
        media_type="text/plain",
        errors=(401, 403),
        tag=Tag.STATUS,
    ),
    Route(
        methods=GET_OR_HEAD,
        path="/debug/state",
        view=StatusViews.get_debug_state,
        summary="Engine, requests, memory and children.",
        needs=Needs.NOTHING,
        key_scope=KeyScope.ADMIN,
        errors=(401, 403),
        tag=Tag.STATUS,
    ),
)

# The routes of `inferno serve`.
ROUTES = (
    Route(
        methods=POST,
        path="/v1/chat/completions",
        endpoint=create_chat_completion,
        summary="The assistant's answer to a conversation.",
        needs=Needs.ADMISSION,
        requests=(request_types.ChatRequest,),
        response=response_types.ChatCompletion,
        event=response_types.ChatChunk,
        tag=Tag.GENERATION,
    ),
    Route(
        methods=POST,
        path="/v1/completions",
        endpoint=create_completion,
        summary="What the model makes of one prompt or several.",
        needs=Needs.ADMISSION,
        requests=(request_types.CompletionRequest,),
        response=response_types.Completion,
        event=response_types.Completion,
        tag=Tag.GENERATION,
    ),
    Route(
        methods=POST,
        path="/v1/responses",
        endpoint=create_response,
        summary="The assistant's answer to a conversation, as OpenAI's Responses API has it.",
        needs=Needs.ADMISSION,
        requests=(ResponseRequest,),
        response=ResponseObject,
        event=ResponseEvent,
        tells_done=False,
        tag=Tag.GENERATION,
    ),
    Route(
        methods=GET,
        path="/v1/models",
        endpoint=list_models,
        summary="A card for each name that `model` may have.",
        needs=Needs.ENGINE,
        response=response_types.ModelList,
        tag=Tag.MODELS,
    ),
    Route(
        methods=GET,
        path="/v1/models/{model_id:path}",
        endpoint=get_model,
        summary="The card of one name.",
        needs=Needs.ENGINE,
        response=response_types.ModelCard,
        tag=Tag.MODELS,
    ),
    Route(
        methods=POST,
        path="/tokenize",
        endpoint=tokenize,
        summary="The token ids of a prompt or of a conversation.",
        needs=Needs.ENGINE,
        requests=(request_types.TokenizeRequest,),
        response=response_types.Tokenized,
        tag=Tag.TOKENS,
    ),
    Route(
        methods=POST,
        path="/detokenize",
        endpoint=detokenize,
        summary="The text of token ids.",
        needs=Needs.ENGINE,
        requests=(request_types.DetokenizeRequest,),
        response=response_types.Detokenized,
        tag=Tag.TOKENS,
    ),
    Route(
        methods=GET,
        path="/version",
        endpoint=get_version,
        summary="inferno's version.",
        needs=Needs.NOTHING,
        response=response_types.Version,
        tag=Tag.STATUS,
    ),
    *STATUS_ROUTES,
    Route(
        methods=GET_OR_HEAD,
        path="/",
        endpoint=get_page,
        summary="A page to chat with the model.",
        needs=Needs.NOTHING,
        media_type="text/html",
        is_page=True,
    ),
    Route(
        methods=GET_OR_HEAD,
        path="/page/{name}",
        endpoint=get_page_file,
        summary="A file that the chat page loads.",
        needs=Needs.NOTHING,
        is_page=True,
    ),
    Route(
        methods=GET_OR_HEAD,
        path="/openapi.json",
        endpoint=get_openapi,
        summary="All routes, for programs.",
        needs=Needs.NOTHING,
        is_page=True,
    ),
    Route(
        methods=GET_OR_HEAD,
        path="/docs",
        endpoint=get_reference,
        summary="All routes, for people.",
        needs=Needs.NOTHING,
        media_type="text/html",
        is_page=True,
    ),
)

# The routes of `inferno worker`.
WORKER_ROUTES = (
    Route(
        methods=POST,
        path="/execute",
        endpoint=execute,
        summary="A job's events, until it is done.",
        needs=Needs.ADMISSION,
        requests=(ChatJob, PromptJob),
    ),
    Route(
        methods=POST,
        path="/cancel",
        endpoint=cancel,
        summary="The end of a job that is under way.",
        needs=Needs.NOTHING,  # the less work the better, when nothing else is taken
        requests=(CancelRequest,),
        response=Cancelled,
    ),
    *STATUS_ROUTES,
)
