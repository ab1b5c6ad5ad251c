"""Hold a model with its engine and its text: all that LLM and AsyncLLM have in common."""

from __future__ import annotations

import asyncio
import itertools
import secrets
import weakref
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeGuard

from inferno.client.blocking import BlockingLoop
from inferno.client.inline import InlineClient
from inferno.engine.build import build_engine
from inferno.engine.execution.torch_threads import BorrowedThreads
from inferno.errors import InvalidRequest
from inferno.gguf.file import held_headers
from inferno.hub.find import find_model_folder
from inferno.machine import return_free_memory
from inferno.options import EngineOptions
from inferno.requests import SamplingParams
from inferno.structured import AnswerSchema
from inferno.surrogates import check_whole
from inferno.text.completion import Chunk, Completion
from inferno.text.model_text import ModelText, chunks_of
from inferno.text.parsers.choose import Dialect
from inferno.text.sequence_texts import SequenceTexts
from inferno.text.tools import Tools, read_tools

Prompt = str | Sequence[int]
Conversation = Sequence[Mapping[str, Any]]
Progress = Callable[[int, int], None]


class LoadedModel:
    """A loaded model, which turns callers' arguments into requests and runs these in a thread.

    name        the model's name as the user gave it; options.model becomes its folder.

    The constructor and making requests block; an AsyncGenerator yields in the loop's thread.
    Several threads may use the object. Dropping it ends the thread, but `close` frees more.
    """

    def __init__(
        self,
        name: str,
        revision: str | None,
        options: EngineOptions,
        progress: Progress | None,
        captures: Progress | None,
    ) -> None:
        folder = find_model_folder(name, revision)
        options = replace(options, model=folder)
        self.name = name
        with held_headers(folder):
            self.text = ModelText(
                folder,
                needs_tokenizer=options.load_format != "dummy",
                chat_template=options.chat_template,
            )
            self.default_params = SamplingParams(**self.text.defaults)
            return_free_memory()  # of parsing a large tokenizer: twice what is kept of it
            self._threads = BorrowedThreads()
            self.client = InlineClient(build_engine(options, progress, captures=captures))
        self._numbers = itertools.count()
        self.loop = BlockingLoop()
        # For those who forget to. What is under way holds the client, and so the loop, too.
        weakref.finalize(self.client, self.loop.close)

    def __repr__(self) -> str:
        """Return the most important arguments, with the values in use."""
        if self.loop.is_closed:
            return f"({self.name!r}, closed)"
        where = self.client.footprint
        return (
            f"({self.name!r}, device={where.device!r}, dtype={where.dtype!r}, "
            f"max_model_len={self.client.max_model_len})"
        )

    def requests(
        self,
        prompts: Prompt | Sequence[Prompt],
        params: SamplingParams | Sequence[SamplingParams] | None,
        dialect: Dialect,
        schema: AnswerSchema | None = None,
        tools: Tools | None = None,
    ) -> list[SequenceTexts]:
        """Return a request for each prompt; raise InvalidRequest where a prompt can't be one."""
        self.loop.check_open()
        checked = _as_prompts(prompts)
        return [
            self._request(index, prompt, asked, dialect, schema, tools)
            for index, (prompt, asked) in enumerate(
                zip(checked, self._params(params, len(checked)), strict=True)
            )
        ]

    def request(
        self,
        prompt: Prompt,
        params: SamplingParams | None,
        dialect: Dialect,
        tools: object = None,
    ) -> SequenceTexts:
        """Return the request of one prompt, in which the model was shown some tools."""
        self.loop.check_open()
        shown = self._tools({"tools": tools})
        return self._request(0, _as_prompt(prompt), self._checked(params), dialect, tools=shown)

    def chat_requests(
        self,
        messages: Conversation | Sequence[Conversation],
        params: SamplingParams | Sequence[SamplingParams] | None,
        *,
        schema: object = None,
        **options: Any,
    ) -> list[SequenceTexts]:
        """Return a request for each of one or more conversations.

        schema      the type of the answers, which AnswerSchema explains.
        options     the options of `encode_chat`, and tool_choice and parallel_tool_calls.
        """
        self.loop.check_open()
        of_answers = None if schema is None else AnswerSchema(schema)
        tools = self._tools(options)
        dialect = self.text.dialect
        if not _are_conversations(messages):
            prompt = self.encode_chat(messages, **options)
            return self.requests([prompt], params, dialect, of_answers, tools)
        prompts = []
        for number, conversation in enumerate(messages, start=1):
            try:
                prompts.append(self.encode_chat(conversation, **options))
            except InvalidRequest as problem:
                name = f"conversation {number} of {len(messages)}: "
                raise type(problem)(name + str(problem), param=problem.param) from None
        return self.requests(prompts, params, dialect, of_answers, tools)

    def chat_request(
        self, messages: Conversation, params: SamplingParams | None, **options: Any
    ) -> SequenceTexts:
        """Return the request of one conversation; options are the same as of `chat_requests`."""
        self.loop.check_open()
        tools = self._tools(options)
        ids = self.encode_chat(messages, **options)
        return self._request(0, ids, self._checked(params), self.text.dialect, tools=tools)

    def encode_chat(self, messages: object, **options: Any) -> list[int]:
        """Return a conversation as token ids; options are the same as of ModelText.encode_chat."""
        self.loop.check_open()
        self.text.tool_use(options.get("tools"))  # refuses what a template would leave out
        options["kwargs"] = options.pop("template_args", None) or {}
        max_model_len = self.client.max_model_len
        return self.text.encode_chat(messages, max_model_len=max_model_len, **options)  # type: ignore[arg-type]  # checked there

    def chunks(self, texts: SequenceTexts, priority: int) -> AsyncGenerator[Chunk, None]:
        """Yield the text of a request piece by piece; leaving the generator aborts it."""
        request = self.text.request(
            texts,
            request_id=f"{next(self._numbers)}-{secrets.token_hex(4)}",
            vocab_size=self.client.vocab_size,
            priority=priority,
        )
        return chunks_of(texts, self.client.generate(request), self.client.abort)

    async def complete_all(
        self, requests: Sequence[SequenceTexts], priority: int
    ) -> AsyncGenerator[Completion, None]:
        """Yield each request's completions when done; leaving the generator aborts the rest."""
        tasks = [
            asyncio.create_task(self._complete(texts, priority, f"prompt {i} of {len(requests)}: "))
            for i, texts in enumerate(requests, start=1)
        ]
        try:
            for done in asyncio.as_completed(tasks):
                for completion in await done:
                    yield completion
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def close(self) -> None:
        """Abort all requests and free the engine; in a forked process do nothing."""
        if self.loop.is_closed or self.loop.is_elsewhere:
            return
        try:
            self.loop.run(self.client.close)
        finally:
            self.loop.close()
            self.text.close()
            self._threads.give_back()

    async def _complete(self, texts: SequenceTexts, priority: int, name: str) -> list[Completion]:
        try:
            return [
                chunk.completion
                async for chunk in self.chunks(texts, priority)
                if chunk.completion is not None
            ]
        except InvalidRequest as problem:
            raise type(problem)(name + str(problem), param=problem.param) from None

    def _request(
        self,
        index: int,
        prompt: Prompt,
        params: SamplingParams,
        dialect: Dialect,
        schema: AnswerSchema | None = None,
        tools: Tools | None = None,
    ) -> SequenceTexts:
        is_text = isinstance(prompt, str)
        if schema is not None:
            if params.structured is not None:
                raise InvalidRequest(
                    "schema and params.structured both say the answer's shape: give one of them",
                    param="schema",
                )
            params = replace(params, structured=schema.shape)
        tool_use = None if tools is None else self.text.tool_use(tools.for_template())
        if tools is not None and tool_use is not None:
            params, tool_use = tools.bind(params, tool_use)
        token_ids = tuple(self._encode(prompt) if isinstance(prompt, str) else prompt)
        return SequenceTexts(
            self.text.tokenizer,
            params,
            prompt_index=index,
            prompt=str(prompt) if is_text else None,
            prompt_token_ids=token_ids,
            prediction_ids=self._encode_prediction(params, token_ids),
            dialect=dialect,
            schema=schema,
            tool_use=tool_use,
            max_tool_calls=None if tools is None or tools.is_parallel else 1,
        )

    def _tools(self, options: dict[str, Any]) -> Tools | None:
        """Return the tools of a chat, and leave in `options` what its template is to be told."""
        choice = options.pop("tool_choice", None)
        is_parallel = options.pop("parallel_tool_calls", True)
        tools = read_tools(options.get("tools"), choice, is_parallel=is_parallel)
        if tools is None or not tools.are_shown:
            options["tools"] = None
            return None
        return tools

    def _encode(self, prompt: str) -> list[int]:
        check_whole(prompt, "the prompt", param="prompts")
        return self.text.encode(prompt, max_model_len=self.client.max_model_len)

    def _encode_prediction(
        self, params: SamplingParams, prompt_token_ids: Sequence[int]
    ) -> tuple[int, ...]:
        return self.text.encode_prediction(
            params.prediction, prompt_token_ids, max_model_len=self.client.max_model_len
        )

    def _params(
        self, params: SamplingParams | Sequence[SamplingParams] | None, num_prompts: int
    ) -> list[SamplingParams]:
        """Return the parameters of each prompt, whether they were given once or for each."""
        if isinstance(params, str) or not isinstance(params, Sequence):
            return [self._checked(params)] * num_prompts
        if len(params) != num_prompts:
            raise InvalidRequest(
                f"params must be one SamplingParams, or one for each of the {num_prompts} prompts, "
                f"not {len(params)}",
                param="params",
            )
        if None in params:
            raise InvalidRequest("a list of params must not hold None", param="params")
        return [self._checked(each) for each in params]

    def _checked(self, params: SamplingParams | None) -> SamplingParams:
        params = self.default_params if params is None else params
        if not isinstance(params, SamplingParams):
            raise InvalidRequest(f"params must be SamplingParams, not {params!r}", param="params")
        return params


