"""Define AsyncLLM: text in, text out, for coroutines, never blocking their event loop."""

from __future__ import annotations

import asyncio
import inspect
import os
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Callable,
    Coroutine,
    Generator,
    Mapping,
    Sequence,
)
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

from torch import Tensor

from inferno.engine.execution.footprint import Footprint
from inferno.errors import EngineDied
from inferno.llm import LLM
from inferno.loaded_model import Conversation, LoadedModel, Progress, Prompt, checked_ids, in_order
from inferno.options import EngineOptions
from inferno.parameters import names_fields, names_parameters, takes_as
from inferno.requests import SamplingParams
from inferno.text.completion import Chunk, Completion
from inferno.text.parsers.choose import Dialect
from inferno.text.sequence_texts import SequenceTexts
from inferno.text.tokenizer import Tokenizer

_NUM_THREADS = 4  # that tokenize and render at a time

T = TypeVar("T")


class PendingCompletions(Coroutine[Any, Any, list[Completion]]):
    """The completions of a call: await all, in order, or iterate over each when it is done.

    The object is a coroutine too, so it can become a task. Cancelling it, or leaving the iteration,
    aborts the requests.
    """

    def __init__(self, completions: AsyncGenerator[Completion, None]) -> None:
        self._completions = completions
        self._all = _all_in_order(completions)

    def __await__(self) -> Generator[Any, Any, list[Completion]]:
        """Return all completions, by prompt and then by sequence."""
        return self._all.__await__()

    def __aiter__(self) -> AsyncIterator[Completion]:
        """Yield each completion when it is done."""
        self._all.close()
        return self._completions

    async def aclose(self) -> None:
        """Abort the requests that are not done."""
        self._all.close()
        await self._completions.aclose()

    def send(self, value: Any) -> Any:
        """Resume the coroutine with a value, as Coroutine.send does."""
        return self._all.send(value)

    def throw(self, *problem: Any) -> Any:
        """Raise an error where the coroutine is suspended, as Coroutine.throw does."""
        return self._all.throw(*problem)

    def close(self) -> None:
        """End the coroutine, as Coroutine.close does."""
        self._all.close()


async def _all_in_order(completions: AsyncGenerator[Completion, None]) -> list[Completion]:
    async with aclosing(completions) as found:
        return in_order([each async for each in found])


