"""`inferno list`, `show`, `rm` and `prune`: the models on this machine, and the disk they take."""

from __future__ import annotations

import contextlib
import io
import json
import os
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer
from rich import box
from rich.console import Console
from rich.table import Table

from inferno.cli.errors import one_line_errors, say
from inferno.cli.model_options import Debug, Revision
from inferno.cli.terminal import (
    is_terminal,
    print_text,
    terminal_size,
    visible_text,
)
from inferno.demo import MODEL_FOLDERS
from inferno.errors import ModelError, ModelNotFound, TemplateError
from inferno.gguf.file import is_gguf_name
from inferno.home import UNFINISHED_PACKING, home_folder
from inferno.hub.facts import ModelFacts, read_facts, read_template, read_tensors
from inferno.hub.find import find_model_folder, verified
from inferno.hub.manifest import Entry
from inferno.hub.names import is_repository, split_file
from inferno.hub.store import Store
from inferno.machine import readable_size
from inferno.model_files import CONFIG, model_files
from inferno.whole_file import remove_unfinished

_PIPED_WIDTH = 160
# The columns of `list`: where a terminal is narrow, the first two and what else has room.
_BY_USE = (
    *("name", "size", "last used", "context", "dtype", "parameters", "architecture"),
    "revision",
)
_DAY = 86_400
_PACKED = "*.packed"
_MOST_TENSORS = 20
_Json = Annotated[bool, typer.Option("--json", help="One JSON object, every figure.")]
_Name = Annotated[str, typer.Argument(metavar="MODEL", help="A model's name, as in inferno list.")]


def list_models(as_json: _Json = False, debug: Debug = False) -> None:
    """List the models on this machine, and the disk that downloads and packed weights take."""
    with one_line_errors(debug=debug, loads_model=False):
        store = Store.of_user()
        # Imported now, as in `show`: the hub's library takes longer than `inferno --help` may.
        from inferno.hub.local import local_models  # noqa: PLC0415

        entries = store.entries()
        rows = [_row_of(store, entry) for entry in entries]
        stored = {path for entry in entries for path in (entry.folder, *entry.paths)}
        for model in local_models():
            if model.folder not in stored:
                place = "embedded" if model.name in MODEL_FOLDERS else "huggingface"
                rows.append(_row(model.name, model.folder, model.num_bytes, place))
        partial = sum(one.num_bytes for one in store.partials())
        packed = sum(
            _size(path)
            for pattern in (_PACKED, f"{UNFINISHED_PACKING}*")
            for path in _packed_folder().glob(pattern)
        )
        if as_json:
            found = {"models": rows, "partial_bytes": partial, "packed_bytes": packed}
            print_text(json.dumps(found, indent=2) + "\n")
            return
        print_text(_table(rows))
        print_text(f"partial downloads: {readable_size(partial)}\n")
        print_text(f"packed weights: {readable_size(packed)}\n")
        for path in store.unreadable():
            say(f"note: {path} can't be read: the model is downloaded anew, or pruned")


def show(
    model: _Name,
    revision: Revision = None,
    template: Annotated[
        bool, typer.Option("--template", help="Only the chat template, all of it.")
    ] = False,
    tensors: Annotated[
        bool, typer.Option("--tensors", help="Only the tensors, all of them.")
    ] = False,
    as_json: _Json = False,
    debug: Debug = False,
) -> None:
    """Show what a model is: its config, licence, files, tensors and chat template."""
    with one_line_errors(debug=debug, loads_model=False):
        entry, folder = _find(model, revision)
        if template and not as_json:  # what isn't asked for need not be readable
            text = read_template(folder)
            if text is None:
                raise TemplateError(f"{model} has no chat template, so it can't chat")
            print_text((visible_text(text) if is_terminal() else text) + "\n")
            return
        listed = list(read_tensors(folder))
        lines = [f"{one.name}  {one.dtype}  {list(one.shape)}" for one in listed]
        if tensors and not as_json:
            print_text("".join(f"{line}\n" for line in lines))
            return
        text = read_template(folder)
        files = model_files(folder)
        config = files.json(CONFIG, error=ModelError) if files.has(CONFIG) else {}
        if as_json:
            found = {
                **_row(model, folder, entry.num_bytes if entry else None, "", entry),
                "config": config,
                "template": text,
                "tensors": [
                    {"name": one.name, "dtype": one.dtype, "shape": one.shape} for one in listed
                ],
            }
            print_text(json.dumps(found, indent=2) + "\n")
        else:
            print_text(visible_text(_described(model, folder, entry, config, lines, text)))