def in_order(completions: Iterable[Completion]) -> list[Completion]:
    """Return all completions, by prompt and then by sample."""
    return sorted(completions, key=lambda done: (done.prompt_index, done.sequence_index))


def checked_ids(token_ids: Sequence[int], positions: Sequence[int] | None) -> Sequence[int]:
    """Return the arguments of `logits` in the types that the engine takes."""
    ids = _as_prompt(token_ids)
    if isinstance(ids, str):
        raise InvalidRequest("token_ids must be token ids, not a text", param="token_ids")
    if positions is not None and not isinstance(positions, Sequence):
        raise InvalidRequest(f"positions must be a list, not {positions!r}", param="positions")
    return ids


def _are_conversations(messages: object) -> TypeGuard[Sequence[Conversation]]:
    """Return whether a value is a list of lists of messages."""
    return _is_list(messages) and bool(messages) and all(map(_is_list, messages))


def _is_list(value: object) -> TypeGuard[Sequence[object]]:
    return isinstance(value, Sequence) and not isinstance(value, str | bytes)


def _as_prompts(prompts: Prompt | Sequence[Prompt]) -> list[Prompt]:
    """Return a list of prompts, whether one was given or several."""
    if isinstance(prompts, str) or not isinstance(prompts, Sequence):
        return [_as_prompt(prompts)]
    if prompts and all(isinstance(item, int) for item in prompts):
        return [_as_prompt(prompts)]
    return [_as_prompt(prompt) for prompt in prompts]


def _as_prompt(prompt: object) -> Prompt:
    """Return a text or a list of ids, whose values the engine checks."""
    if isinstance(prompt, str):
        return prompt
    if isinstance(prompt, Sequence) and not isinstance(prompt, bytes | bytearray | memoryview):
        return list(prompt)
    raise InvalidRequest(
        f"a prompt must be a text or a list of token ids, not {prompt!r}", param="prompts"
    )
