"""`inferno doctor`: what this machine has, or what is wrong with a model's files."""

from __future__ import annotations

import json
import os
import textwrap
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from inferno.cli.doctor_facts import Facts, gather_facts
from inferno.cli.doctor_model import doctor_model
from inferno.cli.doctor_problems import Problem, find_problems
from inferno.cli.errors import one_line_errors
from inferno.cli.model_options import MODEL_HELP, Debug, Revision
from inferno.cli.terminal import print_text

_UNKNOWN = "unknown"


def doctor(
    model: Annotated[
        str | None,
        typer.Argument(help="Look at this model's files instead. " + MODEL_HELP),
    ] = None,
    revision: Revision = None,
    chat_template: Annotated[
        Path | None,
        typer.Option(help="With MODEL: look at this chat template instead of its own."),
    ] = None,
    measure: Annotated[
        bool,
        typer.Option(
            "--measure",
            help="Measure how fast GPUs copy that others use too; the others are measured anyway.",
        ),
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="One JSON object; null is what can't be found out.")
    ] = False,
    debug: Debug = False,
) -> None:
    """Show what inferno finds on this machine, or in a model's files, and what to mend.

    The exit code is 1 if a problem keeps inferno from running, or from running MODEL, else 0.
    """
    if model is not None:
        if measure:
            raise typer.BadParameter("--measure goes without a MODEL")
        doctor_model(model, revision, chat_template, as_json=as_json, debug=debug)
        return
    if revision is not None or chat_template is not None:
        raise typer.BadParameter("--revision and --chat-template go with a MODEL")
    with one_line_errors(debug=debug, loads_model=False):
        facts = gather_facts(measures_all=measure)
        problems = find_problems(facts)
        if as_json:
            report = {**facts, "problems": [asdict(problem) for problem in problems]}
            print_text(json.dumps(report, indent=2) + "\n")
        else:
            print_text("\n".join(describe(facts, problems)) + "\n")
    if any(problem.is_fatal for problem in problems):
        raise typer.Exit(1)


def describe(facts: Facts, problems: list[Problem]) -> Iterator[str]:
    """Yield the report's lines: a heading of ten letters, then what was found."""
    sections = {
        "versions": _versions(facts["versions"]),
        "system": _system(facts["system"]),
        "cpu": _cpu(facts["cpu"]),
        "threads": _threads(facts["threads"]),
        "memory": _memory(facts["memory"]),
        "devices": [_device(device) for device in facts["devices"]] or [_UNKNOWN],
        "gpu": _gpu(facts),
        "kernels": [_kernels(facts["kernels"])],
        "ops": _ops(facts["ops"]) or [_UNKNOWN],
        "models": _models(facts["models"]),
        "terminal": _terminal(facts["terminal"]),
        "problems": [line for problem in problems for line in _problem(problem)] or ["none"],
    }
    for heading, lines in sections.items():
        wrapped = [part for line in lines for part in _wrap(line)]
        for index, line in enumerate(wrapped):
            yield f"{heading if index == 0 else '':10}{line}"


def _wrap(line: str) -> list[str]:
    return textwrap.wrap(
        line, 70, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False
    )


def _versions(versions: Facts) -> list[str]:
    shown = [f"{name} {version or 'not installed'}" for name, version in versions.items()]
    return [", ".join(shown[first : first + 4]) for first in range(0, len(shown), 4)]


def _system(system: Facts) -> list[str]:
    os_name, release, kind = (_or_unknown(system[key]) for key in ("os", "release", "machine"))
    driver = f", NVIDIA driver {system['nvidia_driver']}" if system["nvidia_driver"] else ""
    return [f"{os_name} {release}, {kind}, C library {_or_unknown(system['libc'])}{driver}"]


def _cpu(cpu: Facts) -> list[str]:
    granted = "no quota" if cpu["quota"] is None else f"a quota of {cpu['quota']:g} CPUs"
    lines = [
        _or_unknown(cpu["model"]),
        f"{_cores(cpu['cores'], cpu['hardware_threads'])}; allowed: "
        f"{_cores(cpu['allowed_cores'], cpu['allowed_hardware_threads'])}, {granted}",
    ]
    if cpu["features"] is None:
        return [*lines, f"features unknown; PyTorch uses {_or_unknown(cpu['vector_code'])}"]
    has = " ".join(name for name, is_there in cpu["features"].items() if is_there)
    lacks = " ".join(name for name, is_there in cpu["features"].items() if not is_there)
    return [*lines, f"has {has or 'none'}; lacks {lacks or 'none'}"]


def _cores(cores: int | None, hardware_threads: int | None) -> str:
    return f"{_or_unknown(cores)} cores, {_or_unknown(hardware_threads)} threads"


