"""Copy numbers to a device and back, whatever the device.

A device with a stream of its own computes after the call has returned. So its inputs must not
change until they were read, and its results are there only after a wait. Numbers are 64-bit
integers both ways; floats travel as their bits.
"""

from __future__ import annotations

from typing import Protocol

from torch import Tensor


class Upload(Protocol):
    """The numbers that steps read: host memory to write to, and the device's copy."""

    @property
    def device_N(self) -> Tensor:
        """Return the device's memory, int64, whose address never changes."""
        ...

    def begin(self) -> Tensor:
        """Return host memory [N] to write to, which no copy reads any more.

        It is other memory than the last call returned, where a copy of that may be under way.
        """
        ...

    def send(self, num_values: int) -> None:
        """Begin to copy the first numbers that were written since `begin`, in one copy.

        Work that the device was given before reads the old numbers, later work the new ones.
        """
        ...


class Fetched(Protocol):
    """Numbers on their way from the device."""

    def wait(self) -> Tensor:
        """Wait for the numbers, once a step; return them in the host's memory.

        The numbers last until the second `fetch` from now.
        """
        ...


class Download(Protocol):
    """A way of a step's results to the host."""

    def fetch(self, values_N: Tensor) -> Fetched:
        """Begin to copy numbers of the device, int64, after all work that it was given before."""
        ...


class HostUpload:
    """An upload for a device that computes on the host's memory, before a call returns."""

    def __init__(self, values_N: Tensor) -> None:
        self.device_N = values_N

    def begin(self) -> Tensor:
        return self.device_N

    def send(self, num_values: int) -> None:
        pass


class HostDownload:
    """A download for a device whose results are in the host's memory already."""

    def fetch(self, values_N: Tensor) -> Fetched:
        return _AtHome(values_N)


class _AtHome:
    def __init__(self, values_N: Tensor) -> None:
        self._values_N = values_N

    def wait(self) -> Tensor:
        return self._values_N
