"""`inferno bench`: how fast a model runs here, beside what this machine would allow."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from inferno.bench.measurement import Job, Kind
from inferno.bench.report import as_json as report_as_json
from inferno.bench.report import as_table
from inferno.bench.run import run
from inferno.cli.bench_serve import MOST_TOKENS, serve
from inferno.cli.errors import one_line_errors
from inferno.cli.model_options import (
    MODEL_HELP,
    Debug,
    Revision,
)
from inferno.cli.numbers import reads_numbers
from inferno.cli.options import GroupedCommand, options_of, takes_options
from inferno.cli.terminal import print_text, telling, terminal_size
from inferno.hub.find import find_model_folder
from inferno.option_table import Group
from inferno.options import EngineOptions
from inferno.requests import SamplingParams

_MOST_REQUESTS = 2**16
# The engine's options that change nothing where nobody chats; --speculative has its own default.
_WITHOUT = ("speculative", "chat_template")
_OF_MANY = ("priority_aging", "step_target_ms")  # which change nothing for one request

Model = Annotated[
    str,
    typer.Option("--model", "-m", help=MODEL_HELP),
]
PromptTokens = Annotated[
    int, typer.Option(help="Random tokens of each prompt.", min=1, max=MOST_TOKENS)
]
NumRuns = Annotated[int, typer.Option(help="Runs that medians are taken of.", min=1, max=1000)]
RunSeed = Annotated[int, typer.Option("--seed", help="Of the prompts' random tokens.")]
Speculative = Annotated[
    str,
    typer.Option(
        metavar="auto|off|ngram|early|MODEL",
        help="Who proposes tokens. Random weights repeat themselves, which is easily guessed: off "
        "measures the model alone.",
        rich_help_panel=Group.SPECULATION,
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="One JSON object, every figure.")]

app = typer.Typer(name="bench", no_args_is_help=True, rich_markup_mode=None)


@app.callback()
def bench() -> None:
    """Measure how fast a model runs on this machine, or how a server does under load."""


@app.command(cls=GroupedCommand)
@reads_numbers
@takes_options(EngineOptions, without=(*_WITHOUT, *_OF_MANY))
def latency(
    model: Model = "demo",
    prompt_tokens: PromptTokens = 128,
    max_tokens: Annotated[int, typer.Option(help="New tokens.", min=2, max=MOST_TOKENS)] = 64,
    num_runs: NumRuns = 5,
    seed: RunSeed = 0,
    revision: Revision = None,
    speculative: Speculative = "off",
    as_json: AsJson = False,
    debug: Debug = False,
    **given: Any,
) -> None:
    """Measure one request at a time: cold start, first token, tokens per second."""
    with one_line_errors(debug=debug):
        job = Job(
            kind=Kind.LATENCY,
            model=str(find_model_folder(model, revision)),
            options=_options(speculative, given),
            num_requests=1,
            prompt_tokens=prompt_tokens,
            max_tokens=max_tokens,
            num_runs=num_runs,
            seed=seed,
        )
        _measure(job, model, as_json=as_json, debug=debug)


@app.command(cls=GroupedCommand)
@reads_numbers
@takes_options(EngineOptions, without=_WITHOUT)
def throughput(
    model: Model = "demo",
    num_requests: Annotated[
        int, typer.Option(help="Requests, all given at once.", min=1, max=_MOST_REQUESTS)
    ] = 32,
    prompt_tokens: PromptTokens = 128,
    max_tokens: Annotated[
        int, typer.Option(help="New tokens of each request.", min=1, max=MOST_TOKENS)
    ] = 64,
    num_runs: NumRuns = 3,
    seed: RunSeed = 0,
    revision: Revision = None,
    speculative: Speculative = "off",
    as_json: AsJson = False,
    debug: Debug = False,
    **given: Any,
) -> None:
    """Measure many requests at once: requests and tokens per second."""
    with one_line_errors(debug=debug):
        job = Job(
            kind=Kind.THROUGHPUT,
            model=str(find_model_folder(model, revision)),
            options=_options(speculative, given),
            num_requests=num_requests,
            prompt_tokens=prompt_tokens,
            max_tokens=max_tokens,
            num_runs=num_runs,
            seed=seed,
        )
        _measure(job, model, as_json=as_json, debug=debug)


app.command(cls=GroupedCommand)(reads_numbers(serve))


def _options(speculative: str, given: Mapping[str, Any]) -> dict[str, Any]:
    options = options_of(EngineOptions, given)
    names = ("num_speculative_tokens", "speculative_model", "speculative_early_layers")
    is_named = any(options[name] not in (None, "auto") for name in names)
    if (draft := options["speculative_model"]) is not None:
        options["speculative_model"] = str(draft)  # a job travels as JSON, which has no paths
    return {**options, "speculative": "auto" if speculative == "off" and is_named else speculative}


def _measure(job: Job, model: str, *, as_json: bool, debug: bool) -> None:
    EngineOptions(model=Path(job.model), **job.options)  # refuses bad values before it begins
    SamplingParams(seed=job.seed)
    with telling() as tell:
        found = run(job, tell, debug=debug)
    if as_json:
        print_text(json.dumps(report_as_json(job, found, model), indent=2) + "\n")
        return
    is_terminal = sys.stdout is not None and sys.stdout.isatty()
    width = terminal_size().columns
    print_text(as_table(job, found, model, width=width, is_terminal=is_terminal))
