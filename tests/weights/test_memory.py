"""Free memory is the least of what the kernel and every enclosing control group leave."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from inferno.weights.memory import available_bytes

CPU = torch.device("cpu")
MIB = 1 << 20


def write(root: Path, files: dict[str, str]) -> Path:
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    return root


MEMINFO = {"proc/meminfo": "MemTotal: 9000 kB\nMemAvailable: 4096 kB\n"}


def test_without_control_groups_it_is_what_the_kernel_says(tmp_path: Path) -> None:
    assert available_bytes(CPU, write(tmp_path, MEMINFO)) == 4 * MIB


def test_elsewhere_it_is_unknown(tmp_path: Path) -> None:
    assert available_bytes(CPU, tmp_path) is None
    assert available_bytes(torch.device("mps"), write(tmp_path, MEMINFO)) is None


@pytest.mark.parametrize("group", ["a", "a/b", ""])
def test_the_limit_of_a_control_group_counts_and_cached_files_are_free(
    group: str, tmp_path: Path
) -> None:
    files = {
        "proc/self/cgroup": "0::/a/b\n",
        f"sys/fs/cgroup/{group}/memory.max": f"{3 * MIB}\n",
        f"sys/fs/cgroup/{group}/memory.current": f"{2 * MIB}\n",
        f"sys/fs/cgroup/{group}/memory.stat": "anon 5\nactive_file 100\ninactive_file 200\n",
    }
    assert available_bytes(CPU, write(tmp_path, MEMINFO | files)) == MIB + 300


def test_a_control_group_without_limit_does_not_count(tmp_path: Path) -> None:
    files = {
        "proc/self/cgroup": "0::/a\n",
        "sys/fs/cgroup/a/memory.max": "max\n",
        "sys/fs/cgroup/a/memory.current": "5\n",
    }
    assert available_bytes(CPU, write(tmp_path, MEMINFO | files)) == 4 * MIB


def test_a_full_control_group_leaves_nothing(tmp_path: Path) -> None:
    files = {
        "proc/self/cgroup": "0::/\n",
        "sys/fs/cgroup/memory.max": "10\n",
        "sys/fs/cgroup/memory.current": "20\n",
    }
    assert available_bytes(CPU, write(tmp_path, MEMINFO | files)) == 0


def test_control_groups_of_the_first_version_count_too(tmp_path: Path) -> None:
    files = {
        "proc/self/cgroup": "12:cpu,cpuacct:/a\n5:memory:/a\n0::/\n",
        "sys/fs/cgroup/memory/a/memory.limit_in_bytes": f"{2 * MIB}\n",
        "sys/fs/cgroup/memory/a/memory.usage_in_bytes": f"{MIB}\n",
        "sys/fs/cgroup/memory/a/memory.stat": "active_file 1\ntotal_active_file 100\n",
    }
    assert available_bytes(CPU, write(tmp_path, MEMINFO | files)) == MIB + 100


def test_this_machine_has_memory_left() -> None:
    available = available_bytes(CPU)
    assert available is None or available > 0
