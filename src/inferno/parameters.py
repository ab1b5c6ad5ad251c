"""Answer unknown parameters, such as other libraries' names, with inferno's own name."""

from __future__ import annotations

import difflib
import functools
import inspect
from collections.abc import Callable, Collection
from typing import Any, Concatenate, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")
C = TypeVar("C", bound=type)

# Names that other libraries (vLLM, transformers, llama.cpp, OpenAI's client) have for ours.
OURS = {
    # a model and its engine
    "attention_backend": "attention",
    "attn_implementation": "attention",
    "device_map": "device",
    "enable_prefix_caching": "prefix_cache",
    "kv_cache_dtype": "kv_dtype",
    "kv_cache_memory_bytes": "num_blocks",
    "load_in_4bit": "quantize",
    "load_in_8bit": "quantize",
    "max_batch_size": "max_num_seqs",
    "max_context_len": "max_model_len",
    "max_seq_len": "max_model_len",
    "model_id": "model",
    "model_name": "model",
    "model_path": "model",
    "n_batch": "max_num_batched_tokens",
    "n_ctx": "max_model_len",
    "n_threads": "threads",
    "num_gpu_blocks_override": "num_blocks",
    "num_threads": "threads",
    "preemption_mode": "preemption",
    "pretrained_model_name_or_path": "model",
    "quantization": "quantize",
    "quantization_config": "quantize",
    "torch_dtype": "dtype",
    # how tokens are chosen
    "bad_words_ids": "bad_words",
    "best_of": "n",
    "eos_token_id": "stop_token_ids",
    "include_stop_str_in_output": "include_stop_in_output",
    "max_completion_tokens": "max_tokens",
    "max_length": "max_tokens",
    "max_new_tokens": "max_tokens",
    "min_length": "min_tokens",
    "min_new_tokens": "min_tokens",
    "n_predict": "max_tokens",
    "num_return_sequences": "n",
    "output_scores": "logprobs",
    "repeat_penalty": "repetition_penalty",
    "stop_sequences": "stop",
    "stop_strings": "stop",
    "stopping_criteria": "stop",
    "top_logprobs": "logprobs",
    # a call
    "chat_template_kwargs": "template_args",
    "conversation": "messages",
    "conversations": "messages",
    "generation_config": "params",
    "guided_decoding": "structured",
    "input_ids": "prompts",
    "inputs": "prompts",
    "prompt_token_ids": "prompts",
    "response_format": "structured",
    "sampling_params": "params",
    "structured_outputs": "structured",
    "text": "prompts",
    "text_inputs": "prompts",
}

_IN_STRUCTURED = (
    "give `structured=StructuredOutput(json=..., regex=..., choice=...)` in SamplingParams"
)
_NO_BEAMS = "inferno samples and has no beam search; `n` gives several outputs"
_ONE_DEVICE = "a model runs on one `device`; leave it out"
_NO_CODE = "inferno never runs a model's own code; leave it out"
_NO_ADAPTERS = "inferno loads no adapters; merge them into the weights before"
_IN_ENCODE_CHAT = "`encode_chat` has it; give its token ids to `generate`"
_IN_ENVIRONMENT = "set HF_TOKEN or INFERNO_HOME in the environment"
_NO_GRAPHS = "`graphs=False` runs every step from Python"
_NOT_NEEDED = "it is not needed here; leave it out"
_USE_STREAM = "call `stream`, or `stream_chat`, for an output piece by piece"