def rm(
    model: Annotated[
        str,
        typer.Argument(
            metavar="MODEL",
            help="A model's name, as in inferno list, or OWNER/NAME:FILE, a GGUF file of it.",
        ),
    ],
    revision: Revision = None,
    debug: Debug = False,
) -> None:
    """Remove a model of the store; what lies in other folders stays, and is forgotten."""
    with one_line_errors(debug=debug, loads_model=False):
        store = Store.of_user()
        name, include = split_file(model)
        entries = [
            one
            for one in store.entries()
            if one.name == name
            and (revision in (None, one.revision, *one.asked) or _is_short(revision, one))
            and (include is None or one.gguf_files(include))
        ]
        if not entries:
            raise ModelNotFound(
                f"the store has no model {model!r}"
                + (f" at {revision}" if revision else "")
                + "; inferno list shows what is there"
            )
        for entry in entries:  # all or none
            with store.alone(entry.name, entry.revision, may_wait=False):
                pass
        for entry in entries:
            what = entry.name
            if include is None:
                freed = store.remove(entry)
            else:
                chosen = entry.chosen(include, model)
                freed = store.remove_files(entry, entry.files_of(chosen))
                what = f"{entry.name}:{chosen.relative_to(entry.folder).as_posix()}"
            stays = "" if entry.is_owned else f"; its files stay in {entry.folder}"
            say(f"removed {what} at {entry.revision[:12]}: {readable_size(freed)} freed{stays}")


def prune(
    days: Annotated[
        int,
        typer.Option(
            help="Packed weights go that were not used for so many days.", min=0, max=10000
        ),
    ] = 30,
    debug: Debug = False,
) -> None:
    """Remove downloads that are not done, and packed weights that nothing uses any more.

    Weights are packed anew when a model needs them.
    """
    with one_line_errors(debug=debug, loads_model=False):
        store = Store.of_user()
        partial, problems = 0, list[ModelError]()
        for one in store.partials():
            try:
                partial += store.remove_partial(one)
            except ModelError as problem:
                problems.append(problem)
        partial += store.remove_unfinished()
        packed = remove_unfinished(_packed_folder(), UNFINISHED_PACKING)
        for path in _packed_folder().glob(_PACKED):
            with contextlib.suppress(OSError):
                if path.stat().st_mtime <= time.time() - days * _DAY:
                    size = _size(path)
                    path.unlink()
                    packed += size
        say(
            f"removed {readable_size(partial)} of partial downloads and {readable_size(packed)} of "
            "packed weights"
        )
        if problems:
            raise problems[0]


def _find(model: str, revision: str | None) -> tuple[Entry | None, Path]:
    name, include = split_file(model)
    store = Store.of_user()
    entry = store.find(name, revision)
    if entry is not None and (include is None or entry.gguf_files(include)):
        entry = verified(store, entry)
        return entry, entry.path if include is None else entry.chosen(include, model)
    from inferno.hub.cached import cached_ggufs  # noqa: PLC0415
    from inferno.hub.local import local_models  # noqa: PLC0415

    for local in local_models():
        if local.name == model and revision is None:
            return None, local.folder
    if include is not None:
        ggufs = cached_ggufs(name, revision, include)
        if len(ggufs) == 1:
            return None, ggufs[0].folder / ggufs[0].files[0].name
        if entry is not None:
            entry.chosen(include, model)  # raises, for it has none
    folder = Path(os.path.expanduser(model))
    is_there = folder.is_dir() or (is_gguf_name(folder) and folder.exists())
    if model and is_there and revision is None:
        return None, find_model_folder(model)
    if not is_repository(name):
        raise ModelNotFound(f"{model!r} is no model; inferno list shows what is there")
    at = f" at {revision}" if revision else ""
    also = f" --revision {revision}" if revision else ""
    raise ModelNotFound(
        f"{model}{at} is not on this machine; `inferno download {model}{also}` fetches it"
    )


def _is_short(revision: str | None, entry: Entry) -> bool:
    """Return whether a revision is the beginning of an entry's, as `list` shows it."""
    return revision is not None and len(revision) >= 7 and entry.revision.startswith(revision)


