"""Capture a forward pass as a list of kernel calls, which then run with no Python in between."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from inferno import _native
from inferno.ops.captured_graph import KernelContext, NotCapturable


class CallList:
    """A captured list of kernel calls, which is run again in order.

    result      the result, contiguous; its memory is given back to the arena, so that all graphs
                compute in the same memory.
    context     the context that owns the arena; the list keeps it alive.
    """

    def __init__(
        self, native: _native.CapturedGraph, result: Tensor, context: _native.KernelContext
    ) -> None:
        self._native = native
        self._result = _borrowed(result)
        self._context = context

    def replay(self) -> Tensor:
        self._native.run()
        return self._result


class CallCapture:
    """A recorder of a context's kernel calls, with an arena of its own for results."""

    def __init__(self, context: _native.KernelContext) -> None:
        self._context = context

    def capture(self, function: Callable[[], Tensor]) -> tuple[CallList, Tensor]:
        native = _native.CapturedGraph(self._context)
        with self._context, _OnlyViews():  # type: ignore[no-untyped-call]
            native.start()
            try:
                result = function()
            finally:
                native.stop()
        return CallList(native, result, self._context), result


def graph_capture(context: KernelContext) -> CallCapture:
    assert isinstance(context, _native.KernelContext), "a context of another backend"
    return CallCapture(context)


class _OnlyViews(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """A mode that refuses torch's operators that compute: the record would lack them."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # else torch imports its compiler to keep it away: over a second

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if func._schema.is_mutable or not _places(result) <= _places(args):
            raise NotCapturable(f"the forward pass uses torch's {func}, which is no kernel")
        return result


def _borrowed(result: Tensor) -> Tensor:
    """Return a tensor of the same values in the same memory, which somebody else owns."""
    assert result.is_contiguous(), "hidden states lie without gaps"
    memory = (ctypes.c_char * result.nbytes).from_address(result.data_ptr())
    return torch.frombuffer(memory, dtype=result.dtype).view(result.shape)


def _places(values: Any) -> set[int]:
    """Return the addresses at which the memory of tensors begins."""
    return {
        value.untyped_storage().data_ptr()
        for value in tree_leaves(values)
        if isinstance(value, Tensor)
    }
