"""Kernels in Triton: on a GPU where one is here, otherwise by Triton's interpreter on the CPU."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
import torch

pytest.importorskip("triton")

from inferno.ops.cuda.chips import INTERPRETED
from tests.ops.cuda import faster_interpreter
from tests.ops.cuda.launches import listed_forms, noted_launches

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")

if not torch.cuda.is_available():  # a compiler is not to be meddled with
    faster_interpreter.install()


# Has tests believe in a GPU: whatever they do on the wrong device is found without one.
IS_EMULATED = bool(os.environ.get("INFERNO_EMULATED_GPU"))


@pytest.fixture(autouse=IS_EMULATED)
def _emulated(request: pytest.FixtureRequest) -> Iterator[None]:
    from tests.ops.cuda.emulated_gpu import emulated_gpu  # noqa: PLC0415 - for who asks for it

    with emulated_gpu():
        yield


@pytest.fixture
def only_listed_forms() -> Iterator[None]:
    """Have a test fail that launches a kernel in a form that isn't listed among those shipped."""
    with noted_launches() as launched:
        yield
    assert sorted(launched - listed_forms(INTERPRETED), key=repr) == []


@pytest.fixture
def device() -> torch.device:
    return torch.device("cuda") if IS_EMULATED else DEVICE
