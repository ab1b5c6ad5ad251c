"""Options that commands share: how a model is loaded under their bar."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from rich.console import Console

from inferno.cli import model_options, terminal
from inferno.cli.model_options import load_model
from inferno.cli.terminal import LoadingBar, loading_bar
from inferno.file_identity import FileIdentity
from inferno.gguf import file
from inferno.gguf.header import GgufHeader, ReadBytes, parse_header
from tests.data import data_path
from tests.engine.fake_device import Device, fake_device

__all__ = ["fake_device"]  # a fixture


class Shown:
    """What a bar shows, in order, but for the bytes."""

    def __init__(self) -> None:
        self.words: list[str] = []

    def add_task(self, what: str, **_: Any) -> int:
        self.update(0, description=what)
        return 0

    def remove_task(self, task: int) -> None:
        pass

    def update(self, task: int, *, description: str | None = None, **_: Any) -> None:
        if description is not None and self.words[-1:] != [description]:
            self.words.append(description)


def test_bytes_are_shown_of_what_is_counted_in_bytes_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    screen = io.StringIO()
    monkeypatch.setattr(
        terminal, "Console", lambda **_: Console(file=screen, force_terminal=True, width=100)
    )
    with loading_bar() as bar:
        bar(3_900_000, 7_800_000)
        bar._bar.refresh()
        assert "3.9/7.8 MB" in screen.getvalue()
        screen.truncate(0)
        bar.tell("compiling a_kernel for the GPU")
        bar._bar.refresh()
        assert "compiling a_kernel for the GPU" in screen.getvalue()
        assert " MB" not in screen.getvalue().rpartition("compiling")[2]


def test_steps_that_are_recorded_at_the_start_are_shown(
    fake_device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown: Any = Shown()

    @contextmanager
    def bar() -> Iterator[LoadingBar]:
        yield LoadingBar(shown, "loading")

    monkeypatch.setattr(model_options, "loading_bar", bar)
    small: dict[str, Any] = {"threads": 1, "num_blocks": 64, "max_model_len": 64, "max_num_seqs": 2}
    with load_model("demo", capture_graphs="start", **small):
        assert fake_device.num_captures > 0
    first, *steps = shown.words
    assert first == "loading"
    assert len(steps) >= fake_device.num_captures
    assert steps == [f"recording step {i} of {len(steps)}" for i in range(1, len(steps) + 1)]


def test_a_header_is_parsed_once_while_libraries_are_loaded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    done: list[str] = []

    @contextmanager
    def loading_libraries() -> Iterator[None]:
        done.append("begin")
        yield
        done.append("end")

    def parse(read: ReadBytes, file_size: int) -> GgufHeader:
        done.append("header")
        return parse_header(read, file_size)

    monkeypatch.setattr(FileIdentity, "is_settled", lambda _identity, _now: True)
    monkeypatch.setattr(file, "parse_header", parse)
    monkeypatch.setattr(model_options, "loading_libraries", loading_libraries)
    path = data_path("stories260K-gguf", "stories260K-f32-v3.gguf")
    with load_model(str(path), dtype="float32", threads=1, num_blocks=32) as llm:
        assert llm.vocab_size > 0
    assert done == ["begin", "header", "end"]
    assert not file._held
