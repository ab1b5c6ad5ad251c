"""Turn prompts and fields into requests to the engine: encoded, cut, checked."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from msgspec.structs import asdict

from inferno.errors import InvalidRequest
from inferno.option_table import table
from inferno.requests import MAX_TOKEN_ID, Request, SamplingParams
from inferno.sampling_params import RepetitionDetection
from inferno.server.http import renamed_params
from inferno.server.model_service import ModelService
from inferno.server.openai.request_types import (
    ChatRequest,
    CompletionRequest,
    GenerateFields,
    NamedTool,
    ResponseFormat,
    TokenizeRequest,
)
from inferno.structured import StructuredOutput
from inferno.text.chat import Rendering
from inferno.text.conversation import last_answer
from inferno.text.parsers.calls.syntax import ToolUse
from inferno.text.parsers.choose import Dialect
from inferno.text.sequence_texts import SequenceTexts
from inferno.text.tools import ToolFunction, Tools, read_tools

T = TypeVar("T")

MAX_PROMPTS = 1024
MAX_CHOICES = 1024
# As many token ids are handled at once: a millisecond or two of the event loop's time.
_FEW_IDS = 1 << 13
FEW_BYTES = 1 << 13  # of messages, as quick to check
_PARTS_OF_FORMATS: Mapping[str, tuple[str, ...]] = {
    "text": (),
    "json_object": ("schema", "value"),
    "json_schema": ("json_schema",),
    "structural_tag": ("format", "structures", "triggers"),
}
# The sampling parameters that requests have under the same name.
_SAME_NAMES = [name for name in table(SamplingParams) if name in GenerateFields.__struct_fields__]


@dataclass(frozen=True, slots=True)
class EngineRequest:
    """A prompt of a call: the request to the engine, and the texts that its events become.

    prompt          the prompt as given, if it was a text of which nothing was cut off.
    prompt_text     the text that the chat template wrote, before anything was cut off.
    shape_name      the field that gives the answer's shape.
    """

    request: Request
    texts: SequenceTexts
    prompt: str | None = None
    prompt_text: str = ""
    shape_name: str = "response_format"

    @property
    def num_tokens(self) -> int:
        """Return how many tokens the prompt has after tokens were cut off."""
        return len(self.request.prompt_token_ids)


@dataclass(frozen=True, slots=True)
class Origin:
    """The source of a request: its id, and a salt that hides cached prefixes from other keys."""

    request_id: str
    cache_salt: str


async def chat_requests(
    service: ModelService,
    fields: ChatRequest,
    template_args: dict[str, Any],
    origin: Origin,
    num_bytes: int,
    *,
    is_by_token: bool = False,
) -> list[EngineRequest]:
    """Return the engine request of a chat, as a list; num_bytes is the size of the HTTP body."""
    params = chat_params(fields, service.text.defaults)
    _check_count(service, 1, fields.n)
    tools = tools_of(fields)
    chat = await encode_chat(service, fields, template_args, num_bytes, tools)
    prediction_ids = await encode_prediction(service, params, chat.token_ids)
    tool_use = chat.tool_use
    so_far = last_answer(fields.messages) if fields.continue_final_message else ""
    if tools is not None and tool_use is not None:
        with renamed_params({"structured": _shape_name(fields)}):
            params, tool_use = tools.bind(params, tool_use, is_continuation=bool(so_far))

    def make() -> list[EngineRequest]:
        made = _engine_request(
            service,
            fields,
            params,
            origin,
            0,
            chat.token_ids,
            prediction_ids=prediction_ids,
            dialect=service.text.dialect,
            is_continuation=fields.continue_final_message,
            is_by_token=is_by_token,
            tool_use=tool_use,
            answer_so_far=so_far,
            max_tool_calls=None if fields.parallel_tool_calls else 1,
        )
        is_of_tools = tool_use is not None and not tool_use.has_document
        shape_name = "tools" if is_of_tools else made.shape_name
        return [replace(made, prompt_text=chat.text, shape_name=shape_name)]

    return await _make(service, len(chat.token_ids), make)


async def completion_requests(
    service: ModelService, fields: CompletionRequest, origin: Origin, *, is_by_token: bool = False
) -> list[EngineRequest]:
    """Return an engine request for each prompt."""
    params = completion_params(fields, service.text.defaults)

    def read() -> list[str | list[int]]:
        prompts = _prompts(fields.prompt)
        _check_count(service, len(prompts), fields.n)
        return prompts

    prompts = await _make(service, _num_ids(fields.prompt), read)
    encoded = await encode_all(service, prompts, add_special_tokens=fields.add_special_tokens)

    def make() -> list[EngineRequest]:
        return [
            _engine_request(
                service,
                fields,
                params,
                origin,
                i,
                ids,
                prompt=prompt,
                is_continuation=True,
                is_by_token=is_by_token,
            )
            for i, (prompt, ids) in enumerate(zip(prompts, encoded, strict=True))
        ]

    return await _make(service, sum(map(len, encoded)), make)


def chat_params(fields: ChatRequest, defaults: Mapping[str, Any]) -> SamplingParams:
    """Return a chat's sampling parameters; without a limit, an answer may fill the context."""
    if fields.top_logprobs and not fields.logprobs:
        raise InvalidRequest("top_logprobs needs logprobs: true", param="top_logprobs")
    if fields.logprob_token_ids and not fields.logprobs:
        raise InvalidRequest("logprob_token_ids needs logprobs: true", param="logprob_token_ids")
    most = fields.max_completion_tokens or fields.max_tokens or defaults.get("max_tokens")
    return _params(
        fields,
        defaults,
        max_tokens=most,
        logprobs=fields.top_logprobs if fields.logprobs else None,
        prompt_logprobs=fields.prompt_logprobs,
        prediction=None if fields.prediction is None else fields.prediction.text,
    )


