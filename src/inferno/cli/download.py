"""`inferno download`: have a model on this machine; and what other commands do where it isn't."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

from inferno.cli.errors import one_line_errors, say
from inferno.cli.model_options import Debug, Revision
from inferno.cli.terminal import can_redraw, print_text, telling
from inferno.errors import (
    DownloadError,
    HubUnreachable,
    InvalidRequest,
    ModelNotFound,
)
from inferno.hub.find import is_absent
from inferno.hub.manifest import Entry
from inferno.hub.names import split_file
from inferno.hub.store import Store
from inferno.machine import available_memory, readable_size
from inferno.options import EngineOptions, draft_name

if TYPE_CHECKING:
    from inferno.hub.client import HubClient
    from inferno.hub.fetch import Plan
    from inferno.hub.names import RemoteFile
    from inferno.hub.url import WantedModel


def download(
    model: Annotated[
        str,
        typer.Argument(
            help="A Hugging Face id, a URL of a model's files, or a folder or .gguf file here."
        ),
    ],
    revision: Revision = None,
    include: Annotated[
        str | None,
        typer.Option(
            help="Which weights, such as '*Q4_K_M.gguf', where there are several to choose from.",
            show_default="all in safetensors",
        ),
    ] = None,
    token_file: Annotated[
        Path | None,
        typer.Option(
            help="A file with a token of yours, for models that ask who you are.",
            show_default="HF_TOKEN, or what `hf auth login` wrote",
        ),
    ] = None,
    debug: Debug = False,
) -> None:
    """Download a model, or what is missing of it, verify it, and print its folder.

    What is here already, in Hugging Face's cache too, is not fetched again.
    """
    with one_line_errors(debug=debug, loads_model=False):
        # Imported now: with the HTTP client it takes longer than `inferno --help` may.
        from inferno.hub.add import add_local, is_local  # noqa: PLC0415
        from inferno.hub.fetch import hub_client, plan_download, web_client  # noqa: PLC0415
        from inferno.hub.url import WantedModel, is_elsewhere, parse_model  # noqa: PLC0415
        from inferno.hub.web import parse_address, plan_address  # noqa: PLC0415

        store = Store.of_user()
        if is_local(model):
            if revision or include or token_file:
                raise InvalidRequest(f"{model} is on this machine: give no other option with it")
            entry = add_local(store, Path(model).expanduser(), _problem_with)
            say(f"{entry.name} is in {entry.folder}")
        elif is_elsewhere(model):
            if revision or include or token_file:
                raise InvalidRequest(f"{model} is no hub: give no other option with it")
            address = parse_address(model)
            wanted = WantedModel(address.name, address.revision, None)
            entry = _fetch_or_find(
                store,
                wanted,
                web_client(address.folder),
                lambda client: plan_address(client, store, address),
            )
        else:
            wanted = parse_model(model, revision, include)
            entry = _fetch_or_find(
                store,
                wanted,
                hub_client(wanted.name, token_file=token_file),
                lambda client: plan_download(
                    client, store, wanted.name, wanted.revision, wanted.include
                ),
            )
        print_text(f"{entry.folder}\n")


def _fetch_or_find(
    store: Store,
    wanted: WantedModel,
    connection: AbstractContextManager[HubClient],
    make_plan: Callable[[HubClient], Plan],
) -> Entry:
    """Return a model that is downloaded now, or the one that is here where no hub can be asked."""
    from inferno.hub.fetch import local_entry  # noqa: PLC0415

    try:
        with connection as client:
            plan = make_plan(client)
            say(_described(plan, store))
            return _fetch(client, store, plan)
    except HubUnreachable as problem:
        here = local_entry(store, wanted.name, wanted.revision, wanted.include)
        if here is None:
            raise
        say(f"{wanted.name} is here, as it was when its hub was last asked: {problem}")
        return here


def fetch_if_absent(
    model: str,
    revision: str | None,
    *,
    yes: bool,
    options: Mapping[str, Any] | None = None,
) -> None:
    """Download a model that isn't on this machine, if the person says so.

    yes         whether it was said already. Without a terminal to ask on, ModelNotFound.
    options     the options of the engine that will run it, where its plan is to be shown. Raises
                NotEnoughMemory where the model can't fit.
    """
    with telling() as tell:
        tell(f"looking for {model}")  # what others have put into a cache is hashed, once
        if not is_absent(model, revision):
            return
    from inferno.hub.fetch import hub_client, plan_download  # noqa: PLC0415

    store = Store.of_user()
    repository, include = split_file(model)
    with hub_client(repository) as client:
        plan = plan_download(client, store, repository, revision, include)
        if not yes and not _may_ask():
            also = f" --revision {revision}" if revision else ""
            raise ModelNotFound(
                f"{model} is not on this machine: `inferno download {model}{also}` fetches it "
                f"({readable_size(plan.num_missing)}), or give --yes"
            )
        say(_described(plan, store))
        if options is not None:
            _plan_memory(client, model, revision, options)
        if not yes and not _agrees():
            raise ModelNotFound(f"{model} is not on this machine, and was not downloaded")
        _fetch(client, store, plan)


def fetch_draft_if_absent(options: Mapping[str, Any], *, yes: bool) -> None:
    """Download the draft model that options of an engine name, as `fetch_if_absent` does."""
    name = draft_name(options.get("speculative") or "auto", options.get("speculative_model"))
    if name is not None:
        fetch_if_absent(name, None, yes=yes)


def _plan_memory(
    client: HubClient, model: str, revision: str | None, options: Mapping[str, Any]
) -> None:
    """Say what memory a model of the hub takes; raise NotEnoughMemory where it can't fit.

    A draft model is left out: without it the model must fit too.
    """
    # Imported now: who has the model waits for nothing of it.
    from inferno.cli.plan import remote_shape  # noqa: PLC0415
    from inferno.plan.devices import find_gpus, gpu_plans  # noqa: PLC0415
    from inferno.plan.memory import make_plan  # noqa: PLC0415
    from inferno.plan.report import memory_table, refusal  # noqa: PLC0415

    alone = {key: value for key, value in options.items() if "speculati" not in key}
    engine = EngineOptions(model=Path(split_file(model)[0]), **alone)
    try:
        shape = remote_shape(client, model, revision, allow_unknown=engine.allow_unknown_config)
    except DownloadError as problem:  # a hub that sends no parts of files
        say(f"note: {problem}")
        return
    if engine.device == "cpu":
        found, bound = make_plan(shape, engine, available_memory()), None
    else:
        name = "cuda:0" if engine.device == "cuda" else engine.device
        gpus = [gpu for gpu in find_gpus() if gpu.device == name]
        share = engine.gpu_memory_utilization
        plans = [one.plan for one in gpu_plans(shape, engine, gpus, share=share)]
        if not plans or plans[0] is None:
            return  # building the engine says what is wrong
        found, bound = plans[0], name
    if not found.fits:
        raise refusal(shape, engine, found, bound=bound)
    sys.stderr.write("".join(f"{line}\n" for line in memory_table(found)))


def _described(plan: Plan, store: Store) -> str:
    files, missing = plan.listing.files, readable_size(plan.num_missing)
    total = readable_size(plan.listing.num_bytes)
    if plan.num_missing == 0:
        return f"{plan.name} at {plan.revision[:12]} is here: {total} to verify"
    what = total if missing == total else f"{missing} of {total}"
    count = "1 file" if len(files) == 1 else f"{len(files)} files"
    return f"{plan.name} at {plan.revision[:12]}: {count}, {what}, to {store.root}"


def _may_ask() -> bool:
    return all(stream is not None and stream.isatty() for stream in (sys.stdin, sys.stderr))


def _agrees() -> bool:
    sys.stderr.write("Download it? [y/N] ")
    sys.stderr.flush()
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def _problem_with(folder: Path) -> str | None:
    """Return why the model of a folder can't be run; None if it can."""
    from inferno.engine.build import problem_with  # noqa: PLC0415

    return problem_with(folder)


