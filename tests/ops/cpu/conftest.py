"""The compiled kernels' tests run at every level of instruction sets that the processor has."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

native = pytest.importorskip("inferno._native")


@pytest.fixture(params=native.levels())
def level(request: pytest.FixtureRequest) -> Iterator[str]:
    """The level that runs."""
    before = native.level()
    native.set_level(request.param)
    yield request.param
    native.set_level(before)


@pytest.fixture
def two_threads() -> Iterator[None]:
    """Two threads share the work."""
    native.set_threads(2)
    yield
    native.set_threads(1)
