"""Copy numbers to a GPU and back: page-locked memory, copies in the stream's order, events.

With pageable memory the driver stages the numbers itself, and makes the caller wait. Page-locked
memory is copied by the device while the caller goes on.
"""

from __future__ import annotations

from typing import Any

import numpy.typing as npt
import torch
from torch import Tensor


class PinnedUpload:
    """A way to a device: two buffers of the host that take turns, and one of the device.

    A buffer is written again once its last copy has ended. With one step in flight that is so
    already, so the host rarely waits here.
    """

    def __init__(self, num_values: int) -> None:
        self.device_N = torch.zeros(num_values, dtype=torch.int64)  # on the device in force
        self._buffers = [_pinned(num_values) for _ in range(2)]
        self._copied = [torch.cuda.Event() for _ in self._buffers]
        self._turn = 0

    def begin(self) -> Tensor:
        self._turn = 1 - self._turn
        self._copied[self._turn].synchronize()  # no event, no wait
        return self._buffers[self._turn]

    def send(self, num_values: int) -> None:
        source_N = self._buffers[self._turn][:num_values]
        self.device_N[:num_values].copy_(source_N, non_blocking=True)
        self._copied[self._turn].record()


class PinnedDownload:
    """A way to the host: two buffers that take turns, one read while the other is written."""

    def __init__(self, num_values: int) -> None:
        self._buffers = [_pinned(num_values) for _ in range(2)]
        self._arrived = [torch.cuda.Event() for _ in self._buffers]
        self._turn = 0

    def fetch(self, values_N: Tensor) -> _Fetched:
        self._turn = 1 - self._turn
        target_N = self._buffers[self._turn][: len(values_N)]
        target_N.copy_(values_N, non_blocking=True)
        self._arrived[self._turn].record()
        return _Fetched(target_N, self._arrived[self._turn])


class _Fetched:
    def __init__(self, values_N: Tensor, arrived: torch.cuda.Event) -> None:
        self._values_N = values_N
        self._arrived = arrived

    def wait(self) -> Tensor:
        self._arrived.synchronize()
        return self._values_N


def sent(values: npt.NDArray[Any], device: torch.device) -> Tensor:
    """Begin to copy numbers of the host to new memory of the device, without waiting."""
    values_N = torch.from_numpy(values)
    # PyTorch keeps pinned memory for the next time, once the copy has ended.
    values_N = values_N.pin_memory() if device.type == "cuda" else values_N.clone()
    return values_N.to(device, non_blocking=True)


def is_asynchronous() -> bool:
    return True


def new_upload(num_values: int) -> PinnedUpload:
    return PinnedUpload(num_values)


def new_download(num_values: int) -> PinnedDownload:
    return PinnedDownload(num_values)


def _pinned(num_values: int) -> Tensor:
    return torch.zeros(num_values, dtype=torch.int64, device="cpu", pin_memory=True)