def _row_of(store: Store, entry: Entry) -> dict[str, Any]:
    row = _row(entry.name, entry.path, entry.num_bytes, "store" if entry.is_owned else "", entry)
    used = store.used_at(entry)
    with contextlib.suppress(OverflowError, ValueError):  # a clock that was far off
        row["used_at"] = None if used is None else datetime.fromtimestamp(used, UTC).isoformat()
    return row


def _row(
    name: str, folder: Path, num_bytes: int | None, place: str, entry: Entry | None = None
) -> dict[str, Any]:
    facts: ModelFacts = read_facts(folder)
    return {
        "name": name,
        "revision": entry.revision if entry else None,
        "asked": list(entry.asked) if entry else [],
        "size_bytes": num_bytes,
        "architecture": facts.architecture,
        "parameters": facts.num_parameters,
        "dtype": facts.dtype,
        "context": facts.context,
        "used_at": None,
        "licence": entry.licence if entry else None,
        "place": place or "elsewhere",
        "folder": str(folder),
    }


def _table(rows: list[dict[str, Any]]) -> str:
    width = terminal_size().columns if is_terminal() else _PIPED_WIDTH
    columns = _columns(rows, width)
    table = Table(box=box.SIMPLE_HEAD)
    for heading in columns:
        is_number = heading in ("size", "parameters", "context")
        table.add_column(heading, justify="right" if is_number else "left", overflow="fold")
    for cells in zip(*columns.values(), strict=True):
        table.add_row(*cells)
    output = io.StringIO()
    Console(file=output, width=width, force_terminal=is_terminal(), markup=False).print(table)
    return output.getvalue()


def _columns(rows: list[dict[str, Any]], width: int) -> dict[str, list[str]]:
    """Return the cells of each column, of those that have room beside each other."""
    cells = {
        "name": [row["name"] for row in rows],
        "revision": [(row["revision"] or "-")[:12] for row in rows],
        "size": [readable_size(row["size_bytes"]) for row in rows],
        "architecture": [(row["architecture"] or "-").removesuffix("ForCausalLM") for row in rows],
        "parameters": [_count(row["parameters"]) for row in rows],
        "dtype": [row["dtype"] or "-" for row in rows],
        "context": [str(row["context"] or "-") for row in rows],
        "last used": [(row["used_at"] or "-")[:10] for row in rows],
    }
    left, shown = width - 2, set[str]()
    for heading in _BY_USE:
        needed = 2 + max(map(len, (heading, *cells[heading])))
        if heading in _BY_USE[:2] or needed <= left:
            shown.add(heading)
            left -= needed
    return {heading: texts for heading, texts in cells.items() if heading in shown}


def _described(
    model: str,
    folder: Path,
    entry: Entry | None,
    config: dict[str, Any],
    tensors: list[str],
    template: str | None,
) -> str:
    facts = read_facts(folder)
    rows = {
        "name": model,
        "folder": str(folder),
        "revision": entry.revision if entry else "-",
        "source": entry.source if entry else "-",
        "licence": (entry.licence if entry else None) or "not stated",
        "architecture": facts.architecture or "-",
        "parameters": _count(facts.num_parameters),
        "dtype": facts.dtype or "-",
        "context": str(facts.context or "-"),
        "chat template": "none" if template is None else f"{len(template)} characters (--template)",
    }
    text = "".join(f"{label:<14} {value}\n" for label, value in rows.items())
    for file in entry.files if entry else ():
        text += f"file           {file.name}  {readable_size(file.size)}  sha256 {file.sha256}\n"
    text += "\nconfig.json\n" + json.dumps(config, indent=2) + "\n\ntensors\n"
    text += "".join(f"{line}\n" for line in tensors[:_MOST_TENSORS])
    if len(tensors) > _MOST_TENSORS:
        text += f"and {len(tensors) - _MOST_TENSORS} more (--tensors)\n"
    return text


def _count(number: int | None) -> str:
    """Return a number of parameters as people say it."""
    if number is None:
        return "-"
    value = float(number)
    for unit in ("", "K", "M", "B"):
        if value < 1000:
            return f"{value:.3g}{unit}"
        value /= 1000
    return f"{value:.3g}T"


def _packed_folder() -> Path:
    """Return the folder of packed weights, finished and unfinished ones."""
    return home_folder() / "packed"


def _size(path: Path) -> int:
    with contextlib.suppress(OSError):
        return path.stat().st_size
    return 0
