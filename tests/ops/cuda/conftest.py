"""Kernels in Triton: on a GPU where one is here, otherwise by Triton's interpreter on the CPU."""

from __future__ import annotations

import pytest
import torch

pytest.importorskip("triton")

from tests.ops.cuda import faster_interpreter

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")

faster_interpreter.install()


@pytest.fixture
def device() -> torch.device:
    return DEVICE
