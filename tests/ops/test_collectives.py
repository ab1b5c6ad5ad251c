"""Ranks, each in a process of its own, get the rows of all and their sums, with the same bits."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from tests.patience import PATIENCE

NUM_RANKS = 3
DTYPES = (torch.float32, torch.bfloat16, torch.float16)
ROOT = Path(__file__).resolve().parents[2]

RANK = """
import os
import sys
import time
import torch
from safetensors.torch import save_file
from torch import distributed
from inferno import ops
from inferno.ops import Ranks
from tests.ops.test_collectives import DTYPES, NUM_RANKS, part

rank, folder = int(sys.argv[1]), sys.argv[2]
store = distributed.FileStore(f"{folder}/store", NUM_RANKS)
distributed.init_process_group("gloo", store=store, rank=rank, world_size=NUM_RANKS)
found = {}
for dtype in DTYPES:
    x = part(rank, dtype).T
    assert not x.is_contiguous()
    before = x.clone()
    for is_invariant in (False, True):
        ranks = Ranks(distributed.group.WORLD, is_invariant)
        found[f"gathered {dtype} {is_invariant}"] = ops.all_gather(x, ranks)
        found[f"sum {dtype} {is_invariant}"] = ops.all_reduce(x, ranks)
        found[f"sum of a row {dtype} {is_invariant}"] = ops.all_reduce(x[2:3], ranks)
    assert torch.equal(x, before)
save_file(found, f"{folder}/{rank}")
store.add("done", 1)
while store.add("done", 0) < NUM_RANKS:
    time.sleep(0.01)
os._exit(0)  # PyTorch's own end of a group's threads aborts now and then
"""


def part(rank: int, dtype: torch.dtype) -> Tensor:
    """Return the tensor of a rank, of large values and small ones."""
    generator = torch.Generator().manual_seed(rank)
    exponents = torch.randint(-3, 4, (5, 7), generator=generator)
    return (torch.randn(5, 7, generator=generator) * 10.0**exponents).to(dtype)


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Tensor]]:
    """Hold what each rank has got."""
    folder = tmp_path_factory.mktemp("ranks")
    ranks = [
        subprocess.Popen([sys.executable, "-c", RANK, str(rank), str(folder)], cwd=ROOT)
        for rank in range(NUM_RANKS)
    ]
    try:
        assert [rank.wait(PATIENCE) for rank in ranks] == [0] * NUM_RANKS
    finally:
        for rank in ranks:
            rank.kill()
    return [load_file(folder / str(rank)) for rank in range(NUM_RANKS)]


def test_all_ranks_get_the_same_bits(found: list[dict[str, Tensor]]) -> None:
    first, *others = found
    for other in others:
        assert other.keys() == first.keys()
        assert [name for name, got in first.items() if not torch.equal(got, other[name])] == []


@pytest.mark.parametrize("is_invariant", [False, True])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_rows_are_put_together_and_added(
    found: list[dict[str, Tensor]], dtype: torch.dtype, is_invariant: bool
) -> None:
    parts = [part(rank, dtype).T for rank in range(NUM_RANKS)]
    got = found[0]
    assert torch.equal(got[f"gathered {dtype} {is_invariant}"], torch.cat(parts, 1))
    total = got[f"sum {dtype} {is_invariant}"]
    exact_3 = torch.stack(parts).double()
    assert total.dtype == dtype
    error = (total.double() - exact_3.sum(0)).abs() / exact_3.abs().sum(0)
    assert error.max() <= 2 * torch.finfo(dtype).eps
    if is_invariant:
        row = got[f"sum of a row {dtype} {is_invariant}"]
        assert torch.equal(row, total[2:3])
        once = sum(x.float() for x in parts)  # from rank 0 on, and rounded once
        assert isinstance(once, Tensor)
        assert torch.equal(total, once.to(dtype))