@names_fields
class AsyncLLM:
    """A model ready to generate for coroutines, with LLM's parameters, and methods to await.

    `async with` loads the model in a thread, and so does `start`, or else the first request;
    `close` ends it. The object belongs to the event loop that first uses it; other loops get
    EngineDied. `progress` and `captures` are called in that loop. Requests at the same time share
    batches.

    >>> async def main() -> int:
    ...     async with AsyncLLM("demo") as llm:
    ...         [answer] = await llm.generate("Once upon a time", SamplingParams(max_tokens=8))
    ...         return answer.usage.completion_tokens
    >>> asyncio.run(main())
    8
    """

    @takes_as(LLM.__init__)
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        given = inspect.signature(LLM).bind(*args, **kwargs)
        given.apply_defaults()
        options = dict(given.arguments)
        self._name = str(options.pop("model"))
        self._revision: str | None = options.pop("revision")
        self._progress: Progress | None = options.pop("progress")
        self._captures: Progress | None = options.pop("captures")
        self._options = EngineOptions(model=Path(self._name), **options)
        self._pid = os.getpid()
        self._owner = _running_loop()
        self._threads = ThreadPoolExecutor(_NUM_THREADS, thread_name_prefix="inferno-text")
        self._loading: asyncio.Future[LoadedModel] | None = None
        self._is_closed = False

    def __repr__(self) -> str:
        """Return the model and its arguments, with the values in use once it is loaded."""
        if self._is_closed:
            return f"AsyncLLM({self._name!r}, closed)"
        if (loading := self._loading) is None or not loading.done() or loading.exception():
            return f"AsyncLLM({self._name!r}, not loaded)"
        return f"AsyncLLM{loading.result()!r}"

    @property
    def vocab_size(self) -> int:
        """Return the number of values in a row of the model's logits."""
        return self._loaded.client.vocab_size

    @property
    def max_model_len(self) -> int:
        """Return the context: prompt and new tokens together."""
        return self._loaded.client.max_model_len

    @property
    def footprint(self) -> Footprint:
        """Return device and dtype, and the memory that weights and KV cache take."""
        return self._loaded.client.footprint

    @property
    def default_params(self) -> SamplingParams:
        """Return the model's own sampling parameters."""
        return self._loaded.default_params

    @property
    def tokenizer(self) -> Tokenizer:
        """Return the model's tokenizer."""
        return self._loaded.text.tokenizer

    @property
    def dialect(self) -> Dialect:
        """Return how the model sets its reasoning apart from its answer."""
        return self._loaded.text.dialect

    @property
    def has_chat_template(self) -> bool:
        """Return whether `chat` and `encode_chat` work with this model."""
        return self._loaded.text.has_chat_template

    def takes_template_arg(self, name: str) -> bool:
        """Return whether the model's chat template reads a value of that name in template_args."""
        return self._loaded.text.takes_template_arg(name)

    async def start(self) -> None:
        """Load the model in a thread; raise the same errors as LLM."""
        await self._load()

    @names_parameters
    def generate(
        self,
        prompts: Prompt | Sequence[Prompt],
        params: SamplingParams | Sequence[SamplingParams] | None = None,
        *,
        priority: int = 0,
        dialect: Dialect = Dialect.PLAIN,
    ) -> PendingCompletions:
        """Complete prompts together: await all in order, or iterate over each when it is done.

        >>> async def main() -> list[int]:
        ...     async with AsyncLLM("demo") as llm:
        ...         two = llm.generate(["The sun", "A cat"], SamplingParams(max_tokens=8))
        ...         return sorted([done.prompt_index async for done in two])
        >>> asyncio.run(main())
        [0, 1]
        """
        make = partial(LoadedModel.requests, prompts=prompts, params=params, dialect=dialect)
        return PendingCompletions(self._complete(make, priority))

    @names_parameters
    def stream(
        self,
        prompt: Prompt,
        params: SamplingParams | None = None,
        *,
        priority: int = 0,
        dialect: Dialect = Dialect.PLAIN,
        tools: Sequence[Mapping[str, Any]] | None = None,
    ) -> AsyncGenerator[Chunk, None]:
        """Yield the completion of one prompt piece by piece; leaving the iterator aborts it."""
        make = partial(
            LoadedModel.request, prompt=prompt, params=params, dialect=dialect, tools=tools
        )
        return self._stream(make, priority)

    @names_parameters
    def chat(
        self,
        messages: Conversation | Sequence[Conversation],
        params: SamplingParams | Sequence[SamplingParams] | None = None,
        *,
        schema: object = None,
        tools: Sequence[Mapping[str, Any]] | None = None,
        tool_choice: str | Mapping[str, Any] | None = None,
        parallel_tool_calls: bool = True,
        template_args: Mapping[str, Any] | None = None,
        priority: int = 0,
    ) -> PendingCompletions:
        """Answer a conversation, or each of several: await all in order, or iterate over each.

        schema, tools, tool_choice  as for LLM.chat.
        """
        make = partial(
            LoadedModel.chat_requests,
            messages=messages,
            params=params,
            schema=schema,
            tools=tools,
            tool_choice=tool_choice,
            parallel_tool_calls=parallel_tool_calls,
            template_args=template_args,
        )
        return PendingCompletions(self._complete(make, priority))

    @names_parameters
    def stream_chat(
        self,
        messages: Conversation,
        params: SamplingParams | None = None,
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        tool_choice: str | Mapping[str, Any] | None = None,
        parallel_tool_calls: bool = True,
        template_args: Mapping[str, Any] | None = None,
        priority: int = 0,
    ) -> AsyncGenerator[Chunk, None]:
        """Yield the answer to one conversation piece by piece; leaving the iterator aborts it."""
        make = partial(
            LoadedModel.chat_request,
            messages=messages,
            params=params,
            tools=tools,
            tool_choice=tool_choice,
            parallel_tool_calls=parallel_tool_calls,
            template_args=template_args,
        )
        return self._stream(make, priority)

    @names_parameters
    async def encode_chat(
        self,
        messages: Conversation,
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        add_generation_prompt: bool = True,
        continue_final_message: bool = False,
        template_args: Mapping[str, Any] | None = None,
    ) -> list[int]:
        """Return a conversation as token ids, by the model's chat template."""
        encode = partial(
            LoadedModel.encode_chat,
            messages=messages,
            tools=tools,
            add_generation_prompt=add_generation_prompt,
            continue_final_message=continue_final_message,
            template_args=template_args,
        )
        return await self._in_thread(encode, await self._load())

    async def logits(
        self, token_ids: Sequence[int], positions: Sequence[int] | None = None
    ) -> Tensor:
        """Return float32 logits [positions, V] after each given position (by default all)."""
        ids = checked_ids(token_ids, positions)
        model = await self._load()
        return await model.loop.run_from(lambda: model.client.logits(ids, positions))

    async def close(self) -> None:
        """Abort all requests and free the engine; any event loop may call this."""
        self._is_closed = True
        loading = self._loading
        if loading is None or os.getpid() != self._pid:
            return
        if not loading.done():  # it is left at the next of its tensors
            if _running_loop() is not self._owner:
                return
            await asyncio.wait({loading})
        if loading.exception() is None:
            await asyncio.to_thread(loading.result().close)
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def __aenter__(self) -> AsyncLLM:
        try:
            await self._load()
        except BaseException:
            self._is_closed = True  # so that nothing stays of what is being loaded
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        problem: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    @property
    def _loaded(self) -> LoadedModel:
        """Return the model; EngineDied until it is loaded."""
        if self._loading is None or not self._loading.done():
            raise EngineDied(
                "the model is not loaded yet; use `async with`, or await `start` before"
            )
        return self._loading.result()

    async def _load(self) -> LoadedModel:
        """Return the model once it is loaded: the first call begins that, in a thread."""
        loop = self._checked_loop()
        if self._loading is None:
            self._loading = loop.run_in_executor(self._threads, self._build, loop)
            self._loading.add_done_callback(asyncio.Future.exception)  # it may reach nobody else
        return await asyncio.shield(self._loading)

    def _checked_loop(self) -> asyncio.AbstractEventLoop:
        """Return the running loop; EngineDied where this model can't be used."""
        if os.getpid() != self._pid:  # asked first, for no loop runs in a child of a running one
            raise EngineDied(
                "this AsyncLLM was made before this process was forked and works only in the "
                "process that made it; make a new one here"
            )
        if self._is_closed:
            raise EngineDied("this LLM is closed; make a new one")
        loop = asyncio.get_running_loop()
        self._owner = self._owner or loop
        if loop is not self._owner:
            raise EngineDied(
                "this AsyncLLM belongs to another event loop, which used it first; make one for "
                "each loop, or an LLM, which any thread may call"
            )
        return loop

    def _build(self, loop: asyncio.AbstractEventLoop) -> LoadedModel:
        def telling(tell: Progress | None) -> Progress:
            def note(done: int, total: int) -> None:
                if self._is_closed:
                    raise EngineDied("this LLM is closed; make a new one")
                if tell is not None:
                    loop.call_soon_threadsafe(tell, done, total)

            return note

        progress, captures = telling(self._progress), telling(self._captures)
        model = LoadedModel(self._name, self._revision, self._options, progress, captures)
        if self._is_closed:
            model.close()
        return model

    async def _in_thread(self, make: Callable[[LoadedModel], T], model: LoadedModel) -> T:
        """Run `make`, which tokenizes or renders, in a thread: it is too slow for event loops."""
        return await self._checked_loop().run_in_executor(self._threads, make, model)

    async def _complete(
        self, make: Callable[[LoadedModel], list[SequenceTexts]], priority: int
    ) -> AsyncGenerator[Completion, None]:
        model = await self._load()
        requests = await self._in_thread(make, model)
        completions = model.loop.iterate_from(model.complete_all(requests, priority))
        async with aclosing(completions) as found:
            async for completion in found:
                yield completion

    async def _stream(
        self, make: Callable[[LoadedModel], SequenceTexts], priority: int
    ) -> AsyncGenerator[Chunk, None]:
        model = await self._load()
        texts = await self._in_thread(make, model)
        async with aclosing(model.loop.iterate_from(model.chunks(texts, priority))) as found:
            async for chunk in found:
                yield chunk


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
