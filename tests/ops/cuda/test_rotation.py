"""Rotation in Triton against the reference, and what it leaves in the cache."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest
import torch
from torch import Tensor

from inferno.ops import reference
from inferno.ops.batch import Batch, LayerKV
from inferno.ops.cuda import rotation
from tests.ops.batches import make_batch

pytestmark = pytest.mark.gpu

EPS = 1e-6
LENS = [5, 2]
DTYPES = [torch.float32, torch.float16, *[torch.bfloat16] * torch.cuda.is_available()]
STEP = {torch.float32: 2e-6, torch.float16: 2**-10, torch.bfloat16: 2**-7}
ORDERS = ["NKSD", "NSKD", "DKSN"]  # the kernel takes the first alone


@dataclass(frozen=True, kw_only=True)
class Shape:
    """Of the heads and of the cache."""

    num_heads: int = 4
    num_kv_heads: int = 2
    head_size: int = 64
    block_size: int = 4
    dtype: torch.dtype = torch.float32


SHAPES = {
    "smallest": Shape(num_heads=1, num_kv_heads=1, head_size=2),
    "odd half": Shape(num_heads=3, num_kv_heads=1, head_size=6, block_size=3),
    "a slot a block": Shape(num_heads=9, num_kv_heads=3, head_size=64, block_size=1),
    "half no power of two": Shape(num_heads=5, num_kv_heads=5, head_size=80),
    "two tiles of heads": Shape(num_heads=10, num_kv_heads=5, head_size=128),
    "large": Shape(num_heads=2, num_kv_heads=1, head_size=256),
}


def make_inputs(shape: Shape, num_tokens: int, device: torch.device) -> dict[str, Tensor]:
    """q, k and v as slices of one wide matrix, cosines and sines, and weights of the norms."""
    torch.manual_seed(0)
    sizes = [h * shape.head_size for h in (shape.num_heads, *[shape.num_kv_heads] * 2)]
    wide_TF = torch.full((num_tokens, sum(sizes) + 9), torch.nan)
    wide_TF[:, 5:-4] = torch.randn(num_tokens, sum(sizes))
    wide_TF = wide_TF.to(device, shape.dtype)
    q, k, v = (
        part.view(num_tokens, part.shape[1] // shape.head_size, shape.head_size)
        for part in torch.split(wide_TF[:, 5:-4], sizes, dim=1)
    )
    angles_TD = torch.rand(num_tokens, shape.head_size // 2) * 6
    cos_sin_TD = torch.cat([angles_TD.cos(), angles_TD.sin()], dim=-1).to(device)
    inputs = {"q": q, "k": k, "v": v, "cos_sin": cos_sin_TD}
    for name in ("q_norm", "k_norm"):
        inputs[name] = torch.rand(shape.head_size).add(0.5).to(device, shape.dtype)
    return inputs


def tables_of(shape: Shape, lens: list[int]) -> list[list[int]]:
    """Blocks 1, 2, 3, ... dealt out to the requests in turns."""
    counts = [-(-n // shape.block_size) for n in lens]
    return [[1 + i + j * len(lens) for j in range(count)] for i, count in enumerate(counts)]


def empty_kv(
    shape: Shape, num_blocks: int, device: torch.device, cache: torch.dtype, order: str = "NKSD"
) -> LayerKV:
    """A cache whose axes lie in that order, with NaN or 99 in all slots, and scales of NaN."""
    sizes = dict(zip("NSKD", (num_blocks, shape.block_size, shape.num_kv_heads), strict=False))
    sizes["D"] = shape.head_size
    nothing = 99.0 if cache is torch.int8 else torch.nan
    keys_NSKD, values_NSKD = (
        torch.full([sizes[axis] for axis in order], nothing, device=device)
        .to(cache)
        .permute([order.index(axis) for axis in "NSKD"])
        for _ in range(2)
    )
    if cache not in (torch.int8, torch.float8_e4m3fn):
        return LayerKV(keys_NSKD, values_NSKD)
    scale_shape = (2, num_blocks, shape.num_kv_heads, shape.block_size)
    scales = torch.full(scale_shape, torch.nan, device=device)
    return LayerKV(keys_NSKD, values_NSKD, 0, scales[0], scales[1])


def read(kv: LayerKV, slots_T: Tensor, what: str) -> Tensor:
    """What the cache holds in some slots, "key" or "value", as float32 [T, K, D]."""
    cache_NSKD = kv.keys_NSKD if what == "key" else kv.values_NSKD
    scales_NKS = kv.key_scales_NKS if what == "key" else kv.value_scales_NKS
    stored_TKD = cache_NSKD.float().flatten(0, 1)[slots_T]
    if scales_NKS is None:
        return stored_TKD
    return stored_TKD * scales_NKS.transpose(1, 2).flatten(0, 1)[slots_T].unsqueeze(-1)


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


def on(device: torch.device, batch: Batch) -> Batch:
    (group,) = batch.groups
    return replace(batch, groups=(replace(group, slots_T=group.slots_T.to(device)),))


def run(
    shape: Shape,
    device: torch.device,
    *,
    has_norms: bool,
    cache: torch.dtype,
    order: str = "NKSD",
    lens: list[int] = LENS,
) -> tuple[Tensor, LayerKV, Tensor, LayerKV, Tensor]:
    """The kernel's queries and cache, then the reference's, whose cache is exact; the slots."""
    inputs = make_inputs(shape, sum(lens), device)
    tables = tables_of(shape, lens)
    batch = on(device, make_batch(lens, lens, tables, block_size=shape.block_size))
    num_blocks = 1 + max(map(max, tables))
    kv = empty_kv(shape, num_blocks, device, cache, order)
    plain = empty_kv(shape, num_blocks, device, torch.float32)
    q_THD = rotate_and_store(rotation, inputs, batch, kv, has_norms=has_norms)
    expected_THD = rotate_and_store(reference, inputs, batch, plain, has_norms=has_norms)
    return q_THD, kv, expected_THD, plain, batch.groups[0].slots_T


@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize("dtype", DTYPES)
def test_with_norms_it_is_the_reference(
    name: str, dtype: torch.dtype, device: torch.device
) -> None:
    shape = replace(SHAPES[name], dtype=dtype)
    q_THD, kv, expected_THD, plain, slots_T = run(shape, device, has_norms=True, cache=dtype)
    assert q_THD.dtype is dtype
    torch.testing.assert_close(q_THD, expected_THD, rtol=STEP[dtype], atol=STEP[dtype])
    for what in ("key", "value"):
        torch.testing.assert_close(
            read(kv, slots_T, what), read(plain, slots_T, what), rtol=STEP[dtype], atol=STEP[dtype]
        )


@pytest.mark.parametrize(
    ("name", "order"),
    [*((name, "NKSD") for name in SHAPES), *(("odd half", o) for o in ORDERS[1:])],
)
@pytest.mark.parametrize("dtype", DTYPES)
def test_without_norms_every_bit_is_the_references(
    name: str, dtype: torch.dtype, order: str, device: torch.device
) -> None:
    shape = replace(SHAPES[name], dtype=dtype)
    q_THD, kv, expected_THD, plain, slots_T = run(
        shape, device, has_norms=False, cache=dtype, order=order
    )
    assert torch.equal(q_THD, expected_THD)
    for what in ("key", "value"):
        assert torch.equal(read(kv, slots_T, what), read(plain, slots_T, what))


@pytest.mark.parametrize("cache", [torch.float32, torch.int8, torch.float8_e4m3fn])
def test_other_slots_keep_what_they_hold(cache: torch.dtype, device: torch.device) -> None:
    _, kv, *_, slots_T = run(SHAPES["odd half"], device, has_norms=False, cache=cache)
    written = set(slots_T.tolist())
    for x_NSKD in (kv.keys_NSKD, kv.values_NSKD):
        for slot, x_KD in enumerate(x_NSKD.float().flatten(0, 1)):
            is_untouched = bool((x_KD == 99).all() or x_KD.isnan().all())
            assert is_untouched is (slot not in written)
    for scales_NKS in (kv.key_scales_NKS, kv.value_scales_NKS):
        if scales_NKS is not None:
            for slot, scales_K in enumerate(scales_NKS.transpose(1, 2).flatten(0, 1)):
                assert bool(scales_K.isnan().all()) is (slot not in written)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", SHAPES)
def test_int8_is_the_nearest_of_255_steps(
    name: str, dtype: torch.dtype, device: torch.device
) -> None:
    shape = replace(SHAPES[name], dtype=dtype)
    _, kv, _, plain, slots_T = run(shape, device, has_norms=False, cache=torch.int8)
    for what in ("key", "value"):
        exact_TKD = read(plain, slots_T, what)
        step_TK1 = exact_TKD.abs().amax(-1, keepdim=True) / 127
        expected_TKD = (exact_TKD / step_TK1).round() * step_TK1
        assert torch.equal(read(kv, slots_T, what), expected_TKD)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", SHAPES)
def test_float8_is_rounded_as_pytorch_rounds(
    name: str, dtype: torch.dtype, device: torch.device
) -> None:
    shape = replace(SHAPES[name], dtype=dtype)
    _, kv, _, plain, slots_T = run(shape, device, has_norms=False, cache=torch.float8_e4m3fn)
    for what in ("key", "value"):
        exact_TKD = read(plain, slots_T, what)
        step_TK1 = exact_TKD.abs().amax(-1, keepdim=True) / 448
        codes_TKD = (exact_TKD / step_TK1).to(torch.float8_e4m3fn)
        assert torch.equal(read(kv, slots_T, what), codes_TKD.float() * step_TK1)


def stored_values(values_TD: Tensor, cache: torch.dtype) -> tuple[Tensor, Tensor]:
    """The codes and the scales that become of values of one head, a row a token."""
    num_tokens, head_size = values_TD.shape
    shape = Shape(num_heads=1, num_kv_heads=1, head_size=head_size)
    inputs = make_inputs(shape, num_tokens, values_TD.device)
    inputs["v"] = values_TD.unsqueeze(1)
    table = [*range(1, 2 + num_tokens // 4)]
    batch = on(values_TD.device, make_batch([num_tokens], [num_tokens], [table], block_size=4))
    kv = empty_kv(shape, 1 + len(table), values_TD.device, cache)
    rotate_and_store(rotation, inputs, batch, kv, has_norms=False)
    slots_T = batch.groups[0].slots_T
    assert kv.value_scales_NKS is not None
    scales_T = kv.value_scales_NKS[:, 0].flatten()[slots_T]
    return kv.values_NSKD[:, :, 0].float().flatten(0, 1)[slots_T], scales_T


def test_every_float8_and_every_middle_between_two(device: torch.device) -> None:
    codes = torch.arange(127, dtype=torch.uint8).view(torch.float8_e4m3fn).float()
    middles = (codes[1:] + codes[:-1]) / 2
    both = torch.cat([codes, middles, middles * (1 - 2**-20), middles * (1 + 2**-20)])
    values_TD = torch.cat([both, -both, torch.zeros(-2 * len(both) % 100)]).view(-1, 100)
    values_TD[:, 0] = 448  # so that the scale is 1
    stored_TD, scales_T = stored_values(values_TD.to(device), torch.float8_e4m3fn)
    assert (scales_T == 1).all()
    assert torch.equal(stored_TD.cpu(), values_TD.to(torch.float8_e4m3fn).float())


def test_int8_takes_the_even_one_of_two(device: torch.device) -> None:
    values_TD = torch.tensor([[127.0, 0.5, 1.5, -2.5, 3.4999, -126.5]], device=device)
    stored_TD, scales_T = stored_values(values_TD, torch.int8)
    assert scales_T.tolist() == [1]
    assert stored_TD.tolist() == [[127, 0, 2, -2, 3, -126]]


@pytest.mark.parametrize("cache", [torch.int8, torch.float8_e4m3fn])
def test_codes_of_zeros_are_zero_and_of_nan_are_nan(
    cache: torch.dtype, device: torch.device
) -> None:
    values_TD = torch.randn(5, 20, device=device)
    values_TD[0] = 0
    values_TD[1, 7], values_TD[2, 13], values_TD[3] = torch.nan, -torch.inf, torch.nan
    stored_TD, scales_T = stored_values(values_TD, cache)
    assert (stored_TD[0] == 0).all()
    assert scales_T[0] == 0
    assert scales_T[1:4].isnan().all()
    assert scales_T[4].isfinite()
    assert stored_TD.isfinite().all()


def test_padded_rows_go_to_scratch(device: torch.device) -> None:
    shape = Shape()
    inputs = make_inputs(shape, 5, device)
    for name in ("q", "k", "v"):
        inputs[name][2:] = torch.nan
    batch = on(device, make_batch([2], [2], [[1]], block_size=4))
    slots_T = torch.tensor([4, 5, 0, 0, 0], device=device)
    padded = replace(batch, groups=(replace(batch.groups[0], slots_T=slots_T),))
    kv, few = (empty_kv(shape, 2, device, torch.float32) for _ in range(2))
    q_THD = rotate_and_store(rotation, inputs, padded, kv, has_norms=True)
    first = {name: x if name.endswith("norm") else x[:2] for name, x in inputs.items()}
    assert torch.equal(q_THD[:2], rotate_and_store(rotation, first, batch, few, has_norms=True))
    assert torch.equal(kv.keys_NSKD[1, :2], few.keys_NSKD[1, :2])
    assert kv.keys_NSKD[1, 2:].isnan().all()


@pytest.mark.parametrize("cache", [torch.float32, torch.int8])
def test_a_token_has_the_same_bits_in_any_batch(cache: torch.dtype, device: torch.device) -> None:
    shape = Shape(head_size=24)
    inputs = make_inputs(shape, 20, device)
    table = [[*range(1, 6)]]
    whole, pieces = (empty_kv(shape, 6, device, cache) for _ in range(2))
    batch = on(device, make_batch([20], [20], table, block_size=4))
    q_THD = rotate_and_store(rotation, inputs, batch, whole, has_norms=True)
    for start, stop in ((0, 1), (1, 7), (7, 20)):
        piece = {name: x if name.endswith("norm") else x[start:stop] for name, x in inputs.items()}
        part = on(device, make_batch([stop - start], [stop], table, block_size=4))
        result_THD = rotate_and_store(rotation, piece, part, pieces, has_norms=True)
        assert torch.equal(result_THD, q_THD[start:stop])
    slots_T = batch.groups[0].slots_T
    for what in ("key", "value"):
        assert torch.equal(read(whole, slots_T, what), read(pieces, slots_T, what))


def test_no_tokens_are_no_launch(device: torch.device) -> None:
    shape = Shape()
    inputs = make_inputs(shape, 0, device)
    batch = on(device, make_batch([0], [0], [[0]], block_size=4))
    kv = empty_kv(shape, 1, device, torch.float32)
    assert rotate_and_store(rotation, inputs, batch, kv, has_norms=True).shape == (0, 4, 64)
    frequencies_D = torch.ones(32, device=device)
    no_positions = torch.empty(0, dtype=torch.int64, device=device)
    assert rotation.cos_sin(no_positions, frequencies_D, 1.0).shape == (0, 64)


def test_a_cache_of_another_type_is_the_references(device: torch.device) -> None:
    shape = Shape(head_size=6)
    q_THD, kv, expected_THD, plain, slots_T = run(
        shape, device, has_norms=True, cache=torch.float16
    )
    assert torch.equal(q_THD, expected_THD)
    assert torch.equal(read(kv, slots_T, "key"), read(plain, slots_T, "key").half().float())


@pytest.mark.parametrize("half", [1, 20, 64])
def test_cos_sin_is_its_formula(half: int, device: torch.device) -> None:
    positions_T = torch.tensor([0, 1, 7, 4095, 131071, 1048575], device=device)
    frequencies_D = 1.0 / 10000 ** (torch.arange(half, device=device) / half)
    angles_TD = (positions_T.float().unsqueeze(1) * frequencies_D).double()
    expected_TD = torch.cat((angles_TD.cos(), angles_TD.sin()), dim=-1) * 1.25
    result_TD = rotation.cos_sin(positions_T, frequencies_D, 1.25)
    torch.testing.assert_close(result_TD.double(), expected_TD, rtol=0, atol=3e-7)
