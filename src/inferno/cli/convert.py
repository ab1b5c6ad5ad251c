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
from inferno.cli.terminal import loading_bar, print_text
from inferno.convert.types import FILE_TYPES
from inferno.errors import InvalidRequest, ModelNotFound
from inferno.gguf.file import is_gguf_name
from inferno.hub.find import find_model_folder, is_absent
from inferno.machine import num_usable_cores, readable_size
from inferno.options import EngineOptions

_ALIASES = {"q4_k_m": "q4_k", "mxfp4_moe": "mxfp4"}  # llama.cpp's names of what is the same


@takes_options(EngineOptions, only=("threads", "allow_unknown_config"))
def convert(
    model: Annotated[str, typer.Argument(help=MODEL_HELP)],
    to: Annotated[
        Path, typer.Option(help="What to write: NAME.gguf, or a folder of packed safetensors.")
    ],
    type: Annotated[
        str | None,
        typer.Option(
            help=f"What weights become: {', '.join(FILE_TYPES)}.", show_default="as they are"
        ),
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Replace a file that is there already.")
    ] = False,
    revision: Revision = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object, every number.")] = False,
    debug: Debug = False,
    **given: Any,
) -> None:
    """Write a model as a GGUF file, which llama.cpp reads too, or as a folder of packed weights.

    A file or a folder gets its name when it is whole; until then it is NAME.part.
    """
    with one_line_errors(debug=debug), _interruptible():
        type_name = _checked_type(type)
        is_file = is_gguf_name(to)
        if force and not is_file:
            raise InvalidRequest(f"--force replaces files alone: remove the folder {to} first")
        if is_absent(model, revision):
            raise ModelNotFound(f"{model} is not on this machine; inferno download {model} first")
        path, target = find_model_folder(model, revision), to.expanduser()
        options = EngineOptions(model=path, **options_of(EngineOptions, given))
        threads = options.threads or num_usable_cores()
        with loading_bar("writing") as progress:
            if is_file:
                name = Path(model).expanduser().resolve().name
                written = conversion.write_gguf(
                    path,
                    target,
                    type_name,
                    name=name,
                    threads=threads,
                    replace=force,
                    allow_unknown=options.allow_unknown_config,
                    progress=progress,
                )
            else:
                written = conversion.write_folder(
                    path,
                    target,
                    type_name,
                    threads=threads,
                    allow_unknown=options.allow_unknown_config,
                    progress=progress,
                )
        if as_json:
            facts = {"path": str(written.path), "bytes": written.num_bytes, "types": written.types}
            print_text(json.dumps(facts, indent=2) + "\n")
        else:
            types = ", ".join(f"{readable_size(n)} {name}" for name, n in written.types.items())
            print_text(f"{written.path}: {readable_size(written.num_bytes)} ({types})\n")


def _checked_type(given: str | None) -> str | None:
    if given is None:
        return None
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
