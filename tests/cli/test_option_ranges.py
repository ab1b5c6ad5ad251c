"""Every numeric option of every command refuses what is out of its range, by name."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from typing import Any, NoReturn, get_args

import pytest
from typer import Typer
from typer.main import get_command
from typer.models import ParameterInfo
from typer.utils import get_params_from_function

from inferno.cli.app import app

VALUES = ("-1", "0", "1000000000000", "nan", "inf", "many", "", "9" * 5000)
# Values of these that are in range, so that the command goes on; of all others there are none.
IN_RANGE = {
    "priority": ("-1", "0"),
    "seed": ("-1", "0", "1000000000000"),
    "temperature": ("0",),
    "top_k": ("0",),
    "min_p": ("0",),
    "top_p": ("0",),
    "priority_aging": ("0",),
    "step_target_ms": ("0",),
    "port": ("0",),
    "swap_space": ("0",),
    "cuda_device": ("0",),
    "metal_device": ("0",),
    "max_wait_ms": ("0",),
    "max_queue": ("0",),
    "max_queue_tokens": ("1000000000000",),
    "tolerance": ("0", "1000000000000"),
    "threshold": ("0", "1000000000000"),
    "invariance": ("0",),
    "spread": ("0",),
    "days": ("0",),
    "generate max_tokens": ("0",),
    "play max_tokens": ("0",),
}
NEEDED = {
    "generate": ["-p", "hello"],
    "plan": ["demo"],
    "convert": ["demo", "--to", "demo.gguf"],
    "play": ["demo"],
    "serve": ["demo"],
    "warmup": ["demo"],
    "verify": ["demo", "--quality", __file__, "--speculative"],
    "worker": [
        *("--worker-id", "w", "-m", "demo", "--port", "0"),
        *("--callback-url", "http://127.0.0.1:9/", "--device", "cpu"),
    ],
    "bench serve": ["--base-url", "http://127.0.0.1:9", "-m", "demo"],
}
NEEDED_BY = {"cuda_device": ["--device", "cuda"], "metal_device": ["--device", "metal"]}


class Begun(BaseException):
    """The command has read its options and begins its work."""


def begin(*_: object, **__: object) -> NoReturn:
    raise Begun


def commands(group: Typer, prefix: str = "") -> Iterator[tuple[str, Callable[..., Any]]]:
    for command in group.registered_commands:
        assert command.callback is not None
        yield prefix + (command.name or command.callback.__name__), command.callback
    for inner in group.registered_groups:
        assert inner.typer_instance is not None
        yield from commands(inner.typer_instance, f"{prefix}{inner.typer_instance.info.name} ")


def numeric_options() -> Iterator[tuple[str, str]]:
    for command, function in commands(app):
        for name, parameter in get_params_from_function(function).items():
            kinds = (parameter.annotation, *get_args(parameter.annotation))
            if isinstance(parameter.default, ParameterInfo) and {int, float} & {*kinds}:
                yield command, name


OPTIONS = list(numeric_options())
COMMAND = get_command(app)


@pytest.fixture(autouse=True)
def nothing_is_run(monkeypatch: pytest.MonkeyPatch) -> None:
    for place in (
        "inferno.loaded_model.build_engine",
        "inferno.server.app.start",
        "inferno.server.worker.start.start_worker",
        "inferno.verify.run.choose_oracle",
        "inferno.cli.bench.run",
        "inferno.cli.bench_serve.run_load",
        "inferno.cli.models.Store.of_user",
        "inferno.cli.plan.make_plan",
        "inferno.cli.warmup.print_text",  # that on a CPU there is nothing to do
        "inferno.convert.to_gguf.write_gguf",
    ):
        monkeypatch.setattr(place, begin)
    for place in ("inferno.cli.serve.spawned", "inferno.cli.worker.spawned"):
        monkeypatch.setattr(place, lambda _: nullcontext())


def test_every_command_is_looked_at() -> None:
    looked_at = {command for command, _ in OPTIONS}
    without_numbers = {"doctor", "download", "list", "show", "rm"}
    assert looked_at == {name for name, _ in commands(app)} - without_numbers
    assert len(OPTIONS) > 80


@pytest.mark.parametrize(("command", "name"), OPTIONS)
def test_a_number_out_of_range_is_refused_by_name(
    command: str, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    option = "--" + name.replace("_", "-")
    asked = [*command.split(), *NEEDED.get(command, []), *NEEDED_BY.get(name, [])]
    in_range = IN_RANGE.get(f"{command} {name}", IN_RANGE.get(name, ()))
    for value in VALUES:
        with pytest.raises(Begun if value in in_range else SystemExit) as ended:
            COMMAND.main([*asked, f"{option}={value}"], prog_name="inferno")
        if value not in in_range:
            output, errors = capsys.readouterr()
            assert (getattr(ended.value, "code", 0), output) == (2, ""), (value, errors)
            check(errors.splitlines()[-1], option, value)


def check(said: str, option: str, value: str) -> None:
    """The line names the option, what was given and what was expected."""
    assert re.match(rf"error: {option} |Error: Invalid value for '{option}'.*: it ", said), said
    assert " must be " in said, said
    assert len(said) < 300
    given = said.rpartition(", not ")[2].strip("'")
    assert given in (value, *_as_number(value)) or "..." in given, said


def _as_number(value: str) -> tuple[str, ...]:
    try:
        return (str(float(value)),)
    except ValueError:
        return ()
