"""The cache's beginning is made ready in the background, whatever is done with it meanwhile."""

from __future__ import annotations

import gc
import os
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from inferno import _native, ops
from inferno.ops import LayerKV
from tests.patience import PATIENCE

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
CPU = torch.device("cpu")
SHAPE = (513, 16, 8, 128)  # 32 MiB and a block, twice


def resident_bytes(address: int, num_bytes: int) -> int:
    """Bytes of the mappings in which a range lies that are in memory, by the kernel's own count."""
    found, is_inside = 0, False
    with Path("/proc/self/smaps").open() as lines:
        for line in lines:
            head = line.split()[0]
            if "-" in head and not head.endswith(":"):
                begin, end = (int(part, 16) for part in head.split("-"))
                is_inside = begin < address + num_bytes and address < end
            elif is_inside and head == "Rss:":
                found += int(line.split()[1]) * 1024
    return found


def process_bytes() -> int:
    """Bytes of this process in memory: unlike a mapping's, read without a wait for its filler."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def wait(prefault: object) -> None:
    assert isinstance(prefault, _native.Prefault)
    deadline = time.monotonic() + PATIENCE
    while not prefault.is_done:
        assert time.monotonic() < deadline
        time.sleep(0.002)


@pytest.fixture
def kv() -> LayerKV:
    return ops.empty_cache(SHAPE, torch.bfloat16, CPU)


def test_no_more_is_touched_than_was_asked_for(kv: LayerKV) -> None:
    address, size = kv.values_NSKD.data_ptr(), kv.values_NSKD.nbytes
    before = resident_bytes(address, size)
    wait(ops.prefault([kv], 2 * (8 << 20)))
    found = resident_bytes(address, size) - before
    assert 8 << 20 <= found <= 2 * (2 * (8 << 20) + (4 << 20))  # keys may share the mapping


def test_layers_that_share_memory_count_once(kv: LayerKV) -> None:
    wait(ops.prefault([kv, replace(kv, group=1)], 1 << 40))
    size = kv.values_NSKD.nbytes
    assert resident_bytes(kv.values_NSKD.data_ptr(), size) >= size


def test_what_is_written_meanwhile_stays(kv: LayerKV) -> None:
    prefault = ops.prefault([kv], 1 << 40)
    kv.keys_NSKD.fill_(3.0)
    kv.values_NSKD.fill_(5.0)
    wait(prefault)
    assert bool((kv.keys_NSKD == 3.0).all())
    assert bool((kv.values_NSKD == 5.0).all())


def test_it_stops_when_nobody_wants_it() -> None:
    def is_whole_after_it_was_told_to_stop() -> bool:
        kv = ops.empty_cache((16 * 512 + 1, 16, 8, 128), torch.bfloat16, CPU)
        before, deadline = process_bytes(), time.monotonic() + PATIENCE
        prefault = ops.prefault([kv], 1 << 40)
        while process_bytes() < before + (16 << 20):
            assert time.monotonic() < deadline
        del prefault  # waits for its thread
        size = kv.values_NSKD.nbytes
        return resident_bytes(kv.values_NSKD.data_ptr(), size) >= size

    # Where others hold the processor the thread may be done before it is told to stop.
    assert not all(is_whole_after_it_was_told_to_stop() for _ in range(10))


def test_it_outlives_its_cache() -> None:
    cache = ops.empty_cache(SHAPE, torch.bfloat16, CPU)
    prefault = ops.prefault([cache], 1 << 40)
    del cache
    gc.collect()
    wait(prefault)
