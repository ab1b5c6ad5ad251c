"""The operating system's files, as kernels and containers write them, become numbers."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from inferno import machine

XEON = """processor\t: 0
vendor_id\t: GenuineIntel
model\t\t: 143
model name\t: Intel(R) Xeon(R) Platinum 8480+
flags\t\t: fpu avx2 fma avx512f amx_tile
bugs\t\t: spectre_v1

processor\t: 1
model name\t: another
flags\t\t: fpu
"""
GRAVITON = """processor\t: 0
Features\t: fp asimd asimddp bf16
CPU implementer\t: 0x41
CPU part\t: 0xd40
"""


def write(root: Path, files: dict[str, str]) -> Path:
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    return root


def test_an_x86_processor_is_named_and_lists_its_flags() -> None:
    found = machine.parse_cpuinfo(XEON)
    assert found.name == "Intel(R) Xeon(R) Platinum 8480+"
    assert found.features == {"fpu", "avx2", "fma", "avx512f", "amx_tile"}


def test_an_arm_processor_is_named_by_its_numbers() -> None:
    found = machine.parse_cpuinfo(GRAVITON)
    assert found.name == "Arm, implementer 0x41, part 0xd40"
    assert found.features == {"fp", "asimd", "asimddp", "bf16"}
    assert (
        machine.parse_cpuinfo(GRAVITON + "\nModel\t\t: Raspberry Pi 5\n").name == "Raspberry Pi 5"
    )


@pytest.mark.parametrize("text", ["", "nonsense", ":::\n:\n", "\0\ufffd"])
def test_a_strange_cpuinfo_says_nothing(text: str) -> None:
    assert machine.parse_cpuinfo(text) == machine.Cpu(name=None, features=frozenset())


def test_without_any_file_everything_is_unknown(tmp_path: Path) -> None:
    assert machine.read_cpu(tmp_path).name is None
    assert machine.count_cores(frozenset({0}), tmp_path) is None
    assert machine.cpu_quota(tmp_path) is None
    assert machine.total_memory(tmp_path) is None
    assert machine.memory_limit(tmp_path) is None
    assert machine.available_memory(tmp_path) is None
    assert machine.num_usable_cores(tmp_path) == len(machine.allowed_cpus())


def test_hardware_threads_of_one_core_count_once(tmp_path: Path) -> None:
    siblings = {0: "0,2", 1: "1,3", 2: "0,2", 3: "1,3"}
    write(
        tmp_path,
        {
            f"sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list": f"{names}\n"
            for cpu, names in siblings.items()
        },
    )
    assert machine.count_cores(frozenset({0, 1, 2, 3}), tmp_path) == 2
    assert machine.count_cores(frozenset({0, 2}), tmp_path) == 1
    assert machine.count_cores(frozenset({0, 4}), tmp_path) is None


@pytest.mark.parametrize(
    ("group", "files", "quota"),
    [
        ("0::/a/b", {"a/b/cpu.max": "150000 100000\n"}, 1.5),
        ("0::/a/b", {"a/cpu.max": "50000 100000\n", "a/b/cpu.max": "max 100000\n"}, 0.5),
        ("0::/a/b", {"a/cpu.max": "50000 100000\n", "a/b/cpu.max": "300000 100000\n"}, 0.5),
        ("0::/", {"cpu.max": "max 100000\n"}, None),
        ("0::/", {"cpu.max": "5 0\n"}, None),
        (
            "3:cpu,cpuacct:/a",
            {"cpu/a/cpu.cfs_quota_us": "200000\n", "cpu/a/cpu.cfs_period_us": "100000\n"},
            2.0,
        ),
        (
            "3:cpu,cpuacct:/a",
            {"cpu/a/cpu.cfs_quota_us": "-1\n", "cpu/a/cpu.cfs_period_us": "100000\n"},
            None,
        ),
        ("broken", {}, None),
    ],
)
def test_the_quota_is_the_least_of_all_groups_around(
    group: str, files: dict[str, str], quota: float | None, tmp_path: Path
) -> None:
    tree = {f"sys/fs/cgroup/{name}": content for name, content in files.items()}
    write(tmp_path, {"proc/self/cgroup": group + "\n", **tree})
    assert machine.cpu_quota(tmp_path) == quota


@pytest.mark.parametrize(("quota", "cores"), [("max", 2), ("150000", 2), ("50000", 1)])
def test_usable_cores_are_those_allowed_within_the_quota(
    quota: str, cores: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 2, 3}, raising=False)
    topology = "sys/devices/system/cpu/cpu{}/topology/thread_siblings_list"
    write(tmp_path, {topology.format(cpu): f"{cpu % 2},{cpu % 2 + 2}\n" for cpu in range(4)})
    write(tmp_path, {"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": f"{quota} 100000\n"})
    assert machine.num_usable_cores(tmp_path) == cores


def test_a_huge_limit_is_none(tmp_path: Path) -> None:
    write(
        tmp_path,
        {
            "proc/self/cgroup": "4:memory:/\n",
            "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n",
            "sys/fs/cgroup/memory/memory.usage_in_bytes": "5\n",
        },
    )
    assert machine.memory_limit(tmp_path) is None
    assert machine.available_memory(tmp_path) is None


def test_memory_is_what_the_kernel_and_the_groups_say(tmp_path: Path) -> None:
    write(
        tmp_path,
        {
            "proc/meminfo": "MemTotal: 9000 kB\nMemAvailable: 4096 kB\n",
            "proc/self/cgroup": "4:memory:/a\n0::/a\n",
            "sys/fs/cgroup/memory/a/memory.limit_in_bytes": "3000000\n",
            "sys/fs/cgroup/memory/a/memory.usage_in_bytes": "1000000\n",
            "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n",
            "sys/fs/cgroup/memory/memory.usage_in_bytes": "5\n",
        },
    )
    assert machine.total_memory(tmp_path) == 9000 * 1024
    assert machine.memory_limit(tmp_path) == 3_000_000
    assert machine.available_memory(tmp_path) == 2_000_000
