"""Memory of weights: aligned, its own, beside others, and given back with the last of them."""

from __future__ import annotations

import gc
import mmap
import time
from pathlib import Path

import pytest
import torch
from torch import Tensor

from inferno import _native, ops
from inferno.ops.cpu import huge_pages
from inferno.ops.cpu.huge_pages import small_beginning, weight_memory
from tests.patience import PATIENCE

CPU = torch.device("cpu")
HUGE_PAGE = 2 << 20
ALLOWED = Path("/sys/kernel/mm/transparent_hugepage/enabled")


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
    (slab,) = huge_pages._slabs._slabs
    where = second.data_ptr()
    del first
    gc.collect()
    assert slab.memory() is not None
    assert second.fill_(7).eq(7).all()
    assert where == second.data_ptr()
    del second
    gc.collect()
    assert slab.memory() is None
    assert not huge_pages._slabs.filled()
    assert weight_memory(1 << 20).fill_(1).eq(1).all()  # out of a new one


def test_where_the_system_denies_it_there_is_plain_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    def denied(num_bytes: int) -> None:
        raise MemoryError

    monkeypatch.setattr(huge_pages, "map_memory", denied)
    for num_bytes in (1 << 20, 129 << 20):
        memory = weight_memory(num_bytes)
        assert len(memory) == num_bytes
        assert memory.data_ptr() % 64 == 0


def num_free_huge_pages() -> int:
    """How many huge pages could be made of what is free now, by /proc/buddyinfo."""
    order = (HUGE_PAGE // mmap.PAGESIZE).bit_length() - 1
    zones = [line.split()[4:] for line in Path("/proc/buddyinfo").read_text().splitlines()]
    return sum(
        int(count) << exponent - order
        for counts in zones
        for exponent, count in enumerate(counts)
        if exponent >= order
    )


HAS_HUGE_PAGES = ALLOWED.exists() and "[never]" not in ALLOWED.read_text()


@pytest.mark.skipif(not HAS_HUGE_PAGES, reason="this system has no huge pages")
def test_without_another_way_the_system_is_asked_for_huge_pages_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(huge_pages, "_collapses_later", lambda: False)
    assert "hg" in mapping_of(weight_memory(8 << 20))["VmFlags:"]
    assert not huge_pages.on_small_pages()


@pytest.mark.skipif(
    not (HAS_HUGE_PAGES and _native.can_collapse()), reason="this system moves no pages"
)
def test_weights_are_moved_to_huge_pages_in_the_background() -> None:
    has_room = num_free_huge_pages() > 200
    weights = [weight_memory(size).fill_(3) for size in (8 << 20, 150 << 20, 100_001)]
    places = [weight.data_ptr() for weight in weights]
    kv = ops.empty_cache((2, 16, 1, 64), torch.bfloat16, CPU)
    wait_for(ops.prefault([kv], 0))
    for weight, place in zip(weights, places, strict=True):
        assert weight.data_ptr() == place
        assert weight.eq(3).all()
        assert "hg" in mapping_of(weight)["VmFlags:"]
        assert int(mapping_of(weight)["AnonHugePages:"][0]) > 0 or not has_room


@pytest.mark.skipif(
    not (HAS_HUGE_PAGES and _native.can_collapse()), reason="this system moves no pages"
)
def test_the_first_tokens_of_caches_wait_for_no_huge_page() -> None:
    layers = [ops.empty_cache((300, 16, 8, 128), torch.bfloat16, CPU) for _ in range(8)]
    caches = [cache for kv in layers for cache in (kv.keys_NSKD, kv.values_NSKD)]
    before = own_memory()
    for cache in caches:  # of 9 MiB and some, so few begin with a huge page
        cache[:2].fill_(2.0)
    assert own_memory() - before < len(caches) * HUGE_PAGE / 4
    wait_for(ops.prefault(layers, 0))
    for cache in caches:
        assert cache[:2].eq(2.0).all()
        first = -cache.data_ptr() % HUGE_PAGE // cache[0].nbytes  # in the first whole huge page
        for block in (cache, cache[first + 1]):
            assert "hg" in mapping_of(block)["VmFlags:"]


def test_what_is_small_at_first_ends_with_a_whole_huge_page(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(huge_pages, "_collapses_later", lambda: True)
    whole = (3 * HUGE_PAGE, HUGE_PAGE)
    assert small_beginning(3 * HUGE_PAGE, HUGE_PAGE) == [(3 * HUGE_PAGE, 0), whole]
    begin = 3 * HUGE_PAGE - 4096
    assert small_beginning(begin, HUGE_PAGE + 4096) == [(begin, 4096), whole]
    assert not small_beginning(begin, HUGE_PAGE + 4095)
    assert not small_beginning(3 * HUGE_PAGE, 1)


@pytest.mark.skipif(not HAS_HUGE_PAGES, reason="this system has no huge pages")
def test_a_cache_that_could_not_be_moved_is_on_huge_pages_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(huge_pages, "_collapses_later", lambda: False)
    kv = ops.empty_cache((300, 16, 8, 128), torch.bfloat16, CPU)
    assert "hg" in mapping_of(kv.keys_NSKD)["VmFlags:"]


@pytest.mark.parametrize("text", ["always madvise [never]", None])
def test_nothing_is_moved_where_huge_pages_are_forbidden(
    text: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if text is not None:
        (tmp_path / "enabled").write_text(text)
    monkeypatch.setattr(huge_pages, "_ALLOWED", tmp_path / "enabled")
    huge_pages._collapses_later.cache_clear()
    try:
        assert not huge_pages._collapses_later()
    finally:
        huge_pages._collapses_later.cache_clear()


def test_ranges_to_move_are_whole_huge_pages_within_their_mapping() -> None:
    weights = [weight_memory(size) for size in (150_000_001, 70_000, 200_000_003)]
    ranges = huge_pages._slabs.filled()
    assert len(ranges) == 3
    for address, num_bytes in ranges:
        assert address % HUGE_PAGE == num_bytes % HUGE_PAGE == 0
    for weight in weights:
        assert any(
            begin <= weight.data_ptr() and weight.data_ptr() + len(weight) <= begin + num_bytes
            for begin, num_bytes in ranges
        )
    for slab, (address, num_bytes) in zip(huge_pages._slabs._slabs, ranges, strict=True):
        memory = slab.memory()
        assert memory is not None
        assert address + num_bytes <= huge_pages._address(memory) + len(memory)


def wait_for(prefault: object) -> None:
    assert isinstance(prefault, _native.Prefault)
    deadline = time.monotonic() + PATIENCE
    while not prefault.is_done:
        assert time.monotonic() < deadline
        time.sleep(0.002)


def own_memory() -> int:
    """How many bytes of this process are in memory and not of a file."""
    status = Path("/proc/self/status").read_text()
    return int(status.partition("RssAnon:")[2].split()[0]) * 1024


def mapping_of(memory: Tensor) -> dict[str, list[str]]:
    """What the kernel says of the mapping in which memory lies."""
    found: dict[str, list[str]] = {}
    is_ours = False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        head, *rest = line.split()
        if "-" in head and not head.endswith(":"):
            begin, end = (int(one, 16) for one in head.split("-"))
            is_ours = begin <= memory.data_ptr() < end
        elif is_ours:
            found[head] = rest
    return found
