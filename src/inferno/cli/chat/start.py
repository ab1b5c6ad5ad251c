"""From the options of `inferno play` to a conversation, with a model that the person may choose."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import typer

import inferno
from inferno.cli.chat import interactive, plain
from inferno.cli.chat.session import Session
from inferno.cli.download import fetch_if_absent
from inferno.cli.errors import say
from inferno.cli.model_options import load_model, template_args
from inferno.cli.terminal import safe_text
from inferno.engine.build import problem_with
from inferno.errors import InvalidRequest, ModelError, TemplateError
from inferno.hub.facts import read_template
from inferno.hub.local import LocalModel, local_models
from inferno.machine import own_memory, readable_size
from inferno.text.tools import Tools

_EMBEDDED = {
    "demo": "embedded: stories, small talk, sums",
    "demo-draft": "embedded: guesses demo's answers, not for chats",
}


def start(
    model: str | None,
    options: Mapping[str, Any],
    sampling: Mapping[str, Any],
    system: str,
    reasoning_effort: str | None,
    tools: Tools | None,
) -> bool:
    """Load the model and converse until the end; False if a message could not be answered.

    Without a model the person chooses; options are LLM's, sampling is SamplingParams'.
    """
    has_terminal = _has_terminal()
    if model:
        name = model
    else:
        needs_template = options.get("chat_template") is None
        name, revision = choose_model(may_ask=has_terminal, needs_template=needs_template)
        fetch_if_absent(name, revision, yes=False)  # where it turns out to be damaged
        options = {**options, "revision": revision}
    with load_model(name, **options) as llm:
        if not llm.has_chat_template:
            raise TemplateError(
                f"{name} has no chat template, so it can't chat; "
                f"`inferno generate --model {name} --prompt TEXT` continues a text"
            )
        params = replace(llm.default_params, **{"max_tokens": None, **sampling})
        session = Session(llm, name, params, system, template_args(llm, reasoning_effort), tools)
        if tools is not None:
            _check_tools(llm, name, tools)
        if has_terminal:
            interactive.converse(session, _banner(llm, name))
            return True
        say(_banner(llm, name))
        return plain.converse(session)


def _check_tools(llm: inferno.LLM, name: str, tools: Tools) -> None:
    """Refuse tools that the model's chat template takes not at all, or fails on."""
    try:
        llm.encode_chat([{"role": "user", "content": "Hello"}], tools=tools.for_template())
    except InvalidRequest as problem:
        raise InvalidRequest(f"{name}: {problem}", param="tools") from None


def _has_terminal() -> bool:
    """Return whether a person types and reads, on a terminal that can move its cursor."""
    streams = (sys.stdin, sys.stdout)
    is_interactive = all(stream is not None and stream.isatty() for stream in streams)
    return is_interactive and os.environ.get("TERM", "dumb") != "dumb"


def _banner(llm: inferno.LLM, name: str) -> str:
    footprint, own = llm.footprint, own_memory()
    taken = "" if own is None else f"process {readable_size(own)} · "
    return (
        f"{name} · {footprint.device}, {footprint.dtype} · "
        f"weights {readable_size(footprint.weights_bytes)} · "
        f"KV cache {readable_size(footprint.kv_cache_bytes)} in {footprint.kv_dtype} · "
        f"{taken}context {llm.max_model_len} tokens"
    )


def choose_model(*, may_ask: bool, needs_template: bool = True) -> tuple[str, str | None]:
    """Return name and revision of the model that the person picks; of `demo` without a choice.

    needs_template  whether models without a chat template are left out.
    """
    models = local_models()
    runnable = [model for model in models if problem_with(model.folder) is None]
    usable = [model for model in runnable if not needs_template or _has_template(model)]
    if not may_ask:
        say("no model was named: this is demo, the embedded one")
        chosen = usable[0]
    elif len(usable) == 1:
        say(f"{usable[0].name} is the only model on this machine that can chat")
        chosen = usable[0]
    else:
        left_out = {
            "not supported": len(models) - len(runnable),
            "no chat template": len(runnable) - len(usable),
        }
        _show(usable, left_out)
        chosen = _ask(usable)
    return chosen.name, chosen.revision


def _has_template(model: LocalModel) -> bool:
    try:
        return read_template(model.folder) is not None
    except ModelError:
        return False


def _show(models: Sequence[LocalModel], left_out: Mapping[str, int]) -> None:
    """Print the models that can be chosen, and how many can't for which reason."""
    width = max(len(model.name) for model in models)
    for number, model in enumerate(models, start=1):
        what = _EMBEDDED.get(model.name, model.architecture)
        _print(f"{number:>3}  {model.name:<{width}}  {readable_size(model.num_bytes):>7}  {what}")
    for why, count in left_out.items():
        if count:
            _print(f"     ({count} more on this machine: {why})")


def _ask(models: Sequence[LocalModel]) -> LocalModel:
    by_answer = {str(number): model for number, model in enumerate(models, start=1)}
    by_answer |= {model.name: model for model in models} | {"": models[0]}
    while True:
        try:
            answer = input("Which one? [1] ").strip()
        except EOFError:
            _print("")  # the cursor is behind the question
            raise typer.Exit from None
        if answer in by_answer:
            return by_answer[answer]
        _print(f"give a number from 1 to {len(models)}, or press Enter for 1")


def _print(line: str) -> None:
    print(safe_text(line, sys.stdout.encoding))