def _threads(threads: Facts) -> list[str]:
    taken, environment = str(threads["inferno"]), threads["environment"]
    variables = " ".join(f"{name}={value}" for name, value in environment.items())
    return [
        f"inferno takes {taken}; PyTorch alone would take {_or_unknown(threads['torch'])}",
        *([variables] if variables else []),
        *(
            f"note: inferno goes by --threads, not by {name}={environment[name]}"
            for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS")
            if environment.get(name, taken) not in (taken, "")
        ),
    ]


def _memory(memory: Facts) -> list[str]:
    total, available = _gigabytes(memory["total_bytes"]), _gigabytes(memory["available_bytes"])
    limit = memory["limit_bytes"]
    bound = "no limit" if limit is None else f"a limit of {_gigabytes(limit)}"
    return [f"{total}, of which {available} can be allocated; {bound} by control groups"]


def _device(device: Facts) -> str:
    if device["error"]:
        return f"{device['name']:8}does not answer: {device['error']}"
    known = {
        "": device["model"],
        "memory ": device["total_bytes"] and _gigabytes(device["total_bytes"]),
        "free ": device["available_bytes"] and _gigabytes(device["available_bytes"]),
        "capability ": device["capability"],
        "copies ": device["capability"] and _bandwidth(device),
    }
    return f"{device['name']:8}" + ", ".join(f"{k}{v}" for k, v in known.items() if v)


def _bandwidth(device: Facts) -> str:
    if device["bandwidth"] is None:
        return f"not measured: {device['why_unmeasured']}"
    return f"{_gigabytes(device['bandwidth'])}/s"


def _gpu(facts: Facts) -> list[str]:
    """Return whether NVIDIA's GPUs can be used, and what compiles their kernels."""
    cuda, triton = facts["cuda"], facts["versions"]["triton"]
    if cuda["triton_cache"] is None:  # nobody could ask
        return [_UNKNOWN]
    if cuda["why_not"] is not None:
        return [f"none: {cuda['why_not']}"]
    if cuda["why_no_kernels"] is not None:
        return [f"no kernels: {cuda['why_no_kernels']}"]
    shown = "" if cuda["visible_devices"] is None else ", as CUDA_VISIBLE_DEVICES shows them"
    return [
        f"CUDA {_or_unknown(facts['cuda_build'])}{shown}; kernels by Triton {_or_unknown(triton)}, "
        f"kept in {_short(cuda['triton_cache'])}"
    ]


def _kernels(kernels: Facts) -> str:
    none = f"none, as {kernels['why_not']}" if kernels["why_not"] else _UNKNOWN
    return f"CPU kernels: {kernels['isa'] or none}"


def _ops(ops: dict[str, dict[str, str]]) -> list[str]:
    """Return a row per op, a column per kind of device."""
    names = dict.fromkeys(op for backends in ops.values() for op in backends)
    rows = [[op, *(backends.get(op, "-") for backends in ops.values())] for op in names]
    return [
        "".join(f"{cell:{18 if i == 0 else 12}}" for i, cell in enumerate(row)).rstrip()
        for row in [["", *ops], *rows]
    ]


def _models(models: Facts) -> list[str]:
    writable = "writable" if models["cache_is_writable"] else "not writable"
    offline = ", offline by HF_HUB_OFFLINE" if models["is_offline"] else ""
    return [
        f"embedded: {', '.join(models['embedded']) or 'none'}",
        f"cache: {_short(models['cache'])}",
        f"{writable}, {_gigabytes(models['cache_free_bytes'])} free{offline}",
    ]


def _terminal(terminal: Facts) -> list[str]:
    kind = _or_unknown(terminal["term"]) if terminal["is_terminal"] else "none: output is piped"
    colour = "colour" if terminal["has_colour"] and terminal["is_terminal"] else "no colour"
    encoding = _or_unknown(terminal["encoding"])
    return [f"{kind}; {encoding}, {terminal['columns']} columns, {colour}"]


def _problem(problem: Problem) -> list[str]:
    return [f"{'FATAL: ' if problem.is_fatal else ''}{problem.what}", f"  -> {problem.cure}"]


def _gigabytes(count: float | None) -> str:
    return _UNKNOWN if count is None else f"{count / 1e9:.1f} GB"


def _or_unknown(value: object) -> str:
    return _UNKNOWN if value is None else str(value)


def _short(path: str) -> str:
    """Write ~ for the home folder, whose name is nobody's business in a bug report."""
    home = os.path.expanduser("~")
    is_inside = len(home) > 1 and path.startswith(home + os.sep)
    return "~" + path.removeprefix(home) if is_inside else path
