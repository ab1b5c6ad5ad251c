"""From the options of `inferno play` to a conversation."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import inferno
from inferno.cli.chat import interactive, plain
from inferno.cli.chat.choose import choose_model
from inferno.cli.chat.session import Session
from inferno.cli.chat.stats import size
from inferno.cli.manners import say
from inferno.cli.model_options import load_model, template_args
from inferno.errors import TemplateError


def start(
    model: str | None,
    options: Mapping[str, Any],
    sampling: Mapping[str, Any],
    system: str,
    reasoning_effort: str | None,
) -> bool:
    """Load the model and converse until the end; False if a message could not be answered.

    Without a model the person chooses; options are LLM's, sampling is SamplingParams'.
    """
    has_terminal = _has_terminal()
    name, folder = (model, model) if model else choose_model(may_ask=has_terminal)
    with load_model(folder, **options) as llm:
        if not llm.has_chat_template:
            raise TemplateError(
                f"{name} has no chat template, so it can't chat; "
                f"`inferno generate --model {folder} --prompt TEXT` continues a text"
            )
        params = replace(llm.default_params, **{"max_tokens": None, **sampling})
        session = Session(llm, name, params, system, template_args(llm, reasoning_effort))
        if has_terminal:
            interactive.converse(session, _banner(llm, name))
            return True
        say(_banner(llm, name))
        return plain.converse(session)


def _has_terminal() -> bool:
    """Return whether a person types and reads, on a terminal that can move its cursor."""
    streams = (sys.stdin, sys.stdout)
    is_interactive = all(stream is not None and stream.isatty() for stream in streams)
    return is_interactive and os.environ.get("TERM", "dumb") != "dumb"


def _banner(llm: inferno.LLM, name: str) -> str:
    footprint = llm.footprint
    return (
        f"{name} · {footprint.device}, {footprint.dtype} · "
        f"weights {size(footprint.weights_bytes)} · KV cache {size(footprint.kv_cache_bytes)} "
        f"in {footprint.kv_dtype} · context {llm.max_model_len} tokens"
    )
