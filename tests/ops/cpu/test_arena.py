"""The memory that kernels' results lie in: lent, given back, and lent again."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
import torch

from inferno import _native
from inferno.engine.process.own_process import rss_bytes
from inferno.ops.cpu.native import TYPES, empty

_DENIED = """
import resource, torch
from pathlib import Path
from inferno import _native
torch.set_num_threads(1)  # its threads' memory may be more than what is left
held = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
most = held + (64 << 20)
resource.setrlimit(resource.RLIMIT_AS, (most, most))
with _native.KernelContext(1) as context:
    print(_native.empty([1000, 1000], 0).fill_(1).sum().item(), context.arena_size)
"""


def test_what_is_given_back_is_lent_again() -> None:
    context = _native.KernelContext(1)
    with context:
        first, second = (_native.empty([size], 0) for size in (100, 300))
        places = [each.data_ptr() for each in (first, second)]
        assert places[0] + 400 <= places[1] or places[1] + 1200 <= places[0]
        assert all(place % 64 == 0 for place in places)
        size = context.arena_size
        del first, second
        assert _native.empty([400], 0).data_ptr() == min(places)
        assert context.arena_size == size


@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_a_tensor_has_the_type_and_the_room_that_were_asked_for(dtype: torch.dtype) -> None:
    with _native.KernelContext(1):
        first, second = empty((3, 32), dtype).fill_(1), empty((3, 32), dtype).fill_(2)
        assert (first.dtype, first.shape) == (dtype, (3, 32))
        assert first.eq(1).all()
        assert second.eq(2).all()


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_memory_that_is_released_is_the_systems_and_what_is_lent_keeps_its_values() -> None:
    context = _native.KernelContext(1)
    with context:
        kept, large = _native.empty([1000], 0).fill_(3), _native.empty([8 << 20], 0).fill_(1)
        also_kept = _native.empty([1000], 0).fill_(4)
        before = rss_bytes()
        del large
        context.release_memory()
        assert rss_bytes() < before - (24 << 20)
        assert kept.eq(3).all()
        assert also_kept.eq(4).all()
        assert _native.empty([8 << 20], 0).fill_(2).eq(2).all()


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.skipif("asan" in os.environ.get("LD_PRELOAD", ""), reason="it maps terabytes itself")
def test_a_process_with_little_room_gets_what_it_needs() -> None:
    done = subprocess.run(
        [sys.executable, "-c", _DENIED], capture_output=True, text=True, check=True
    )
    assert done.stdout == "1000000.0 4000000\n"
