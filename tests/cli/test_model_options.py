"""Options that commands share: how a model is loaded under their bar."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from inferno.cli import model_options
from inferno.cli.model_options import load_model
from inferno.cli.terminal import LoadingBar
from tests.engine.fake_device import Device, fake_device

__all__ = ["fake_device"]  # a fixture


class Shown:
    """What a bar shows, in order, but for the bytes."""

    def __init__(self) -> None:
        self.words: list[str] = []

    def add_task(self, what: str, **_: Any) -> int:
        self.update(0, description=what)
        return 0

    def update(self, task: int, *, description: str | None = None, **_: Any) -> None:
        if description is not None and self.words[-1:] != [description]:
            self.words.append(description)


def test_steps_that_are_recorded_at_the_start_are_shown(
    fake_device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown: Any = Shown()

    @contextmanager
    def loading_bar() -> Iterator[LoadingBar]:
        yield LoadingBar(shown, "loading")

    monkeypatch.setattr(model_options, "loading_bar", loading_bar)
    small = {"threads": 1, "num_blocks": 64, "max_model_len": 64, "max_num_seqs": 2}
    with load_model("demo", capture_graphs="start", **small):
        assert fake_device.num_captures > 0
    first, *steps = shown.words
    assert first == "loading"
    assert len(steps) >= fake_device.num_captures
    assert steps == [f"recording step {i} of {len(steps)}" for i in range(1, len(steps) + 1)]
