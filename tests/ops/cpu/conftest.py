"""The compiled kernels' tests run at every level of instruction sets that the processor has."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import NoReturn

import pytest

if find_spec("inferno._native"):
    from inferno import _native as native

    LEVELS = native.isas()
else:
    LEVELS = []


class NotBuilt(pytest.Module):
    """A file of tests that could not even be imported."""

    def collect(self) -> NoReturn:
        pytest.skip("no compiled kernels were built here")


def pytest_pycollect_makemodule(
    module_path: Path, parent: pytest.Collector
) -> pytest.Module | None:
    return None if LEVELS else NotBuilt.from_parent(parent, path=module_path)


@pytest.fixture(params=LEVELS)
def level(request: pytest.FixtureRequest) -> Iterator[str]:
    """The level that runs."""
    before = native.isa()
    native.set_isa(request.param)
    yield request.param
    native.set_isa(before)


@pytest.fixture
def two_threads() -> Iterator[None]:
    """Two threads share the work."""
    with native.KernelContext(2):
        yield
