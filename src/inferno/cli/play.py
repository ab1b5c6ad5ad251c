"""`inferno play`: chat with a model."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from inferno.cli.download import fetch_draft_if_absent, fetch_if_absent
from inferno.cli.errors import one_line_errors
from inferno.cli.model_options import (
    MODEL_HELP,
    Debug,
    ReasoningEffort,
    Revision,
    Verbose,
    Yes,
    log_to_stderr,
    set_values,
)
from inferno.cli.options import options_of, takes_options
from inferno.cli.terminal import as_text
from inferno.errors import InvalidRequest
from inferno.option_table import Group
from inferno.options import EngineOptions
from inferno.requests import SamplingParams

# Options that matter only where requests share steps, or to those who measure.
_FOR_MANY = ("block_size", "max_num_seqs", "priority_aging", "step_target_ms", "load_format")


@takes_options(EngineOptions, without=_FOR_MANY)
@takes_options(SamplingParams, without=("max_tokens",))
def play(
    model: Annotated[
        str | None,
        typer.Argument(
            help=MODEL_HELP,
            show_default="choose from those on this machine",
        ),
    ] = None,
    system: Annotated[str, typer.Option(help="The system prompt.", show_default="none")] = "",
    tools: Annotated[
        Path | None,
        typer.Option(
            help="A JSON file of tools, as OpenAI's API takes them; you give the results of calls.",
            show_default="none",
        ),
    ] = None,
    max_tokens: Annotated[
        int | None,
        typer.Option(
            help="Tokens of an answer at most.",
            show_default="the rest of the context",
            rich_help_panel=Group.SAMPLING,
        ),
    ] = None,
    reasoning_effort: ReasoningEffort = None,
    revision: Revision = None,
    yes: Yes = False,
    verbose: Verbose = False,
    debug: Debug = False,
    **given: Any,
) -> None:
    """Chat with a model. With a pipe for input, each line is a message."""
    with one_line_errors(debug=debug):
        if verbose:
            log_to_stderr()
        options = {
            **options_of(EngineOptions, given),
            "max_num_seqs": 1,  # the KV cache then holds one conversation
        }
        if revision is not None and model is None:
            raise InvalidRequest(
                "--revision goes with a model's Hugging Face id: name the model", param="revision"
            )
        sampling = set_values(max_tokens=max_tokens, **options_of(SamplingParams, given))
        SamplingParams(**sampling)  # refuses bad values before the model is loaded
        # Imported now: together its modules take longer than `inferno --help` may.
        from inferno.cli.chat.start import start  # noqa: PLC0415
        from inferno.cli.chat.tools import read_tools_file  # noqa: PLC0415

        found = None if tools is None else read_tools_file(tools)
        if model is not None:
            fetch_if_absent(model, revision, yes=yes, options=options)
        fetch_draft_if_absent(options, yes=yes)
        if not start(
            model,
            {"revision": revision, **options},
            sampling,
            as_text(system),
            reasoning_effort,
            found,
        ):
            raise typer.Exit(1)
