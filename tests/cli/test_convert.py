"""`inferno convert`: what it prints, what it refuses, and what an interrupt leaves behind."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import NoReturn

import gguf
import pytest
from typer.testing import CliRunner, Result

from inferno.cli.app import app


def convert(*given: str | Path) -> Result:
    return CliRunner().invoke(app, ["convert", *map(str, given)])


def test_it_says_what_it_wrote(tmp_path: Path) -> None:
    target = tmp_path / "demo.gguf"
    result = convert("demo", "--to", target, "--type", "Q4_K_M", "--threads", "1", "--json")
    assert result.exit_code == 0, result.output
    facts = json.loads(result.stdout)
    assert facts["path"] == str(target)
    assert facts["bytes"] == target.stat().st_size
    tensors = gguf.GGUFReader(target).tensors
    for name, size in facts["types"].items():
        assert size == sum(int(one.n_bytes) for one in tensors if one.tensor_type.name == name)
    again = convert("demo", "--to", target)
    assert again.exit_code == 1
    assert again.stderr.startswith(f"error: {target} is there already")
    forced = convert("demo", "--to", target, "--force")
    assert forced.stdout == f"{target}: 7.94 MB (7.86 MB BF16, 9.22 kB F32)\n", forced.output
    field = gguf.GGUFReader(target).fields["general.name"]
    assert field.contents() == "demo"


def test_a_folder_it_wrote_answers(tmp_path: Path) -> None:
    result = convert("demo", "--to", tmp_path / "packed", "--type", "q8_0")
    assert result.exit_code == 0, result.output
    given = ["generate", "-m", str(tmp_path / "packed"), "-p", "Once", "-t", "0"]
    answer = CliRunner().invoke(app, [*given, "--max-tokens", "4", "--threads", "1"])
    assert answer.exit_code == 0, answer.output
    assert answer.stdout


REFUSED = {
    "--type must be one of f32": ("demo", "--to", "a.gguf", "--type", "q3"),
    "is not on this machine": ("nobody/nothing", "--to", "a.gguf"),
    "there is no folder": ("demo", "--to", "no/a.gguf"),
    "--force replaces files alone": ("demo", "--to", "a", "--force"),
}


@pytest.mark.parametrize("said", REFUSED)
def test_mistakes_are_told_in_a_line(
    said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = convert(*REFUSED[said])
    assert result.exit_code in (1, 2)
    assert said in result.stderr
    assert len(result.stderr.splitlines()) == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("which", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("name", ["a.gguf", "a"])
def test_an_interrupt_leaves_nothing_behind(
    which: signal.Signals, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Left(BaseException):
        """The process would have ended here."""

    def leave(code: int) -> NoReturn:
        raise Left(code)

    seen: list[list[str]] = []

    def interrupt(*_: object) -> None:
        seen.append([path.name for path in tmp_path.iterdir()])
        signal.raise_signal(which)

    monkeypatch.setattr("inferno.cli.errors.os._exit", leave)
    handlers = [signal.getsignal(one) for one in (signal.SIGINT, signal.SIGTERM)]
    monkeypatch.setattr("inferno.convert.encoder.Encoder.encode", interrupt)
    with pytest.raises(Left):
        convert("demo", "--to", tmp_path / name)
    assert seen == [[f"{name}.part"]]
    assert list(tmp_path.iterdir()) == []
    assert [signal.getsignal(one) for one in (signal.SIGINT, signal.SIGTERM)] == handlers