def completion_params(fields: CompletionRequest, defaults: Mapping[str, Any]) -> SamplingParams:
    """Return a completion's sampling parameters; an echo asks for the prompt's logprobs too."""
    if fields.logprob_token_ids and fields.max_tokens == 0:
        raise InvalidRequest(
            "logprob_token_ids is for new tokens: it needs max_tokens of at least 1",
            param="logprob_token_ids",
        )
    wanted = [fields.prompt_logprobs, fields.logprobs if fields.echo else None]
    return _params(
        fields,
        defaults,
        max_tokens=fields.max_tokens,
        logprobs=fields.logprobs,
        prompt_logprobs=max((num for num in wanted if num is not None), default=None),
    )


async def encode_all(
    service: ModelService, prompts: Sequence[str | list[int]], *, add_special_tokens: bool
) -> list[list[int]]:
    """Return the token ids of prompts, which may be token ids already."""

    def encode() -> list[list[int]]:
        return [
            service.text.encode(
                prompt,
                max_model_len=service.facts.max_model_len,
                add_special_tokens=add_special_tokens,
            )
            if isinstance(prompt, str)
            else prompt
            for prompt in prompts
        ]

    texts = [prompt for prompt in prompts if isinstance(prompt, str)]
    return await service.on_text(sum(map(len, texts)), encode) if texts else encode()


async def encode_prediction(
    service: ModelService, params: SamplingParams, prompt_token_ids: Sequence[int]
) -> tuple[int, ...]:
    """Return the token ids of a prediction of the answer."""
    prediction = params.prediction
    if not prediction:
        return ()

    def encode() -> tuple[int, ...]:
        return service.text.encode_prediction(
            prediction, prompt_token_ids, max_model_len=service.facts.max_model_len
        )

    return await service.on_text(len(prediction), encode)


@dataclass(frozen=True, slots=True)
class EncodedChat:
    """A conversation as the chat template has written it, and the token ids of that text.

    tool_use    how the model calls the tools that it is shown; None without tools.
    """

    text: str
    token_ids: list[int]
    tool_use: ToolUse | None


async def encode_chat(
    service: ModelService,
    fields: ChatRequest | TokenizeRequest,
    template_args: dict[str, Any],
    num_bytes: int,
    tools: Tools | None,
) -> EncodedChat:
    """Return a conversation, and perhaps tools, as the chat template renders them."""
    if fields.chat_template is not None and not service.settings.trust_request_chat_template:
        raise InvalidRequest(
            "chat_template is taken by servers that run with --trust-request-chat-template",
            param="chat_template",
        )
    shown = None if tools is None else tools.for_template()
    tool_use = service.text.tool_use(shown, fields.chat_template)
    kwargs = {**template_args, **(fields.chat_template_kwargs or {})}
    if fields.documents is not None:
        kwargs["documents"] = fields.documents

    def begin() -> Rendering:
        return service.text.begin_chat(
            fields.messages or [],
            tools=shown,
            add_generation_prompt=fields.add_generation_prompt,
            continue_final_message=fields.continue_final_message,
            kwargs=kwargs,
            template=fields.chat_template,
        )

    wants_text = isinstance(fields, ChatRequest) and fields.return_prompt_text
    small = num_bytes <= FEW_BYTES
    rendering = begin() if small else await service.on_text(num_bytes, begin)
    # Started here, not in the thread: who is cancelled there has nothing rendered afterwards.
    written = await asyncio.wrap_future(rendering.start())

    def finish() -> EncodedChat:
        ids = service.text.finish_chat(
            rendering, written, max_model_len=service.facts.max_model_len
        )
        if fields.add_special_tokens:
            ids = service.text.tokenizer.with_special_tokens(ids)
        return EncodedChat(rendering.finish(written).text if wants_text else "", ids, tool_use)

    return await service.on_text(len(written), finish)


