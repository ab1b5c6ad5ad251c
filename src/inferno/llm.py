"""LLM: text in, text out, on top of an engine client."""

from __future__ import annotations

import asyncio
import itertools
import secrets
import weakref
from collections.abc import AsyncGenerator, Callable, Generator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from torch import Tensor

from inferno.client.blocking import BlockingLoop
from inferno.client.inline import InlineClient
from inferno.engine.assemble import build_engine
from inferno.engine.footprint import Footprint
from inferno.engine.torch_threads import BorrowedThreads
from inferno.errors import InvalidRequest
from inferno.hub.find import find_model_folder
from inferno.options import EngineOptions
from inferno.requests import SamplingParams
from inferno.text.completion import Chunk, Completion
from inferno.text.model_text import ModelText, chunks_of
from inferno.text.parsers.choose import Dialect
from inferno.text.samples import SampleTexts

Prompt = str | Sequence[int]


class LLM:
    """A model ready to generate. Use it as a context manager, or `close` it.

    model       a model's folder, a Hugging Face id, or `demo`, the embedded model.
    revision    of a Hugging Face id: a branch, tag or commit.
    progress    called with (done, total) bytes while weights load.
    The other arguments are EngineOptions' fields. Raises ModelError, DeviceUnavailable,
    NotEnoughMemory, InvalidRequest. May be used from several threads: their requests share batches.
    """

    def __init__(
        self,
        model: str | Path = "demo",
        *,
        revision: str | None = None,
        device: str = "cpu",
        dtype: str = "auto",
        threads: int | None = None,
        block_size: int = 16,
        num_blocks: int | None = None,
        max_model_len: int | None = None,
        max_num_seqs: int = 64,
        max_num_batched_tokens: int = 512,
        attention: str = "auto",
        quantize: str = "none",
        kv_dtype: str = "auto",
        load_format: str = "safetensors",
        prefix_cache: bool = True,
        allow_unknown_config: bool = False,
        progress: Callable[[int, int], None] | None = None,
    ) -> None:
        folder = find_model_folder(str(model), revision)
        options = EngineOptions(
            model=folder,
            device=device,
            dtype=dtype,
            threads=threads,
            block_size=block_size,
            num_blocks=num_blocks,
            max_model_len=max_model_len,
            max_num_seqs=max_num_seqs,
            max_num_batched_tokens=max_num_batched_tokens,
            attention=attention,
            quantize=quantize,
            kv_dtype=kv_dtype,
            load_format=load_format,
            prefix_cache=prefix_cache,
            allow_unknown_config=allow_unknown_config,
        )
        self._text = ModelText(folder, needs_tokenizer=load_format != "dummy")
        self.tokenizer = self._text.tokenizer
        self.dialect = self._text.dialect
        self.default_params = SamplingParams(**self._text.defaults)
        self._threads = BorrowedThreads()
        self._client = InlineClient(build_engine(options, progress))
        self._numbers = itertools.count()
        self._loop = BlockingLoop()
        weakref.finalize(self, self._loop.close)  # for those who forget to

    @property
    def vocab_size(self) -> int:
        """Rows of the model's logits."""
        return self._client.vocab_size

    @property
    def max_model_len(self) -> int:
        """The context: prompt and new tokens together."""
        return self._client.max_model_len

    @property
    def footprint(self) -> Footprint:
        """Device and dtype, and the memory that weights and KV cache take."""
        return self._client.footprint

    @property
    def has_chat_template(self) -> bool:
        """Whether `chat` and `encode_chat` work with this model."""
        return self._text.has_chat_template

    def generate(
        self,
        prompts: Prompt | Sequence[Prompt],
        params: SamplingParams | None = None,
        *,
        priority: int = 0,
        dialect: Dialect = Dialect.PLAIN,
    ) -> list[Completion]:
        """Complete prompts together; n completions each, in the order of the prompts.

        A prompt is text or token ids. Without params the model's own defaults are taken. Raises
        InvalidRequest, NeverFits for a prompt that the engine refuses.
        """
        completions = self.as_completed(prompts, params, priority=priority, dialect=dialect)
        return sorted(completions, key=lambda done: (done.prompt_index, done.sample_index))

    def as_completed(
        self,
        prompts: Prompt | Sequence[Prompt],
        params: SamplingParams | None = None,
        *,
        priority: int = 0,
        dialect: Dialect = Dialect.PLAIN,
    ) -> Generator[Completion, None, None]:
        """As `generate`, but yields each completion when it is done."""
        requests = [
            self._sample_texts(index, prompt, params, dialect)
            for index, prompt in enumerate(_as_prompts(prompts))
        ]
        return self._loop.iterate(self._complete_all(requests, priority))

    def stream(
        self,
        prompt: Prompt,
        params: SamplingParams | None = None,
        *,
        priority: int = 0,
        dialect: Dialect = Dialect.PLAIN,
    ) -> Generator[Chunk, None, None]:
        """The completion of one prompt piece by piece; leaving the iterator aborts it."""
        texts = self._sample_texts(0, _as_prompt(prompt), params, dialect)
        return self._loop.iterate(self._chunks(texts, priority))

    def chat(
        self,
        messages: Sequence[Mapping[str, Any]],
        params: SamplingParams | None = None,
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        template_args: Mapping[str, Any] | None = None,
        priority: int = 0,
    ) -> list[Completion]:
        """The assistant's answer to a conversation, n times; raises TemplateError as well."""
        ids = self.encode_chat(messages, tools=tools, template_args=template_args)
        return self.generate([ids], params, priority=priority, dialect=self.dialect)

    def encode_chat(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        add_generation_prompt: bool = True,
        continue_final_message: bool = False,
        template_args: Mapping[str, Any] | None = None,
    ) -> list[int]:
        """A conversation as token ids, by the model's chat template."""
        return self._text.encode_chat(
            messages,
            max_model_len=self.max_model_len,
            tools=tools,
            add_generation_prompt=add_generation_prompt,
            continue_final_message=continue_final_message,
            kwargs=template_args or {},
        )

    def takes_template_arg(self, name: str) -> bool:
        """Whether the model's chat template looks at a value of that name in `template_args`."""
        return self._text.takes_template_arg(name)

    def logits(self, token_ids: Sequence[int], positions: Sequence[int] | None = None) -> Tensor:
        """Float32 logits [positions, V] after each of these positions (all by default).

        Computed through the engine's paged path, without the prefix cache.
        """
        ids = _as_prompt(token_ids)
        if isinstance(ids, str):
            raise InvalidRequest("token_ids must be token ids, not a text", param="token_ids")
        if positions is not None and not isinstance(positions, Sequence):
            raise InvalidRequest(f"positions must be a list, not {positions!r}", param="positions")
        return self._loop.run(self._client.logits(ids, positions))

    def close(self) -> None:
        """Abort what is under way and let go of the engine."""
        if self._loop.is_closed:
            return
        try:
            self._loop.run(self._client.close())
        finally:
            self._loop.close()
            self._text.close()
            self._threads.give_back()

    def __enter__(self) -> LLM:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        problem: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _sample_texts(
        self, index: int, prompt: Prompt, params: SamplingParams | None, dialect: Dialect
    ) -> SampleTexts:
        params = self.default_params if params is None else params
        if not isinstance(params, SamplingParams):
            raise InvalidRequest(f"params must be SamplingParams, not {params!r}", param="params")
        is_text = isinstance(prompt, str)
        token_ids = self._encode(prompt) if isinstance(prompt, str) else prompt
        return SampleTexts(
            self.tokenizer,
            params,
            prompt_index=index,
            prompt=str(prompt) if is_text else None,
            prompt_token_ids=tuple(token_ids),
            dialect=dialect,
        )

    def _encode(self, prompt: str) -> list[int]:
        return self._text.encode(prompt, max_model_len=self.max_model_len)

    def _chunks(self, texts: SampleTexts, priority: int) -> AsyncGenerator[Chunk, None]:
        request = self._text.request(
            texts,
            request_id=f"{next(self._numbers)}-{secrets.token_hex(4)}",
            vocab_size=self.vocab_size,
            priority=priority,
        )
        return chunks_of(texts, self._client.generate(request), self._client.abort)

    async def _complete(self, texts: SampleTexts, priority: int, name: str) -> list[Completion]:
        try:
            chunks = [chunk async for chunk in self._chunks(texts, priority)]
        except InvalidRequest as problem:
            raise type(problem)(name + str(problem), param=problem.param) from None
        return [chunk.completion for chunk in chunks if chunk.completion is not None]

    async def _complete_all(
        self, requests: Sequence[SampleTexts], priority: int
    ) -> AsyncGenerator[Completion, None]:
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


def _as_prompts(prompts: Prompt | Sequence[Prompt]) -> list[Prompt]:
    """A list of prompts, whether one was given or several."""
    if isinstance(prompts, str) or not isinstance(prompts, Sequence):
        return [_as_prompt(prompts)]
    if prompts and all(isinstance(item, int) for item in prompts):
        return [_as_prompt(prompts)]
    return [_as_prompt(prompt) for prompt in prompts]


def _as_prompt(prompt: object) -> Prompt:
    """A text or a list of ids, whose values the engine checks."""
    if isinstance(prompt, str):
        return prompt
    if isinstance(prompt, Sequence) and not isinstance(prompt, bytes | bytearray | memoryview):
        return list(prompt)
    raise InvalidRequest(
        f"a prompt must be a text or a list of token ids, not {prompt!r}", param="prompts"
    )
