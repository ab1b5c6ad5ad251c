"""Define LLM: text in, text out, for callers that block."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Generator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, TypedDict, TypeVar, Unpack

from torch import Tensor

from inferno.engine.execution.footprint import Footprint
from inferno.loaded_model import Conversation, LoadedModel, Prompt, checked_ids, in_order
from inferno.option_table import table
from inferno.options import EngineOptions
from inferno.parameters import names_fields, names_parameters
from inferno.requests import SamplingParams
from inferno.text.completion import Chunk, Completion
from inferno.text.parsers.choose import Dialect

F = TypeVar("F", bound=Callable[..., Any])


class EngineKeywords(TypedDict, total=False):
    """The options of EngineOptions that `LLM` takes, for type checkers."""

    device: str
    threads: int | None
    dtype: str
    quantize: str
    activations: str
    attention: str
    batch_invariant: bool
    load_format: str
    chat_template: Path | None
    allow_unknown_config: bool
    memory: str | None
    gpu_memory_utilization: float | None
    kv_dtype: str
    block_size: int
    num_blocks: int | None
    max_model_len: int | None
    max_num_seqs: int
    max_num_batched_tokens: int
    priority_aging: float
    step_target_ms: float | str
    prefix_cache: bool
    preemption: str
    swap_space: float
    speculative: str
    num_speculative_tokens: int | str
    speculative_model: Path | None
    speculative_early_layers: int | None
    graphs: bool
    capture_graphs: str


def takes_engine_options(function: F) -> F:
    """Give a function with `**options: Unpack[EngineKeywords]` a signature with all options."""
    signature = inspect.signature(function)
    kept = [each for each in signature.parameters.values() if each.kind is not each.VAR_KEYWORD]
    options = [
        inspect.Parameter(
            row.name, inspect.Parameter.KEYWORD_ONLY, default=row.default, annotation=row.hint
        )
        for row in table(EngineOptions).values()
        if row.name in EngineKeywords.__annotations__
    ]
    function.__signature__ = signature.replace(parameters=[*kept, *options])  # type: ignore[attr-defined]
    return function


@names_fields
class LLM:
    """A model ready to generate. Use it as a context manager, or `close` it.

    model       a model's folder, a Hugging Face id, or `demo`, the embedded model.
    revision    of a Hugging Face id: a branch, tag or commit.
    progress    called with (done, total) bytes while weights load.
    captures    called with (done, total) steps while they are recorded, if capture_graphs is start.
    The other arguments are EngineOptions' fields. Raises ModelError, DeviceUnavailable,
    NotEnoughMemory, InvalidRequest. Several threads may use it: their requests share batches.
    """

    @takes_engine_options
    def __init__(
        self,
        model: str | Path = "demo",
        *,
        revision: str | None = None,
        progress: Callable[[int, int], None] | None = None,
        captures: Callable[[int, int], None] | None = None,
        **options: Unpack[EngineKeywords],
    ) -> None:
        engine_options = EngineOptions(model=Path(model), **options)
        self._model = LoadedModel(str(model), revision, engine_options, progress, captures)
        self._client = self._model.client
        self._text = self._model.text
        self._loop = self._model.loop
        self.tokenizer = self._text.tokenizer
        self.dialect = self._text.dialect
        self.default_params = self._model.default_params

    def __repr__(self) -> str:
        """Return the model and its arguments, with the values in use."""
        return f"LLM{self._model!r}"

    @property
    def vocab_size(self) -> int:
        """Return the number of values in a row of the model's logits."""
        return self._client.vocab_size

    @property
    def max_model_len(self) -> int:
        """Return the context: prompt and new tokens together."""
        return self._client.max_model_len

    @property
    def footprint(self) -> Footprint:
        """Return device and dtype, and the memory that weights and KV cache take."""
        return self._client.footprint

    @property
    def has_chat_template(self) -> bool:
        """Return whether `chat` and `encode_chat` work with this model."""
        return self._text.has_chat_template

    @names_parameters
    def generate(
        self,
        prompts: Prompt | Sequence[Prompt],
        params: SamplingParams | Sequence[SamplingParams] | None = None,
        *,
        priority: int = 0,
        dialect: Dialect = Dialect.PLAIN,
    ) -> list[Completion]:
        """Complete prompts together; n completions each, in the order of the prompts.

        A prompt is text or token ids. `params` are for all prompts, or a list with one for each
        prompt; by default the model's own are used. Raises InvalidRequest or NeverFits for a prompt
        that the engine refuses.

        >>> [answer] = llm.generate("Once upon a time", SamplingParams(max_tokens=8))
        >>> answer.usage.completion_tokens
        8
        """
        return in_order(self.as_completed(prompts, params, priority=priority, dialect=dialect))

    @names_parameters
    def as_completed(
        self,
        prompts: Prompt | Sequence[Prompt],
        params: SamplingParams | Sequence[SamplingParams] | None = None,
        *,
        priority: int = 0,
        dialect: Dialect = Dialect.PLAIN,
    ) -> Generator[Completion, None, None]:
        """Yield the completions of `generate`, each when it is done."""
        requests = self._model.requests(prompts, params, dialect)
        return self._loop.iterate(self._model.complete_all(requests, priority))

    @names_parameters
    def stream(
        self,
        prompt: Prompt,
        params: SamplingParams | None = None,
        *,
        priority: int = 0,
        dialect: Dialect = Dialect.PLAIN,
        tools: Sequence[Mapping[str, Any]] | None = None,
    ) -> Generator[Chunk, None, None]:
        """Yield the completion of one prompt piece by piece; leaving the iterator aborts it.

        tools       the tools that `encode_chat` has shown in the prompt: calls of these tools are
                    set apart from the text.

        >>> chunks = list(llm.stream("Once upon a time", SamplingParams(max_tokens=8)))
        >>> "".join(chunk.text for chunk in chunks) == chunks[-1].completion.text
        True
        """
        texts = self._model.request(prompt, params, dialect, tools)
        return self._loop.iterate(self._model.chunks(texts, priority))

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
    ) -> list[Completion]:
        """Answer a conversation, or each of several, n times.

        schema      the type of the answers: a Pydantic model, or a JSON Schema as a mapping. The
                    completions' `parsed` are values of it.
        tools       functions that the model may call, as OpenAI's API takes them.
        tool_choice `auto`, `none`, `required`, or a named function, as in OpenAI's API.

        Raises TemplateError as well.

        >>> hello = [{"role": "user", "content": "Hello!"}]
        >>> [first, second] = llm.chat([hello, hello], SamplingParams(temperature=0.0))
        >>> first.text == second.text
        True
        """
        requests = self._model.chat_requests(
            messages,
            params,
            schema=schema,
            tools=tools,
            tool_choice=tool_choice,
            parallel_tool_calls=parallel_tool_calls,
            template_args=template_args,
        )
        completions = self._loop.iterate(self._model.complete_all(requests, priority))
        return in_order(completions)

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
    ) -> Generator[Chunk, None, None]:
        """Yield the answer to one conversation piece by piece; leaving the iterator aborts it.

        >>> hello = [{"role": "user", "content": "Hello!"}]
        >>> answer = [chunk.text for chunk in llm.stream_chat(hello)]
        """
        texts = self._model.chat_request(
            messages,
            params,
            tools=tools,
            tool_choice=tool_choice,
            parallel_tool_calls=parallel_tool_calls,
            template_args=template_args,
        )
        return self._loop.iterate(self._model.chunks(texts, priority))

    @names_parameters
    def encode_chat(
        self,
        messages: Conversation,
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        add_generation_prompt: bool = True,
        continue_final_message: bool = False,
        template_args: Mapping[str, Any] | None = None,
    ) -> list[int]:
        """Return a conversation as token ids, by the model's chat template."""
        return self._model.encode_chat(
            messages,
            tools=tools,
            add_generation_prompt=add_generation_prompt,
            continue_final_message=continue_final_message,
            template_args=template_args,
        )

    def takes_template_arg(self, name: str) -> bool:
        """Return whether the model's chat template reads a value of that name in template_args."""
        return self._text.takes_template_arg(name)

    def logits(self, token_ids: Sequence[int], positions: Sequence[int] | None = None) -> Tensor:
        """Return float32 logits [positions, V] after each given position (by default all).

        Computed through the engine's paged path, without the prefix cache.
        """
        ids = checked_ids(token_ids, positions)
        return self._loop.run(lambda: self._client.logits(ids, positions))

    def close(self) -> None:
        """Abort all requests and free the engine."""
        self._model.close()

    def __enter__(self) -> LLM:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        problem: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
