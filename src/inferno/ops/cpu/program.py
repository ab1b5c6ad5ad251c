"""A forward pass as a list of kernel calls: recorded once, then run with no Python between them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from inferno import _native
from inferno.ops.cpu.native import allocating_from
from inferno.ops.program import NotRecordable


class CallList:
    """Kernel calls that are made again, in order."""

    def __init__(self, native: _native.Program, result: Tensor) -> None:
        self._native = native
        self._result = result

    def run(self) -> Tensor:
        self._native.run()
        return self._result


class CallRecorder:
    """Records kernel calls; what they compute lies in one arena."""

    def __init__(self) -> None:
        self._arena = _native.Arena()

    def record(self, function: Callable[[], Tensor]) -> tuple[CallList, Tensor]:
        native = _native.Program()
        with allocating_from(self._arena), _OnlyViews():  # type: ignore[no-untyped-call]
            native.start()
            try:
                result = function()
            finally:
                native.stop()
        return CallList(native, result), result


def recorder() -> CallRecorder:
    return CallRecorder()


class _OnlyViews(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Refuses every operator of torch that computes: it would be missing from the record."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # else torch imports its compiler to keep it away: over a second

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if func._schema.is_mutable or not _places(result) <= _places(args):
            raise NotRecordable(f"the forward pass uses torch's {func}, which is no kernel")
        return result


def _places(values: Any) -> set[int]:
    """Where the memory of tensors begins."""
    return {
        value.untyped_storage().data_ptr()
        for value in tree_leaves(values)
        if isinstance(value, Tensor)
    }
