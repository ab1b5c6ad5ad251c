"""How much memory a device has left: what may still be allocated without being killed for it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import torch

_ROOT = Path("/")


def available_bytes(device: torch.device, root: Path = _ROOT) -> int | None:
    """Bytes that can be allocated on `device` now, or None where it can't be known.

    On the CPU the least of what the kernel and each enclosing control group leave; `root` is
    where proc/ and sys/ are.
    """
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    if device.type != "cpu":
        return None
    known = [_meminfo_available(root), *_cgroup_v2_available(root), *_cgroup_v1_available(root)]
    return min((available for available in known if available is not None), default=None)


def _meminfo_available(root: Path) -> int | None:
    for line in _read(root / "proc/meminfo").splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return None


def _cgroup_v2_available(root: Path) -> Iterator[int | None]:
    for line in _read(root / "proc/self/cgroup").splitlines():
        if line.startswith("0::"):
            for folder in _self_and_parents(root / "sys/fs/cgroup", line.removeprefix("0::")):
                yield _left(folder, "memory.max", "memory.current", "")


def _cgroup_v1_available(root: Path) -> Iterator[int | None]:
    for line in _read(root / "proc/self/cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        if "memory" in controllers.split(","):
            for folder in _self_and_parents(root / "sys/fs/cgroup/memory", path):
                yield _left(folder, "memory.limit_in_bytes", "memory.usage_in_bytes", "total_")


def _self_and_parents(top: Path, path: str) -> Iterator[Path]:
    """The group's folder and all above it; in a container only the top may be there."""
    group = Path(path.strip("/"))
    for relative in dict.fromkeys((group, *group.parents)):
        yield top / relative


def _left(folder: Path, limit: str, usage: str, prefix: str) -> int | None:
    """The group's limit less what it uses, where cached files count as free: they make way."""
    limit_bytes, usage_bytes = _read(folder / limit).strip(), _read(folder / usage).strip()
    if not limit_bytes.isdigit() or not usage_bytes.isdigit():  # no such group, or "max"
        return None
    counters = dict(line.split() for line in _read(folder / "memory.stat").splitlines())
    cached = sum(int(counters.get(f"{prefix}{kind}_file", 0)) for kind in ("active", "inactive"))
    return max(0, int(limit_bytes) - int(usage_bytes) + cached)


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