def tools_of(fields: ChatRequest | TokenizeRequest) -> Tools | None:
    """Return the tools of a request; InvalidRequest where tools or tool_choice make no sense."""
    choice = fields.tool_choice if isinstance(fields, ChatRequest) else None
    if not fields.tools:
        return read_tools(fields.tools, choice)
    if any(tool.function.defer_loading for tool in fields.tools):
        raise InvalidRequest(
            "defer_loading is not supported: leave it out, and the function is shown at once",
            param="tools",
        )
    functions = [
        ToolFunction(each.name, each.description or "", each.parameters, bool(each.strict))
        for each in (tool.function for tool in fields.tools)
    ]
    if isinstance(choice, NamedTool):
        return Tools(functions, "required", choice.function.name)
    is_parallel = not isinstance(fields, ChatRequest) or fields.parallel_tool_calls
    return Tools(functions, choice or "auto", is_parallel=is_parallel)


async def _make(service: ModelService, num_ids: int, make: Callable[[], T]) -> T:
    """Return what `make` returns; call it beside the event loop where it has many token ids."""
    return make() if num_ids <= _FEW_IDS else await service.on_body(make)


def _num_ids(prompt: object) -> int:
    """Return how many token ids a prompt may have, in whichever shape it came."""
    if not isinstance(prompt, list):
        return 0
    return sum(len(each) if isinstance(each, list) else 1 for each in prompt)


def _check_count(service: ModelService, num_prompts: int, n: int) -> None:
    """Refuse what would not fit if the server had nothing else to do."""
    most = min(MAX_CHOICES, service.facts.max_num_seqs + service.settings.max_queue)
    if num_prompts * n > most:
        raise InvalidRequest(
            f"{num_prompts} prompts with n={n} are more than {most} choices, as many as the server "
            "computes and queues; send several requests",
            param="n" if n > 1 else "prompt",
        )


