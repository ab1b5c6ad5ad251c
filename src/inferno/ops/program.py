"""An engine's context for its kernels, and recorded forward passes, whatever the device.

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
        """Bind it to this thread."""

    def __exit__(self, *problem: object) -> None:
        """Bind what was bound before."""

    def release_memory(self) -> None:
        """Let the system have the memory of results that nobody holds; for between two steps."""


class NotRecordable(Exception):
    """Raised when a function to be recorded computes something by other means than kernels."""


class Program(Protocol):
    """A function that was recorded; it reads and writes the same memory each time it runs."""

    def run(self) -> Tensor:
        """Compute the result for what lies in that memory now.

        It lasts until a program of the same recorder is run or made.
        """


class Recorder(Protocol):
    """A recorder of functions that run one after the other, and share memory in between."""

    def record(self, function: Callable[[], Tensor]) -> tuple[Program, Tensor]:
        """Return the function as a program, and its first result. Raises NotRecordable."""
