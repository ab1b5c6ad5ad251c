"""`inferno verify`: prove, checkpoint by checkpoint, that a model's forward pass is right."""

from __future__ import annotations

import json
import sys
from dataclasses import fields
from pathlib import Path
from typing import Annotated, Any

import typer

from inferno import verify as verification
from inferno.cli.errors import one_line_errors
from inferno.cli.model_options import (
    MODEL_HELP,
    Debug,
    Revision,
)
from inferno.cli.options import options_of, takes_options
from inferno.cli.terminal import print_text, telling, terminal_size
from inferno.errors import InvalidRequest
from inferno.hub.find import find_model_folder
from inferno.options import EngineOptions
from inferno.verify.options import VerifyOptions
from inferno.verify.report import as_json as report_as_json
from inferno.verify.report import as_table

_NUM_SCHEDULES = 8  # of --speculative: 96 requests


@takes_options(
    EngineOptions,
    only=(
        *("device", "threads", "dtype", "quantize", "allow_unknown_config", "graphs"),
        *("memory", "gpu_memory_utilization", "num_blocks", "max_model_len"),
        *("max_num_batched_tokens", "preemption", "swap_space"),
        *("num_speculative_tokens", "speculative_model", "speculative_early_layers"),
    ),
)
def verify(
    model: Annotated[str, typer.Argument(help=MODEL_HELP)],
    against: Annotated[
        str,
        typer.Option(
            help="The oracle: reference, transformers, llama.cpp (of a GGUF file), cpu, or a file "
            "written with --save."
        ),
    ] = "reference",
    prompt: Annotated[
        str | None, typer.Option("--prompt", "-p", help="The text.", show_default="a fixed one")
    ] = None,
    layers: Annotated[
        str | None,
        typer.Option(help="Layers to look into; -1 is the last.", show_default="0,1,-1"),
    ] = None,
    tolerance: Annotated[
        float | None,
        typer.Option(
            help="Largest error, as a share of a tensor's largest value.",
            show_default="by dtype and depth",
        ),
    ] = None,
    save: Annotated[
        Path | None, typer.Option(help="Write what was observed, for --against elsewhere.")
    ] = None,
    quality: Annotated[
        Path | None, typer.Option(help="Compare perplexity on this text file as well.")
    ] = None,
    threshold: Annotated[
        float | None, typer.Option(help="With --quality: largest mean KL divergence, in nats.")
    ] = None,
    invariance: Annotated[
        int, typer.Option(help="Compare that many random schedules as well.")
    ] = 0,
    speculative: Annotated[
        bool,
        typer.Option(
            "--speculative",
            help="Compare random requests with and without proposed tokens as well.",
        ),
    ] = False,
    revision: Revision = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object, every number.")] = False,
    debug: Debug = False,
    **given: Any,
) -> None:
    """Compare a model's forward pass with an independent one, step by step.

    The exit code is 0 if every checkpoint passes, 1 if one fails.
    """
    with one_line_errors(debug=debug):
        engine_options = options_of(EngineOptions, given)
        if draft := engine_options.get("speculative_model"):
            engine_options["speculative_model"] = find_model_folder(str(draft))
        own = {field.name for field in fields(VerifyOptions)}
        limits = {name: engine_options.pop(name) for name in engine_options.keys() - own}
        options = VerifyOptions(
            model=find_model_folder(model, revision),
            name=model,
            against=against,
            prompt=prompt,
            layers=_read_layers(layers),
            tolerance=tolerance,
            save=save,
            quality=quality,
            threshold=threshold,
            invariance=invariance,
            speculative=_NUM_SCHEDULES if speculative else 0,
            limits=limits,
            **engine_options,
        )
        with telling() as tell:
            report = verification.verify(options, tell)
        if as_json:
            print_text(json.dumps(report_as_json(report), indent=2) + "\n")
        else:
            is_terminal = sys.stdout is not None and sys.stdout.isatty()
            width = terminal_size().columns
            print_text(as_table(report, width=width, is_terminal=is_terminal))
    if not report.passed:
        raise typer.Exit(1)


def _read_layers(text: str | None) -> tuple[int, ...] | None:
    if text is None:
        return None
    try:
        return tuple(int(number) for number in text.split(","))
    except ValueError:
        raise InvalidRequest(
            f"--layers must be numbers such as 0,1,-1, not {text[:80]!r}", param="layers"
        ) from None
