"""Fields that clients know and inferno doesn't do: taken only where they would change nothing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from inferno.server.edge import Refusal

# The values beside null that a field may have.
Harmless = Mapping[str, tuple[Any, ...]]

_EVERYWHERE: Harmless = {
    "response_format": ({"type": "text"},),
    "structured_outputs": (),
    "thinking_token_budget": (),
    "logprob_token_ids": (),
    "spaces_between_special_tokens": (True,),
    "use_beam_search": (False,),
    "length_penalty": (1.0,),
    "best_of": (1,),
    "watermarking": (False,),
    "repetition_detection": (),
    "return_token_offsets": (False,),
    "routed_experts_prompt_start": (0,),
    "mm_payload": (),
    "return_mm_kwargs": (False,),
    "media_io_kwargs": (),
    "mm_processor_kwargs": (),
    "kv_transfer_params": (),
    "ec_transfer_params": (),
    "vllm_xargs": (),
}

CHAT: Harmless = {
    **_EVERYWHERE,
    "tools": (),
    "tool_choice": ("none",),
    "parallel_tool_calls": (True,),
    "functions": (),
    "function_call": ("none",),
    "add_special_tokens": (False,),
    "return_prompt_text": (False,),
    "audio": (),
    "modalities": (["text"],),
    "moderation": (),
    "prediction": (),
    "prompt_cache_options": (),
    "prompt_cache_retention": (),
    "web_search_options": (),
}

COMPLETION: Harmless = {**_EVERYWHERE, "suffix": (), "prompt_embeds": ()}

TOKENIZE: Harmless = {
    "tools": (),
    "media_io_kwargs": (),
    "mm_processor_kwargs": (),
}

NOTHING: Harmless = {}


def take_harmless(fields: dict[str, Any], refused: Harmless) -> dict[str, Any]:
    """Return the other fields; raise Refusal where a refused one would have to do something."""
    for name in refused.keys() & fields.keys():
        value = fields[name]
        if not any(_is_same(value, each) for each in refused[name]):
            allowed = " or ".join(["null", *map(_as_json, refused[name])])
            raise Refusal(
                400,
                "unsupported_parameter",
                f"'{name}' is not supported here: leave it out, or give {allowed}.",
                param=name,
            )
    return {name: value for name, value in fields.items() if name not in refused}


def _is_same(value: Any, other: Any) -> bool:
    return isinstance(value, bool) == isinstance(other, bool) and bool(value == other)


def _as_json(value: Any) -> str:
    match value:
        case True | False:
            return str(value).lower()
        case {"type": kind}:
            return f'{{"type": "{kind}"}}'
        case [item]:
            return f'["{item}"]'
        case str():
            return f'"{value}"'
    return str(value)
