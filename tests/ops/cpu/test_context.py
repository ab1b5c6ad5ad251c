"""A thread's kernels stay where they are, even where an interrupt leaves it bound to them."""

from __future__ import annotations

import gc
from threading import Thread

import pytest
import torch

from inferno import ops
from inferno.ops.cpu.panels import PanelWeight
from inferno.quantization import FLOAT32, INT8

CPU = torch.device("cpu")


@pytest.mark.skipif(not ops.has_kernels(CPU, INT8), reason="no compiled kernels run here")
def test_a_context_that_was_never_left_outlives_its_engine() -> None:
    problems: list[BaseException] = []

    def interrupted() -> None:
        try:
            context = ops.kernel_context(1)
            context.__enter__()
            del context
            gc.collect()
            x_TE = torch.randn(40, 64)
            weight = ops.pack(torch.randn(32, 64), FLOAT32)
            assert isinstance(weight, PanelWeight)
            for _ in range(100):
                ops.linear(x_TE, weight)
        except BaseException as problem:
            problems.append(problem)

    thread = Thread(target=interrupted)
    thread.start()
    thread.join()
    assert not problems
