"""Memory of weights: aligned, its own, beside others, and given back with the last of them."""

from __future__ import annotations

import gc
from pathlib import Path

import pytest
import torch

from inferno.ops.cpu import huge_pages
from inferno.ops.cpu.huge_pages import weight_memory

HUGE_PAGE = 2 << 20


@pytest.fixture(autouse=True)
def own_slabs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(huge_pages, "_slabs", huge_pages._Slabs())


@pytest.mark.parametrize("num_bytes", [0, 1, 65535, 65536, 65537, 5 << 20, 129 << 20])
def test_it_is_as_long_as_asked_for_and_aligned(num_bytes: int) -> None:
    for _ in range(3):
        memory = weight_memory(num_bytes)
        assert memory.dtype is torch.uint8
        assert len(memory) == num_bytes
        assert memory.data_ptr() % 64 == 0


def test_each_weight_has_memory_of_its_own() -> None:
    sizes = [70_000 + 999 * index for index in range(60)]
    parts = [weight_memory(size) for size in sizes]
    for number, part in enumerate(parts):
        part.fill_(number)
    for number, (part, size) in enumerate(zip(parts, sizes, strict=True)):
        assert part.eq(number).all()
        assert len(part) == size


def test_weights_lie_side_by_side_from_a_huge_page_on() -> None:
    first, second, third = (weight_memory(size) for size in (1 << 20, 100_001, 3 << 20))
    assert first.data_ptr() % HUGE_PAGE == 0
    assert second.data_ptr() == first.data_ptr() + (1 << 20)
    assert third.data_ptr() == second.data_ptr() + 100_032


def test_a_slab_that_is_full_is_followed_by_another(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(huge_pages, "_SLAB_BYTES", 1 << 20)
    parts = [weight_memory(400_000) for _ in range(7)]
    for number, part in enumerate(parts):
        part.fill_(number)
    assert all(part.eq(number).all() for number, part in enumerate(parts))
    large = weight_memory(900_000)
    assert large.data_ptr() % HUGE_PAGE == 0


def test_memory_goes_back_with_the_last_weight_in_it() -> None:
    first, second = weight_memory(1 << 20), weight_memory(1 << 20)
    slab = huge_pages._slabs._slab
    assert slab is not None
    where = second.data_ptr()
    del first
    gc.collect()
    assert slab() is not None
    assert second.fill_(7).eq(7).all()
    assert where == second.data_ptr()
    del second
    gc.collect()
    assert slab() is None
    assert weight_memory(1 << 20).fill_(1).eq(1).all()  # out of a new one


def test_where_the_system_denies_it_there_is_plain_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    def denied(num_bytes: int) -> None:
        raise MemoryError

    monkeypatch.setattr(huge_pages, "map_memory", denied)
    for num_bytes in (1 << 20, 129 << 20):
        memory = weight_memory(num_bytes)
        assert len(memory) == num_bytes
        assert memory.data_ptr() % 64 == 0


@pytest.mark.skipif(
    "[never]" in Path("/sys/kernel/mm/transparent_hugepage/enabled").read_text()
    if Path("/sys/kernel/mm/transparent_hugepage/enabled").exists()
    else True,
    reason="this system has no huge pages",
)
def test_the_system_is_asked_for_huge_pages() -> None:
    memory = weight_memory(8 << 20)
    place, flags = memory.data_ptr(), None
    for line in Path("/proc/self/smaps").read_text().splitlines():
        head = line.split(" ")[0]
        if "-" in head and not head.endswith(":"):
            begin, end = (int(one, 16) for one in head.split("-"))
            is_ours = begin <= place < end
        elif line.startswith("VmFlags:") and is_ours:
            flags = line.split()[1:]
    assert flags is not None
    assert "hg" in flags