# Parameters of other libraries that we don't have, and what to do about it.
ABSENT = {
    "add_generation_prompt": _IN_ENCODE_CHAT,
    "add_special_tokens": "give the prompt as token ids to choose them yourself",
    "cache_dir": _IN_ENVIRONMENT,
    "continue_final_message": _IN_ENCODE_CHAT,
    "cpu_offload_gb": "a model has to fit into its device's memory; `quantize` makes it smaller",
    "detokenize": _NOT_NEEDED,
    "disable_log_stats": _NOT_NEEDED,
    "do_sample": "`temperature=0.0` in SamplingParams is greedy, any other samples",
    "download_dir": _IN_ENVIRONMENT,
    "early_stopping": _NO_BEAMS,
    "enable_chunked_prefill": "prompts are always cut into chunks; leave it out",
    "enable_lora": _NO_ADAPTERS,
    "disable_cuda_graph": _NO_GRAPHS,
    "eager": _NO_GRAPHS,
    "enforce_eager": _NO_GRAPHS,
    "guided_choice": _IN_STRUCTURED,
    "guided_grammar": _IN_STRUCTURED,
    "guided_json": _IN_STRUCTURED,
    "guided_regex": _IN_STRUCTURED,
    "hf_token": _IN_ENVIRONMENT,
    "length_penalty": _NO_BEAMS,
    "logits_processor": "`logit_bias`, `bad_words` and `allowed_token_ids` steer tokens",
    "logits_processors": "`logit_bias`, `bad_words` and `allowed_token_ids` steer tokens",
    "lora_request": _NO_ADAPTERS,
    "low_cpu_mem_usage": _NOT_NEEDED,
    "max_seq_len_to_capture": _NOT_NEEDED,
    "n_gpu_layers": _ONE_DEVICE,
    "no_repeat_ngram_size": "`repetition_penalty` and `frequency_penalty` keep from repeating",
    "num_beams": _NO_BEAMS,
    "pad_token_id": _NOT_NEEDED,
    "pipeline_parallel_size": _ONE_DEVICE,
    "request_id": "requests get ids of their own; leave it out",
    "speculative_config": "give `speculative`, or a draft as `speculative_model`",
    "stream": _USE_STREAM,
    "streamer": _USE_STREAM,
    "tensor_parallel_size": _ONE_DEVICE,
    "token": _IN_ENVIRONMENT,
    "tokenizer": "the tokenizer is the one in the model's folder; leave it out",
    "tokenizer_mode": _NOT_NEEDED,
    "trust_remote_code": _NO_CODE,
    "truncate_prompt_tokens": "cut the prompt's token ids yourself, and give those",
    "use_beam_search": _NO_BEAMS,
    "use_cache": _NOT_NEEDED,
    "use_tqdm": "nothing is drawn; `as_completed` tells of each completion when it is done",
}

_homes: dict[str, str] = {}  # what classes are built with: the first one that takes it
_CLOSE = 0.6


def names_parameters(function: Callable[P, T]) -> Callable[P, T]:
    """Have a function answer unknown keywords with a TypeError that names the right one."""
    known = _keywords(function)

    @functools.wraps(function)
    def checked(*args: P.args, **kwargs: P.kwargs) -> T:
        if not kwargs.keys() <= known:
            unknown = next(name for name in kwargs if name not in known)
            raise TypeError(_answer(_spoken(function), unknown, known))
        return function(*args, **kwargs)

    return checked


def names_fields(kind: C) -> C:
    """Apply `names_parameters` to a class's constructor; other errors then name the class."""
    init: Callable[..., None] = kind.__init__  # type: ignore[misc]
    kind.__init__ = names_parameters(init)  # type: ignore[misc]
    for name in _keywords(init):
        _homes.setdefault(name, kind.__name__)
    return kind


def _keywords(function: Callable[..., Any]) -> frozenset[str]:
    return frozenset(inspect.signature(function).parameters) - {"self"}


def _spoken(function: Callable[..., Any]) -> str:
    return function.__qualname__.removesuffix(".__init__") + "()"


def _answer(callee: str, name: str, known: Collection[str]) -> str:
    words = f"{callee} has no parameter `{name}`"
    ours = _ours(name, known)
    if ours in known:
        return f"{words}: it is called `{ours}` here"
    if (written := _written(ours, known)) is not None:
        return f"{words}: give {written}"
    if name in ABSENT:
        return f"{words}: {ABSENT[name]}"
    if close := difflib.get_close_matches(name, {*known, *OURS, *_homes, *ABSENT}, 1, _CLOSE):
        meant = _ours(close[0], known)
        shown, reason = _written(meant, known) or f"`{meant}`", ABSENT.get(meant)
        return f"{words}: did you mean {shown}?" + (f" If so: {reason}" if reason else "")
    return f"{words}; it has " + ", ".join(f"`{each}`" for each in sorted(known))


def _ours(name: str, known: Collection[str]) -> str:
    """Return what a parameter is called here, if it is called otherwise elsewhere."""
    ours = OURS.get(name, name)
    return "prompt" if ours == "prompts" and "prompt" in known else ours


def _written(ours: str, known: Collection[str]) -> str | None:
    """Return how a parameter of ours is to be given; None where there is no such parameter."""
    if ours in known:
        return f"`{ours}`"
    if _homes.get(ours) == "SamplingParams":
        return f"params=SamplingParams({ours}=...)"
    return f"{_homes[ours]}(..., {ours}=...)" if ours in _homes else None


def takes_as(
    other: Callable[Concatenate[Any, P], None],
) -> Callable[[Callable[..., None]], Callable[Concatenate[Any, P], None]]:
    """Give a method that passes on its arguments the signature of the function that reads them."""

    def with_signature(function: Callable[..., None]) -> Callable[Concatenate[Any, P], None]:
        vars(function)["__signature__"] = inspect.signature(other)
        return function

    return with_signature
