"""Numbers on their way to a device and back, whatever the device.

A device with a stream of its own computes after the call that asks for it has returned. So what it
is to read must stay as it is until it was read, and what it writes is there only when somebody has
waited for it. Both ways are 64-bit integers; floats travel as their bits.
"""

from __future__ import annotations

from typing import Protocol

from torch import Tensor


class Upload(Protocol):
    """The numbers that steps read: memory of the host to write, and the device's copy of it."""

    @property
    def device_N(self) -> Tensor:
        """Return the device's memory, int64, at the same address for good."""
        ...

    def begin(self) -> Tensor:
        """Return the host's memory [N] to write anew: nobody reads it any more.

        It isn't what the last call returned where a copy of that may still be under way.
        """
        ...

    def send(self, num_values: int) -> None:
        """Begin to copy the first numbers that were written since `begin`, in one copy.

        What the device was asked for before reads the old ones, and what comes after the new ones.
        """
        ...


class Fetched(Protocol):
    """Numbers on their way from the device."""

    def wait(self) -> Tensor:
        """Wait for the numbers, once a step; return them in the host's memory.

        They last until the next but one are fetched.
        """
        ...


class Download(Protocol):
    """The way of a step's results to the host."""

    def fetch(self, values_N: Tensor) -> Fetched:
        """Begin to copy numbers of the device, int64, behind what it was asked for before."""
        ...


class HostUpload:
    """An upload where the device computes on the host's memory, in the call that asks for it."""

    def __init__(self, values_N: Tensor) -> None:
        self.device_N = values_N

    def begin(self) -> Tensor:
        return self.device_N

    def send(self, num_values: int) -> None:
        pass


class HostDownload:
    """A download where there is no way to go."""

    def fetch(self, values_N: Tensor) -> Fetched:
        return _AtHome(values_N)


class _AtHome:
    def __init__(self, values_N: Tensor) -> None:
        self._values_N = values_N

    def wait(self) -> Tensor:
        return self._values_N
