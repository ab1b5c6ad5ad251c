"""`inferno plan`: the memory that a model will take, before it is loaded."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict
from typing import Annotated, Any

import typer

from inferno.cli.errors import one_line_errors
from inferno.cli.model_options import MODEL_HELP, Debug, Revision
from inferno.cli.options import options_of, takes_options
from inferno.cli.terminal import print_text
from inferno.machine import readable_size
from inferno.errors import ModelNotFound
from inferno.hub.find import find_model_folder, is_absent
from inferno.machine import available_memory
from inferno.options import EngineOptions
from inferno.plan.memory import BASE_BYTES, Plan, make_plan

_OPTIONS = (
    *("dtype", "quantize", "kv_dtype", "block_size", "num_blocks", "max_model_len"),
    *("max_num_seqs", "max_num_batched_tokens"),
)


@takes_options(EngineOptions, only=_OPTIONS)
def plan(
    model: Annotated[str, typer.Argument(help=MODEL_HELP)],
    revision: Revision = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object, every number.")] = False,
    debug: Debug = False,
    **given: Any,
) -> None:
    """Show the memory that a model on this machine will take on the CPU, without loading it.

    The exit code is 0 if it fits in what is available now, else 1.
    """
    with one_line_errors(debug=debug, loads_model=False):
        if is_absent(model, revision):
            raise ModelNotFound(f"{model} is not on this machine; inferno download {model} first")
        path = find_model_folder(model, revision)
        options = EngineOptions(model=path, **options_of(EngineOptions, given))
        found = make_plan(path, options, available_memory())
        if as_json:
            sums = {"base": BASE_BYTES, "cache": found.cache_bytes, "total": found.total_bytes}
            print_text(json.dumps({**asdict(found), **sums, "fits": found.fits}, indent=2) + "\n")
        else:
            print_text("".join(f"{line}\n" for line in _described(found, options)))
    if not found.fits:
        raise typer.Exit(1)


def _described(found: Plan, options: EngineOptions) -> Iterator[str]:
    for name, count in found.weights.items():
        yield f"{'weights, ' + name:<22}{readable_size(count):>10}"
    yield f"{'KV cache, ' + found.kv_dtype:<22}{readable_size(found.cache_bytes):>10}"
    yield f"{'workspace, about':<22}{readable_size(found.workspace):>10}"
    yield f"{'Python, PyTorch, about':<22}{readable_size(BASE_BYTES):>10}"
    yield f"{'total':<22}{readable_size(found.total_bytes):>10}"
    available = "unknown" if found.available is None else readable_size(found.available)
    yield f"{'available now':<22}{available:>10}"
    yield f"\nA token takes {readable_size(found.token_bytes)} of the cache. What it holds at once:"
    yield f"{'context':>10}{'requests':>10}"
    for context in sorted({found.context >> shift for shift in (0, 2, 4)} - {0}):
        yield f"{context:>10}{min(found.num_requests(context), options.max_num_seqs):>10}"
    if not found.fits:
        yield "\nIt doesn't fit. " + " ".join(_cures(found, options))


def _cures(found: Plan, options: EngineOptions) -> Iterator[str]:
    if options.quantize == "none":
        yield "--quantize int8 or int4 makes the weights smaller."
    if found.kv_dtype != "int8":
        yield "--kv-dtype int8 makes the cache smaller."
    if options.num_blocks:
        yield "A smaller --num-blocks does so too."
    yield "Close other programs, or choose a smaller model."
