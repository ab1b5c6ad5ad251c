"""The options that commands share: how a model is loaded and how its tokens are chosen."""

from __future__ import annotations

import gc
import logging
import sys
from contextlib import ExitStack
from enum import StrEnum
from typing import Annotated, Any

import typer

import inferno
from inferno.cli.terminal import loading_bar
from inferno.errors import InvalidRequest
from inferno.gguf.file import held_headers
from inferno.hub.find import find_model_folder
from inferno.option_table import Group
from inferno.torch_start import loading_libraries

MODEL_HELP = (
    "A model's folder, a GGUF file, a Hugging Face id, OWNER/NAME:FILE for one of its GGUF files, "
    "or demo (embedded)."
)

Effort = StrEnum("Effort", ["none", "low", "medium", "high"])

ReasoningEffort = Annotated[
    Effort | None,
    typer.Option(
        help="How much a model that can reason does.",
        show_default="the model's",
        rich_help_panel=Group.SAMPLING,
    ),
]
Revision = Annotated[
    str | None,
    typer.Option(help="Branch, tag or commit of a Hugging Face id.", rich_help_panel=Group.MODEL),
]
Yes = Annotated[
    bool,
    typer.Option(
        "--yes",
        help="Download a model that is not here without asking.",
        rich_help_panel=Group.MODEL,
    ),
]
Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Log what the engine chooses.")]
Debug = Annotated[bool, typer.Option("--debug", help="Show tracebacks.")]


def template_args(llm: inferno.LLM, effort: str | None) -> dict[str, Any]:
    """Return the chat template's argument for --reasoning-effort; InvalidRequest without one."""
    if effort is None:
        return {}
    name, value = ("enable_thinking", False) if effort == "none" else ("reasoning_effort", effort)
    if not llm.takes_template_arg(name):
        raise InvalidRequest(
            f"--reasoning-effort {effort} is no choice of this model's chat template; leave it out",
            param="reasoning_effort",
        )
    return {name: value}


def set_values(**values: Any) -> dict[str, Any]:
    """Return the options that were given: the model's own defaults fill the gaps."""
    return {name: value for name, value in values.items() if value is not None}


def log_to_stderr() -> None:
    """Show what the engine chooses, for --verbose."""
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stderr)


def load_model(model: str, revision: str | None = None, **options: Any) -> inferno.LLM:
    """Return the model, loaded under a progress bar; options are those of LLM."""
    with loading_bar() as progress, ExitStack() as held:
        with loading_libraries():
            held.enter_context(held_headers(find_model_folder(model, revision)))
        llm = inferno.LLM
        # Imported now: it brings PyTorch, which --help doesn't wait for.
        from inferno.engine.warm_up import telling_of_first_kernels  # noqa: PLC0415

        # What came with PyTorch stays: each look through it for garbage takes a tenth of a second.
        gc.freeze()
        with telling_of_first_kernels(
            options.get("device", "cpu"),
            lambda name, count: progress.tell(f"making kernels ready: {count}, {name}"),
        ):
            return llm(
                model,
                revision=revision,
                progress=progress,
                captures=progress.note_capture,
                **options,
            )
