"""Ask the operating system for this machine's cores and memory, and our share of both.

Functions take `root`, the folder of proc/ and sys/. They return None for unknown values.
"""

from __future__ import annotations

import ctypes
import math
import os
import re
import resource
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

ROOT = Path("/")
# Linux's names for bfloat16 dot products: AVX-512, AMX, and Arm's extension.
_BF16_FLAGS = frozenset({"avx512_bf16", "amx_bf16", "bf16"})
_NO_LIMIT = 2**62  # a control group of the first version says "none" with a number about as large


@dataclass(frozen=True, slots=True, kw_only=True)
class Cpu:
    """A processor's name, and the features that the kernel lists for it."""

    name: str | None
    features: frozenset[str]


def parse_cpuinfo(text: str) -> Cpu:
    """Return the first processor of /proc/cpuinfo, whose keys differ between x86 and Arm."""
    first: dict[str, str] = {}
    for line in text.splitlines():
        key, colon, value = line.partition(":")
        if colon:
            first.setdefault(key.strip().lower(), value.strip())
    name = first.get("model name") or first.get("cpu model") or first.get("model")
    if name is None and "cpu part" in first:
        name = f"Arm, implementer {first.get('cpu implementer')}, part {first['cpu part']}"
    features = first.get("flags") or first.get("features") or ""
    return Cpu(name=name, features=frozenset(features.split()))


def read_cpu(root: Path = ROOT) -> Cpu:
    """Read this machine's processor; no name or features where there is no /proc/cpuinfo."""
    return parse_cpuinfo(_read(root / "proc/cpuinfo"))


def has_bfloat16(root: Path = ROOT) -> bool:
    """Return whether this machine's processor multiplies bfloat16."""
    return not _BF16_FLAGS.isdisjoint(read_cpu(root).features)


def allowed_cpus() -> frozenset[int]:
    """Return the hardware threads that this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return frozenset(os.sched_getaffinity(0))
    return frozenset(range(os.cpu_count() or 1))


def count_cores(cpus: frozenset[int], root: Path = ROOT) -> int | None:
    """Return how many physical cores some hardware threads belong to."""
    # Hardware threads of one core have the same list of siblings.
    siblings = {_read(_topology(root, cpu)) for cpu in cpus}
    return None if "" in siblings else len(siblings)


def cpu_quota(root: Path = ROOT) -> float | None:
    """Return the CPUs' worth of time that the control groups grant, or None without a limit."""
    granted = [_granted(folder) for folder in _cgroup_folders("cpu", root)]
    return min((quota for quota in granted if quota is not None), default=None)


def num_usable_cores(root: Path = ROOT) -> int:
    """Return how many physical cores this process may keep busy, by affinity and by quota."""
    allowed = allowed_cpus()
    cores = count_cores(allowed, root) or len(allowed)
    quota = cpu_quota(root)
    return cores if quota is None else max(1, min(cores, math.ceil(quota)))


def total_memory(root: Path = ROOT) -> int | None:
    """Return the bytes of memory in the machine."""
    return _meminfo(root, "MemTotal")


def memory_limit(root: Path = ROOT) -> int | None:
    """Return the bytes that the control groups grant, or None without a limit."""
    limits = [limit for limit, _ in _memory_of_groups(root)]
    return min(limits, default=None)


def address_space_limit() -> int | None:
    """Return the bytes that this process may map (`ulimit -v`), or None without a limit."""
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    return None if limit == resource.RLIM_INFINITY else limit


def available_memory(root: Path = ROOT) -> int | None:
    """Return the bytes that can be allocated now: the least of what kernel and groups leave."""
    known = [_meminfo(root, "MemAvailable"), *(left for _, left in _memory_of_groups(root))]
    return min((left for left in known if left is not None), default=None)


def own_memory(process: int | None = None, root: Path = ROOT) -> int | None:
    """Return the bytes that a process has for itself: resident, and no pages of files.

    process  the process's id; None: this process.
    """
    status = _read(root / f"proc/{process or 'self'}/status")
    found = re.findall(r"^(?:RssAnon|RssShmem):\s*(\d+) kB$", status, re.M)
    return 1024 * sum(map(int, found)) if found else None


def return_free_memory() -> None:
    """Give the system back what the heap has free; takes milliseconds."""
    if sys.platform == "linux":
        with suppress(AttributeError):  # a C library that has no such thing
            ctypes.CDLL(None).malloc_trim(0)


def readable_size(num_bytes: int) -> str:
    """Return a number of bytes in words for people, such as 1.5 GB."""
    value, unit = float(num_bytes), "B"
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if value < 1000 or unit == "TB":
            break
        value /= 1000
    return f"{value:.3g} {unit}"


def _topology(root: Path, cpu: int) -> Path:
    return root / f"sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list"


def _granted(folder: Path) -> float | None:
    second = re.fullmatch(r"(\d+) ([1-9]\d*)", _read(folder / "cpu.max"))  # else "max PERIOD"
    if second:
        return int(second[1]) / int(second[2])
    quota, period = _number(folder / "cpu.cfs_quota_us"), _number(folder / "cpu.cfs_period_us")
    return quota / period if quota and period else None  # a quota of -1 is none


def _memory_of_groups(root: Path) -> Iterator[tuple[int, int]]:
    """Yield (limit, what is left of it) of each group that has a limit.

    Cached files count as free: they make way.
    """
    for folder in _cgroup_folders("memory", root):
        for limit_file, usage_file, prefix in (
            ("memory.max", "memory.current", ""),
            ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_"),
        ):
            limit, usage = _number(folder / limit_file), _number(folder / usage_file)
            if limit is None or usage is None or limit >= _NO_LIMIT:
                continue
            counters = dict(re.findall(r"^(\w+) (\d+)$", _read(folder / "memory.stat"), re.M))
            cached = (counters.get(f"{prefix}{kind}_file", 0) for kind in ("active", "inactive"))
            yield limit, max(0, limit - usage + sum(map(int, cached)))


def _cgroup_folders(controller: str, root: Path) -> Iterator[Path]:
    """Yield our control group's folder and all around it; containers may have only the top."""
    top = root / "sys/fs/cgroup"
    for line in _read(root / "proc/self/cgroup").splitlines():
        _, controllers, path = (*line.split(":", 2), "", "")[:3]
        if controllers and controller not in controllers.split(","):
            continue
        group = Path(path.strip("/"))
        for relative in dict.fromkeys((group, *group.parents)):
            yield (top / controller if controllers else top) / relative


def _meminfo(root: Path, key: str) -> int | None:
    found = re.search(rf"^{key}:\s*(\d+) kB$", _read(root / "proc/meminfo"), re.M)
    return int(found[1]) * 1024 if found else None


def _number(path: Path) -> int | None:
    text = _read(path)
    return int(text) if re.fullmatch(r"[0-9]{1,20}", text) else None


def _read(path: Path) -> str:
    try:
        return path.read_text(errors="replace").strip()
    except (OSError, ValueError):
        return ""
