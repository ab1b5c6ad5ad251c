"""Measure the memory that may still be allocated on a device without being killed for it."""

from __future__ import annotations

from pathlib import Path

import torch

from inferno import machine


def available_bytes(device: torch.device, root: Path = machine.ROOT) -> int | None:
    """Return the bytes that can be allocated on `device` now, or None if unknown.

    On the CPU the least of what the kernel and each enclosing control group leave; `root` is
    where proc/ and sys/ are.
    """
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    return machine.available_memory(root) if device.type == "cpu" else None
