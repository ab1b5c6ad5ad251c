"""Have the interpreter make its products otherwise: in the order of inputs, or by a test."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import numpy as np
import pytest
import torch
from triton.runtime import interpreter

# For tests that record what kernels do, or have those of the CPU's tensors.
needs_interpreter = pytest.mark.skipif(
    torch.cuda.is_available() or "INFERNO_EMULATED_GPU" in os.environ,
    reason="kernels of a GPU are compiled, and keep no records",
)

# Operands and what their product is added to, as arrays -> the sum.
Product = Callable[[Any, Any, Any], Any]


@contextmanager
def intercepted(product: Product) -> Iterator[list[tuple[int, int, int]]]:
    """Have products made by a function; yields the program of each, the one under way last."""
    programs: list[tuple[int, int, int]] = []

    def create_dot(builder: Any, a: Any, b: Any, d: Any, *how: Any) -> Any:
        programs.append(builder.grid_idx)
        made = product(a.data, b.data, d.data)
        return interpreter.TensorHandle(made, d.dtype.scalar)

    with mock.patch.object(interpreter.InterpreterBuilder, "create_dot", create_dot):
        yield programs


@contextmanager
def in_order() -> Iterator[None]:
    """Add up one input after the other, each step rounded to float32, in tiles of any shape.

    On a GPU this changes nothing: its own order is what is tested.
    """
    if os.environ.get("TRITON_INTERPRET") != "1":
        yield
        return

    def product(a: Any, b: Any, d: Any) -> Any:
        a, b, total = a.astype(np.float32), b.astype(np.float32), d.copy()
        for k in range(a.shape[-1]):
            total += a[..., k : k + 1] * b[..., k : k + 1, :]
        return total

    with intercepted(product):
        yield
