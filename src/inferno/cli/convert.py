"""`inferno convert`: write a model in another format."""

from __future__ import annotations

import contextlib
import json
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from inferno import convert as conversion
from inferno.cli.errors import one_line_errors
from inferno.cli.model_options import MODEL_HELP, Debug, Revision
from inferno.cli.options import options_of, takes_options
from inferno.cli.terminal import loading_bar, print_text, readable_size
from inferno.convert.types import FILE_TYPES
from inferno.errors import InvalidRequest, ModelNotFound
from inferno.gguf.file import is_gguf_name
from inferno.hub.find import find_model_folder, is_absent
from inferno.machine import num_usable_cores
from inferno.options import EngineOptions

_ALIASES = {"q4_k_m": "q4_k", "mxfp4_moe": "mxfp4"}  # llama.cpp's names of what is the same


@takes_options(EngineOptions, only=("threads",))
def convert(
    model: Annotated[str, typer.Argument(help=MODEL_HELP)],
    to: Annotated[Path, typer.Option(help="The file to write, NAME.gguf.")],
    type: Annotated[str, typer.Option(help=f"What weights become: {', '.join(FILE_TYPES)}.")],
    force: Annotated[
        bool, typer.Option("--force", help="Replace a file that is there already.")
    ] = False,
    revision: Revision = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object, every number.")] = False,
    debug: Debug = False,
    **given: Any,
) -> None:
    """Write a model as a GGUF file, for inferno, llama.cpp and what is built on it.

    The file gets its name when it is whole; until then it is NAME.gguf.part.
    """
    with one_line_errors(debug=debug), _interruptible():
        type_name = _checked_type(type)
        if not is_gguf_name(to):
            raise InvalidRequest(
                f"to must be a path that ends in .gguf, not {str(to)!r}", param="to"
            )
        if is_absent(model, revision):
            raise ModelNotFound(f"{model} is not on this machine; inferno download {model} first")
        path = find_model_folder(model, revision)
        threads = options_of(EngineOptions, given).get("threads") or num_usable_cores()
        with loading_bar("writing") as progress:
            written = conversion.write_gguf(
                path,
                to.expanduser(),
                type_name,
                name=Path(model).expanduser().resolve().name,
                threads=threads,
                replace=force,
                progress=progress,
            )
        if as_json:
            facts = {"file": str(written.path), "bytes": written.num_bytes, "types": written.types}
            print_text(json.dumps(facts, indent=2) + "\n")
        else:
            types = ", ".join(f"{readable_size(n)} {name}" for name, n in written.types.items())
            print_text(f"{written.path}: {readable_size(written.num_bytes)} ({types})\n")


def _checked_type(given: str) -> str:
    name = _ALIASES.get(given.lower(), given.lower())
    if name not in FILE_TYPES:
        raise InvalidRequest(
            f"type must be one of {', '.join(FILE_TYPES)}, not {given[:40]!r}", param="type"
        )
    return name


@contextlib.contextmanager
def _interruptible() -> Iterator[None]:
    """Let Ctrl+C and a request to end raise an error, so that no half of a file is left behind."""
    signals = (signal.SIGINT, signal.SIGTERM)
    before = [signal.signal(one, _interrupt) for one in signals]
    try:
        yield
    finally:
        for one, handler in zip(signals, before, strict=True):
            signal.signal(one, handler)


def _interrupt(*_: object) -> None:
    raise KeyboardInterrupt
