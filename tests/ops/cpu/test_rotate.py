"""The compiled rotate_and_store against the reference, and what it leaves in the cache."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from inferno.ops import cpu, reference
from inferno.ops.batch import Batch, LayerKV
from tests.ops.batches import make_batch
from tests.ops.cpu.guarded import copied
from tests.ops.cpu.paged import Shape, empty_kv, read

pytestmark = pytest.mark.usefixtures("level")

SHAPES = {
    "registers": Shape(num_heads=4, num_kv_heads=2, head_size=64),
    "smallest": Shape(num_heads=1, num_kv_heads=1, head_size=2),
    "odd half": Shape(num_heads=2, num_kv_heads=1, head_size=6, block_size=3),
    "a slot a block": Shape(num_heads=3, num_kv_heads=3, head_size=10, block_size=1),
    "five registers": Shape(num_heads=2, num_kv_heads=1, head_size=80, block_size=32),
}
LENS = [40, 3]
EPS = 1e-6


def make_inputs(shape: Shape, lens: list[int], dtype: torch.dtype) -> dict[str, Tensor]:
    """q, k and v as slices of one wide matrix, cosines and sines, and weights of the norms."""
    torch.manual_seed(0)
    sizes = [h * shape.head_size for h in (shape.num_heads, *[shape.num_kv_heads] * 2)]
    wide_TF = copied(torch.randn(sum(lens), sum(sizes) + 5).to(dtype))
    q, k, v = (
        part.view(len(part), -1, shape.head_size)
        for part in torch.split(wide_TF[:, 5:], sizes, dim=1)
    )
    angles_TD = torch.rand(sum(lens), shape.head_size // 2) * 6
    cos_sin_TD = torch.cat([angles_TD.cos(), angles_TD.sin()], dim=-1)
    inputs = {"q": q, "k": k, "v": v, "cos_sin": copied(cos_sin_TD)}
    for name in ("q_norm", "k_norm"):
        inputs[name] = copied(torch.rand(shape.head_size).add(0.5).to(dtype))
    return inputs


def tables_of(shape: Shape, lens: list[int]) -> list[list[int]]:
    """Blocks 1, 2, 3, ... dealt out to the requests in turns."""
    counts = [-(-n // shape.block_size) for n in lens]
    return [[1 + i + j * len(lens) for j in range(count)] for i, count in enumerate(counts)]


def rotate_and_store(
    backend: object, inputs: dict[str, Tensor], batch: Batch, kv: LayerKV, *, has_norms: bool
) -> Tensor:
    result: Tensor = backend.rotate_and_store(  # type: ignore[attr-defined]
        *(inputs[name] for name in ("q", "k", "v", "cos_sin")),
        *(batch, kv),
        q_norm_D=inputs["q_norm"] if has_norms else None,
        k_norm_D=inputs["k_norm"] if has_norms else None,
        eps=EPS,
    )
    return result


def run(
    shape: Shape, *, has_norms: bool, lens: list[int] = LENS
) -> tuple[Tensor, LayerKV, Tensor, LayerKV, list[list[int]]]:
    """The kernels' queries and cache, then the reference's, whose cache is float32."""
    inputs = make_inputs(shape, lens, shape.dtype)
    tables = tables_of(shape, lens)
    batch = make_batch(lens, lens, tables, block_size=shape.block_size)
    num_blocks = 1 + max(map(max, tables))
    kv = empty_kv(shape, num_blocks)
    plain = empty_kv(replace(shape, cache=torch.float32), num_blocks)
    plain = LayerKV(plain.keys_NSKD.contiguous(), plain.values_NSKD.contiguous())
    q_THD = rotate_and_store(cpu, inputs, batch, kv, has_norms=has_norms)
    expected_THD = rotate_and_store(reference, inputs, batch, plain, has_norms=has_norms)
    return q_THD, kv, expected_THD, plain, tables


@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize("has_norms", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("cache", [torch.float32, torch.bfloat16, torch.float16])
def test_it_is_the_reference(
    name: str, has_norms: bool, dtype: torch.dtype, cache: torch.dtype
) -> None:
    shape = replace(SHAPES[name], dtype=dtype, cache=cache)
    q_THD, kv, expected_THD, plain, tables = run(shape, has_norms=has_norms)
    assert q_THD.dtype is dtype
    step = 2e-6 if dtype is torch.float32 else 2**-7
    torch.testing.assert_close(q_THD, expected_THD, rtol=step, atol=step)
    for table, length in zip(tables, LENS, strict=True):
        for what in ("key", "value"):
            expected = read(plain, table, length, what).to(cache).float()
            step = 1e-3 if cache is torch.float16 else step
            step = max(step, 2**-7 if cache is torch.bfloat16 else 0)
            torch.testing.assert_close(
                read(kv, table, length, what), expected, rtol=step, atol=step
            )


@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_without_norms_every_bit_is_the_references(name: str, dtype: torch.dtype) -> None:
    shape = replace(SHAPES[name], dtype=dtype, cache=dtype)
    q_THD, kv, expected_THD, plain, tables = run(shape, has_norms=False)
    assert torch.equal(q_THD, expected_THD)
    for table, length in zip(tables, LENS, strict=True):
        for what in ("key", "value"):
            assert torch.equal(read(kv, table, length, what), read(plain, table, length, what))


@pytest.mark.parametrize("cache", [torch.float32, torch.bfloat16, torch.float16, torch.int8])
def test_other_slots_keep_what_they_hold(cache: torch.dtype) -> None:
    shape = replace(SHAPES["odd half"], cache=cache)
    _, kv, *_, tables = run(shape, has_norms=False)
    written = {(table[p // 3], p % 3) for t, table in enumerate(tables) for p in range(LENS[t])}
    for block, codes_SKD in enumerate(kv.keys_NSKD.unbind()):
        for slot in range(3):
            for x_KD in (codes_SKD[slot], kv.values_NSKD[block, slot]):
                is_untouched = bool((x_KD == 99).all() or x_KD.isnan().all())
                assert is_untouched is ((block, slot) not in written)


@pytest.mark.parametrize("name", SHAPES)
def test_int8_is_the_nearest_of_255_steps(name: str) -> None:
    _, kv, _, plain, tables = run(replace(SHAPES[name], cache=torch.int8), has_norms=True)
    for table, length in zip(tables, LENS, strict=True):
        for what in ("key", "value"):
            stored_LKD = read(kv, table, length, what)
            exact_LKD = read(plain, table, length, what)
            step_LK1 = exact_LKD.abs().amax(-1, keepdim=True) / 127
            assert ((stored_LKD - exact_LKD).abs() <= step_LK1 * 0.50001).all()


def test_int8_of_zeros_is_zero_and_of_nan_is_nan() -> None:
    shape = Shape(num_heads=1, num_kv_heads=1, head_size=20, cache=torch.int8)
    inputs = make_inputs(shape, [3], torch.float32)
    inputs["v"][0] = 0.0
    inputs["v"][1, 0, 7] = torch.nan
    inputs["v"][2, 0, 7] = torch.inf
    kv = empty_kv(shape, 2)
    rotate_and_store(cpu, inputs, make_batch([3], [3], [[1]], block_size=16), kv, has_norms=False)
    values_LKD = read(kv, [1], 3, "value")
    assert (values_LKD[0] == 0).all()
    assert values_LKD[1:].isnan().all()


@pytest.mark.parametrize("num_steps", [1, 100, 127, 190, 191, 1000, 60_000, 70_000, 10**6])
def test_int8_of_next_to_nothing_keeps_its_signs(num_steps: int) -> None:
    shape = Shape(num_heads=1, num_kv_heads=1, head_size=20, cache=torch.int8)
    inputs = make_inputs(shape, [1], torch.float32)
    smallest = 2.0**-149
    inputs["v"][0, 0] = torch.arange(20).sub(10) * (num_steps // 10 * smallest)
    inputs["v"][0, 0, 7] = num_steps * smallest
    kv = empty_kv(shape, 2)
    rotate_and_store(cpu, inputs, make_batch([1], [1], [[1]], block_size=16), kv, has_norms=False)
    codes_D = kv.values_NSKD[1, 0, 0].float()
    assert (codes_D.abs() <= 127).all()
    assert (codes_D * inputs["v"][0, 0].sign() >= 0).all()


@pytest.mark.usefixtures("two_threads")
@pytest.mark.parametrize("head_size", [24, 64])  # of which the second fills cache lines
@pytest.mark.parametrize("cache", [torch.float32, torch.bfloat16, torch.int8])
def test_a_token_has_the_same_bits_in_any_schedule(cache: torch.dtype, head_size: int) -> None:
    shape = Shape(num_heads=4, num_kv_heads=2, head_size=head_size, cache=cache)
    inputs = make_inputs(shape, [100], torch.float32)
    table = [[*range(1, 8)]]
    whole, pieces = empty_kv(shape, 8), empty_kv(shape, 8)
    batch = make_batch([100], [100], table, block_size=16)
    q_THD = rotate_and_store(cpu, inputs, batch, whole, has_norms=True)
    for start, stop in ((0, 1), (1, 20), (20, 33), (33, 100)):
        piece = {name: x if name.endswith("norm") else x[start:stop] for name, x in inputs.items()}
        batch = make_batch([stop - start], [stop], table, block_size=16)
        result_THD = rotate_and_store(cpu, piece, batch, pieces, has_norms=True)
        assert torch.equal(result_THD, q_THD[start:stop])
    for what in ("key", "value"):
        assert torch.equal(read(whole, table[0], 100, what), read(pieces, table[0], 100, what))
