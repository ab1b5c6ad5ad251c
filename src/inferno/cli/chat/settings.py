"""The sampling parameters that `/set` shows and changes."""

from __future__ import annotations

import difflib
import json
import re
from dataclasses import replace
from typing import Any

from inferno.errors import InvalidRequest
from inferno.requests import SamplingParams

SETTINGS = (
    "temperature",
    "top_p",
    "top_k",
    "min_p",
    "repetition_penalty",
    "presence_penalty",
    "frequency_penalty",
    "max_tokens",
    "seed",
    "stop",
)
_OPTIONAL = ("max_tokens", "seed")
_WORD = re.compile(r'"(?:[^"\\]|\\.)*"|\S+')


def describe_settings(params: SamplingParams) -> str:
    """Return one line per setting."""
    return "\n".join(f"{name} {_shown(getattr(params, name))}" for name in SETTINGS)


def change_setting(
    params: SamplingParams, defaults: SamplingParams, name: str, text: str
) -> SamplingParams:
    """Return the parameters with one of them set; InvalidRequest says what was expected instead.

    `default` restores what the conversation began with, `none` switches an optional one off.
    """
    if name not in SETTINGS:
        raise InvalidRequest(f"there is no setting {name!r}{_hint(name)}", param=name)
    if text == "default":
        return _changed(params, name, getattr(defaults, name))
    if name == "stop":
        return _changed(params, name, () if text == "none" else _texts(text))
    if name in _OPTIONAL and text == "none":
        return _changed(params, name, None)
    try:
        return _changed(params, name, _number(text))
    except InvalidRequest as problem:
        choices = ", none or default" if name in _OPTIONAL else " or default"
        raise InvalidRequest(str(problem).replace(", not", f"{choices}, not", 1)) from None


def _changed(params: SamplingParams, name: str, value: Any) -> SamplingParams:
    return replace(params, **{name: value})


def _shown(value: object) -> str:
    if isinstance(value, tuple):
        return " ".join(json.dumps(text, ensure_ascii=False) for text in value) or "none"
    return "none" if value is None else f"{value:g}" if isinstance(value, float) else str(value)


def _hint(name: str) -> str:
    names = (*SETTINGS, "context")  # the conversation's, which /set changes as well
    near = difflib.get_close_matches(name, names, n=1)
    return f"; did you mean {near[0]}?" if near else f". There are {', '.join(names)}."


def _number(text: str) -> int | float | str:
    """Return the number that a text spells, or the text, for SamplingParams to refuse."""
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def _texts(words: str) -> tuple[str, ...]:
    """Split words at spaces, or between quotes as JSON writes them."""
    try:
        return tuple(
            str(json.loads(word)) if word.startswith('"') else word for word in _WORD.findall(words)
        )
    except ValueError:
        raise InvalidRequest(
            f'stop must be texts such as END or "two words\\n", not {words}', param="stop"
        ) from None
