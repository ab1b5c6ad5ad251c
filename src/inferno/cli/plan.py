"""`inferno plan`: what a model takes, what fits, and how fast it may run, before it is loaded."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from inferno.cli.errors import one_line_errors, say
from inferno.cli.model_options import MODEL_HELP, Debug, Revision
from inferno.cli.options import options_of, takes_options
from inferno.cli.terminal import print_text, telling
from inferno.errors import InvalidRequest
from inferno.hub.find import find_model_folder, is_absent
from inferno.hub.names import split_file
from inferno.machine import available_memory, readable_size
from inferno.options import EngineOptions
from inferno.plan.devices import Gpu, GpuPlan, find_gpus, gpu_plans
from inferno.plan.memory import Plan, make_plan
from inferno.plan.report import context_table, cure_lines, cures, memory_table, unpacked_lines
from inferno.plan.shape import ModelShape, make_shape, read_shape
from inferno.plan.speed import (
    MachineFigures,
    Speed,
    expected_speed,
    kept_figures,
    measure_figures,
)

if TYPE_CHECKING:
    from inferno.hub.client import HubClient


@takes_options(EngineOptions)
def plan(
    model: Annotated[str, typer.Argument(help=MODEL_HELP)],
    revision: Revision = None,
    measure: Annotated[
        bool, typer.Option("--measure", help="Measure this machine's speed anew: some seconds.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object, every number.")] = False,
    debug: Debug = False,
    **given: Any,
) -> None:
    """Show the memory that a model will take, what fits, and its speed, without loading it.

    Of a model that isn't here only the headers of its files are read. The exit code is 0 if it
    fits in what is available now, else 1: on the CPU, or on the GPU that --device names. It takes
    all options of an engine, also those that change nothing here.
    """
    with one_line_errors(debug=debug, loads_model=False):
        given_options = options_of(EngineOptions, given)
        gpus = find_gpus()
        device, share = _checked(model, given_options, gpus)
        shape, path = _shape(model, revision, allow_unknown=given_options["allow_unknown_config"])
        options = EngineOptions(model=path, **given_options)
        draft = None
        if options.draft_name is not None:
            draft, _ = _shape(
                options.draft_name, None, allow_unknown=given_options["allow_unknown_config"]
            )
        has_text = options.load_format != "dummy"
        found = make_plan(shape, options, available_memory(), has_text=has_text, draft=draft)
        on_gpus = list(gpu_plans(shape, options, gpus, draft, share))
        if not as_json:
            _print(_described(found, on_gpus, shape, options, draft))
        figures = (None if measure else kept_figures(options.threads)) or _measured(options)
        speed = expected_speed(shape, found, figures)
        if speed is None:
            say(
                "note: this machine's speed could not be measured, as was tried "
                f"{figures.age}; --measure tries again, and `inferno doctor` says more of it"
            )
        if as_json:
            values = _values(found, on_gpus, shape, options, draft, figures, speed)
            print_text(json.dumps(values, indent=2) + "\n")
        elif speed is not None:
            _print(_speed_lines(found, figures, speed))
    plans = {"cpu": found} | {one.gpu.device: one.plan for one in on_gpus}
    asked = plans[device]
    if asked is None or not asked.fits:
        raise typer.Exit(1)


def _checked(model: str, given: dict[str, Any], gpus: Sequence[Gpu]) -> tuple[str, float | None]:
    """Take the device and the share of a GPU out of an engine's options, all of them checked.

    What remains are options of an engine on the CPU, whose plan is always made.
    """
    device = given.pop("device", "cpu")
    share = given.pop("gpu_memory_utilization", None)
    if device == "cpu":  # a share alone is for whichever GPUs there are
        EngineOptions(model=Path(model), device="cuda", gpu_memory_utilization=share)
        EngineOptions(model=Path(model), **given)
    else:
        EngineOptions(model=Path(model), device=device, gpu_memory_utilization=share, **given)
    named = "cuda:0" if device == "cuda" else device
    known = ["cpu", *(gpu.device for gpu in gpus)]
    if named not in known:
        raise InvalidRequest(
            f"device is {device}, and plans can be made here for {', '.join(known)}; choose one of "
            "them, or leave it out",
            param="device",
        )
    return named, share


def _shape(model: str, revision: str | None, *, allow_unknown: bool) -> tuple[ModelShape, Path]:
    """Return the shape of a model, here or on the hub, and the path that stands for it."""
    if not is_absent(model, revision):
        path = find_model_folder(model, revision)
        return read_shape(path, allow_unknown=allow_unknown), path
    repository, _ = split_file(model)
    # Imported now: with the HTTP client it takes longer than a model that is here.
    from inferno.hub.fetch import hub_client  # noqa: PLC0415

    with hub_client(repository) as client:
        shape = remote_shape(client, model, revision, allow_unknown=allow_unknown)
    return shape, Path(repository)


def remote_shape(
    client: HubClient, model: str, revision: str | None, *, allow_unknown: bool
) -> ModelShape:
    """Return the shape of a model on the hub, by the headers of its files."""
    from inferno.hub.headers import read_remote  # noqa: PLC0415

    repository, file = split_file(model)
    with telling() as tell:
        tell(f"reading the headers of {repository}")
        remote = read_remote(client, repository, revision, file)
    return make_shape(
        remote.config,
        remote.tensors,
        place=model,
        tokenizer_bytes=remote.tokenizer_bytes,
        is_gguf=remote.is_gguf,
        allow_unknown=allow_unknown,
    )


def _measured(options: EngineOptions) -> MachineFigures:
    with telling() as tell:
        tell("measuring how fast this machine is, once")
        return measure_figures(options.threads)


def _described(
    found: Plan,
    on_gpus: Sequence[GpuPlan],
    shape: ModelShape,
    options: EngineOptions,
    draft: ModelShape | None,
) -> Iterator[str]:
    yield from memory_table(found)
    yield from unpacked_lines(found)
    yield ""
    if found.num_blocks:
        yield from context_table(found, [(one.gpu.device, one.plan) for one in on_gpus])
    if not found.fits:
        yield "It doesn't fit. What would:"
        yield from cure_lines(shape, options, found, draft)
    for one in on_gpus:
        yield ""
        yield from _on_gpu(one)


def _on_gpu(one: GpuPlan) -> Iterator[str]:
    gpu = one.gpu
    yield (
        f"On {gpu.device}, {gpu.name}, of {readable_size(gpu.total)}, "
        f"{readable_size(gpu.free)} of them free:"
    )
    if one.plan is None:
        yield "  it can't run there with these options"
        return
    yield from (f"  {line}" for line in memory_table(one.plan))
    if not one.plan.fits:
        yield "  It doesn't fit there."


def _speed_lines(found: Plan, figures: MachineFigures, speed: Speed) -> Iterator[str]:
    yield ""
    yield (
        f"At best about {_rate(speed.decode)} tokens a second for one stream, "
        f"{_rate(speed.decode_full)} with {found.context} tokens before"
        + (f"; prompts {_rate(speed.prefill)}" if speed.prefill else "")
        + "."
    )
    assert figures.bandwidth is not None, "a speed was computed of it"
    yield (
        f"An estimate: {figures.bandwidth / 1e9:.3g} GB a second with {figures.threads} threads of "
        f"{figures.cpu}, measured {figures.age}; --measure renews it."
    )


def _values(
    found: Plan,
    on_gpus: Sequence[GpuPlan],
    shape: ModelShape,
    options: EngineOptions,
    draft: ModelShape | None,
    figures: MachineFigures,
    speed: Speed | None,
) -> dict[str, Any]:
    contexts = sorted({max(1, found.context >> shift) for shift in (0, 2, 4)})
    return {
        **asdict(found),
        "weights_bytes": found.weights_bytes,
        "token_bytes": found.cache.token_bytes,
        "cache_bytes": found.cache_bytes,
        "loading": found.loading_bytes,
        "total": found.total_bytes,
        "fits": found.fits,
        "holds": {context: found.num_requests(context) for context in contexts},
        "would_fit": []
        if found.fits
        else [
            {"options": cure.flags, "total": cure.plan.total_bytes, "longest": cure.plan.longest}
            for cure in cures(shape, options, found, draft)
        ],
        "gpus": [
            {
                "device": one.gpu.device,
                "name": one.gpu.name,
                "memory": one.gpu.total,
                "free": one.gpu.free,
                "room": None if one.plan is None else one.plan.room,
                "total": None if one.plan is None else one.plan.total_bytes,
                "fits": one.plan is not None and one.plan.fits,
                "longest": 0 if one.plan is None else one.plan.longest,
            }
            for one in on_gpus
        ],
        "machine": asdict(figures),
        "speed": None if speed is None else asdict(speed),
    }


def _print(lines: Iterable[str]) -> None:
    print_text("".join(f"{line}\n" for line in lines))


def _rate(number: float) -> str:
    return f"{number:.2g}" if number < 10 else f"{number:,.0f}"