def _fetch(client: HubClient, store: Store, plan: Plan) -> Entry:
    from inferno.hub.fetch import download  # noqa: PLC0415

    with _bars(plan) as tell:
        return download(
            client,
            store,
            plan,
            tell,
            wait=lambda: say(f"waiting for another process that fetches or runs {plan.name}"),
            refuse=_problem_with,
        )


@contextlib.contextmanager
def _bars(plan: Plan) -> Iterator[Callable[[RemoteFile, int], None]]:
    """Show a bar of the file that is fetched and one of all; a line for each file when piped."""
    console = Console(stderr=True)
    done_of: dict[str, int] = {}
    if not can_redraw(console):

        def say_when_done(file: RemoteFile, done: int) -> None:
            if done == file.size and done_of.get(file.name) != done:
                say(f"{file.name}: {readable_size(file.size)}")
            done_of[file.name] = done

        yield say_when_done
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(binary_units=False),
        TransferSpeedColumn(),
    )
    with Progress(*columns, console=console, transient=True) as bars:
        one = bars.add_task("", total=None)
        everything = bars.add_task("all files", total=plan.listing.num_bytes)

        def draw(file: RemoteFile, done: int) -> None:
            if file.name not in done_of:
                bars.reset(one, description=file.name[-40:], total=file.size)
            done_of[file.name] = done
            bars.update(one, completed=done)
            bars.update(everything, completed=sum(done_of.values()))

        yield draw
