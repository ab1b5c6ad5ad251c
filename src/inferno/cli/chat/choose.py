"""Choose the model to chat with, where none was named."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import typer

from inferno.cli.chat.stats import size
from inferno.cli.manners import say
from inferno.cli.terminal import safe_text
from inferno.engine.assemble import problem_with
from inferno.hub.local import LocalModel, local_models

_EMBEDDED = {
    "demo": "embedded: stories, small talk, sums",
    "demo-draft": "embedded: guesses demo's answers, not for chats",
}


def choose_model(*, may_ask: bool) -> tuple[str, str]:
    """Return name and folder of the model that the person picks, or of `demo` without a choice."""
    models = local_models()
    usable = [model for model in models if problem_with(model.folder) is None]
    if not may_ask:
        say("no model was named: this is demo, the embedded one")
        chosen = usable[0]
    elif len(usable) == 1:
        say(f"{usable[0].name} is the only model on this machine that inferno can run")
        chosen = usable[0]
    else:
        _show(usable, num_unusable=len(models) - len(usable))
        chosen = _ask(usable)
    return chosen.name, str(chosen.folder)


def _show(models: Sequence[LocalModel], *, num_unusable: int) -> None:
    width = max(len(model.name) for model in models)
    for number, model in enumerate(models, start=1):
        what = _EMBEDDED.get(model.name, model.architecture)
        _print(f"{number:>3}  {model.name:<{width}}  {size(model.num_bytes):>7}  {what}")
    if num_unusable:
        _print(f"     ({num_unusable} more in the Hugging Face cache: not supported)")


def _ask(models: Sequence[LocalModel]) -> LocalModel:
    by_answer = {str(number): model for number, model in enumerate(models, start=1)}
    by_answer |= {model.name: model for model in models} | {"": models[0]}
    while True:
        try:
            answer = input("Which one? [1] ").strip()
        except EOFError:
            raise typer.Exit from None
        if answer in by_answer:
            return by_answer[answer]
        _print(f"give a number from 1 to {len(models)}, or press Enter for 1")


def _print(line: str) -> None:
    print(safe_text(line, sys.stdout.encoding))
