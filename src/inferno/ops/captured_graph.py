"""An engine's context for its kernels, and captured forward passes, whatever the device.

Such a pass is a CUDA graph, or a list of kernel calls.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from torch import Tensor


class KernelContext(Protocol):
    """A number of threads, their memory, and memory for results: one engine's, for its ops.

    While a thread has entered it, all ops that are called there work with it; one thread at a time.
    """

    def __enter__(self) -> object:
        """Bind the context to this thread."""

    def __exit__(self, *problem: object) -> None:
        """Bind what was bound before."""

    def release_memory(self) -> None:
        """Let the system have the memory of results that nobody holds; for between two steps."""


class NotCapturable(Exception):
    """Raised when a function to be captured computes something by other means than kernels."""


class CapturedGraph(Protocol):
    """A function that was captured; it reads and writes the same memory each time it runs."""

    def replay(self) -> Tensor:
        """Compute the result for what lies in that memory now.

        It lasts until a graph of the same capture is replayed or made.
        """


class GraphCapture(Protocol):
    """Captures functions that run one after the other, and share memory in between."""

    def capture(self, function: Callable[[], Tensor]) -> tuple[CapturedGraph, Tensor]:
        """Return the function as a graph, and its first result. Raises NotCapturable."""