def _engine_request(
    service: ModelService,
    fields: GenerateFields,
    params: SamplingParams,
    origin: Origin,
    index: int,
    token_ids: list[int],
    *,
    prediction_ids: tuple[int, ...] = (),
    dialect: Dialect = Dialect.PLAIN,
    prompt: str | list[int] | None = None,
    is_continuation: bool,
    is_by_token: bool,
    tool_use: ToolUse | None = None,
    max_tool_calls: int | None = None,
    answer_so_far: str = "",
) -> EngineRequest:
    facts = service.facts
    most_output = max(1, facts.max_model_len // 2)  # that a prompt is cut down for
    room = facts.max_model_len - max(1, min(params.max_tokens or 1, most_output))
    kept = tuple(_cut(token_ids, fields, max(1, room)))
    texts = SequenceTexts(
        service.text.tokenizer,
        params,
        prompt_index=index,
        prompt=None,
        prompt_token_ids=kept,
        prediction_ids=prediction_ids,
        dialect=dialect,
        is_continuation=is_continuation,
        is_by_token=is_by_token,
        tool_use=tool_use,
        max_tool_calls=max_tool_calls,
    )
    request = service.text.request(
        texts,
        request_id=service.engine_id(origin.request_id, index),
        vocab_size=facts.vocab_size,
        priority=fields.priority,
        cache_salt=origin.cache_salt + (fields.cache_salt or ""),
        answer_so_far=answer_so_far,
    )
    is_whole = isinstance(prompt, str) and len(kept) == len(token_ids)
    given = str(prompt) if is_whole else None
    return EngineRequest(request, texts, given, shape_name=_shape_name(fields))


def _cut(token_ids: list[int], fields: GenerateFields, room: int) -> Sequence[int]:
    """Return the token ids that truncate_prompt_tokens keeps; -1 keeps as many as `room`.

    room        how many the context holds beside the output: at least half of it.
    """
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
    """Return the prompts of a completion, in whichever of four shapes they came."""
    if isinstance(given, str):
        return [given]
    if not isinstance(given, list) or not given:
        raise _invalid_prompt("a text, a list of texts, token ids, or lists of them")
    if len(given) > MAX_PROMPTS and not isinstance(given[0], int):
        raise _invalid_prompt(f"at most {MAX_PROMPTS} prompts")
    if all(isinstance(each, str) for each in given):
        return list(given)
    if all(isinstance(each, list) for each in given):
        return [_token_ids(each) for each in given]
    return [_token_ids(given)]


def _token_ids(given: list[object]) -> list[int]:
    ids = [i for i in given if type(i) is int and 0 <= i <= MAX_TOKEN_ID]
    if not ids or len(ids) < len(given):
        raise _invalid_prompt("texts or token ids, at least one and all of a kind")
    return ids


def _invalid_prompt(expected: str) -> InvalidRequest:
    return InvalidRequest(f"prompt must be {expected}", param="prompt")


def _params(
    fields: GenerateFields, defaults: Mapping[str, Any], **own: int | str | None
) -> SamplingParams:
    if fields.stream_options is not None and not fields.stream:
        raise InvalidRequest("stream_options needs stream: true", param="stream_options")
    if fields.prompt_logprobs is not None and fields.stream:
        raise InvalidRequest("prompt_logprobs can't be streamed", param="prompt_logprobs")
    given = {name: value for name in _SAME_NAMES if (value := getattr(fields, name)) is not None}
    given["repetition_detection"] = _repetition_detection(fields)
    if given.get("top_k") == -1:
        given["top_k"] = 0
    if fields.logit_bias is not None:
        given["logit_bias"] = _biases(fields.logit_bias)
    given["include_stop_in_output"] = fields.include_stop_str_in_output
    given["structured"] = _structured(fields)
    return SamplingParams(**{**defaults, **given, **own})


def _repetition_detection(fields: GenerateFields) -> RepetitionDetection | None:
    asked = fields.repetition_detection
    if asked is None or asked.max_pattern_size == 0:
        return None
    return RepetitionDetection(
        max_pattern_size=asked.max_pattern_size,
        min_pattern_size=asked.min_pattern_size or 1,
        min_count=asked.min_count,
    )


def _shape_name(fields: GenerateFields) -> str:
    """Return the name of the field that gives the answer's shape."""
    return "response_format" if fields.structured_outputs is None else "structured_outputs"


def _structured(fields: GenerateFields) -> StructuredOutput | None:
    """Return the shape that an answer must have, by either of the two fields for it."""
    asked, format = fields.structured_outputs, fields.response_format
    if format is not None:
        _check_format(format)
    if format is not None and format.type == "text":
        format = None
    if asked is not None and format is not None:
        raise InvalidRequest(
            "response_format and structured_outputs both give a shape; give one of them",
            param="structured_outputs",
        )
    if asked is not None:
        given = {name: value for name, value in asdict(asked).items() if value is not None}
        return _checked_shape("structured_outputs", given)
    if format is None:
        return None
    if format.type == "json_object":
        if format.schema is not None and format.value is not None:
            raise InvalidRequest(
                "response_format has both schema and value; give one of them",
                param="response_format",
            )
        schema = format.value if format.schema is None else format.schema
        if schema is None:
            return StructuredOutput(json_object=True)
        return _checked_shape("response_format", {"json": schema})
    if format.type == "structural_tag":
        tag = {name: value for name, value in asdict(format).items() if value is not None}
        return _checked_shape("response_format", {"structural_tag": tag})
    if format.json_schema is None:
        raise InvalidRequest(
            'response_format of type "json_schema" needs json_schema', param="response_format"
        )
    if format.json_schema.schema is None:
        return StructuredOutput(json_object=True)
    return _checked_shape("response_format", {"json": format.json_schema.schema})


def _check_format(format: ResponseFormat) -> None:
    """Refuse a part that belongs to another type: nobody would keep to it."""
    for name, value in asdict(format).items():
        if name != "type" and value is not None and name not in _PARTS_OF_FORMATS[format.type]:
            raise InvalidRequest(
                f'response_format of type "{format.type}" takes no {name}', param="response_format"
            )


def _checked_shape(field: str, given: dict[str, Any]) -> StructuredOutput:
    try:
        return StructuredOutput(**given)
    except InvalidRequest as problem:
        raise InvalidRequest(f"{field}: {problem}", param=field) from None


def _biases(by_text: Mapping[str, float]) -> dict[int, float]:
    biases = {_token_id(text): bias for text, bias in by_text.items()}
    if len(biases) < len(by_text):
        raise InvalidRequest("logit_bias names a token twice", param="logit_bias")
    return biases


def _token_id(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) <= 10):
        raise InvalidRequest(
            f"logit_bias must have token ids as keys, not {text[:40]!r}", param="logit_bias"
        )
    return int(text)
