"""What is known of chips: each GPU gets the tiles of a chip that has no more than it has."""

from __future__ import annotations

import pytest
import torch

from inferno import ops
from inferno.ops.cuda import fp8_products, mixture, paged_attention, products
from inferno.ops.cuda.chips import CHIPS, Chip, chip_of
from inferno.quantization import FP8_DYNAMIC

# Compute capability, the bytes of shared memory that a block of threads may have, and whether the
# tensor cores take their operands from there (CUDA C++ Programming Guide, "Compute Capabilities").
KNOWN = [
    ((8, 0), 163, False),
    ((8, 6), 99, False),
    ((8, 7), 163, False),
    ((8, 9), 99, False),
    ((9, 0), 227, True),
    ((10, 0), 227, True),
    ((10, 3), 227, True),
    ((12, 0), 99, False),
    ((12, 1), 99, False),
]


def found_for(capability: tuple[int, int], monkeypatch: pytest.MonkeyPatch) -> Chip:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: capability)
    chip: Chip = chip_of.__wrapped__(torch.device("cuda"))
    return chip


@pytest.mark.parametrize(("capability", "shared_kib", "has_warpgroups"), KNOWN)
def test_no_chip_is_taken_for_a_larger_one(
    capability: tuple[int, int],
    shared_kib: int,
    has_warpgroups: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Else the first launch of a kernel fails, for want of shared memory or of an instruction."""
    chip = found_for(capability, monkeypatch)
    assert chip.shared_bytes <= shared_kib << 10
    assert chip.has_warpgroups is has_warpgroups
    assert chip.has_fp8 is (capability >= (8, 9))


def test_a_chip_without_warpgroups_has_the_tiles_of_one_that_never_had_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Consumers' Blackwell has the shared memory and the tensor cores' instructions of Ada."""
    ada, blackwell = (found_for(capability, monkeypatch) for capability in ((8, 9), (12, 0)))
    assert blackwell in CHIPS

    def tiles(chip: Chip) -> list[object]:
        half, sizes = torch.bfloat16, paged_attention.HEAD_SIZES
        return [
            *(fp8_products._choose(chip, n) for n in (1, 17, 65)),
            *(
                products._choose_tile(chip, n, is_gated=is_gated, is_packed=True)
                for n in (1, 17, 33, 65)
                for is_gated in (False, True)
            ),
            *(products._choose_split(chip, None, n, is_gated=True) for n in (1, 16)),
            *(mixture._choose(chip, half, format, n) for format in ("", "fp8") for n in (16, 64)),
            mixture._choose_rows(chip, half, 1 << 20, 8),
            *(paged_attention.prefill_tile(chip, half, half, size) for size in sizes),
            *(paged_attention.decode_tile(chip, half, torch.int8, size, 4) for size in sizes),
        ]

    assert tiles(blackwell) == tiles(ada)


def test_a_chip_is_asked_for_fp8_and_not_the_one_that_was_asked_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    capabilities = {torch.device("cuda", 0): (8, 0), torch.device("cuda", 1): (9, 0)}
    in_force = [0]
    fakes = {
        "is_available": lambda: True,
        "current_device": lambda: in_force[0],
        "get_device_capability": lambda device: capabilities[
            torch.device("cuda", in_force[0]) if device.index is None else device
        ],
    }
    for name, fake in fakes.items():
        monkeypatch.setattr(torch.cuda, name, fake)
    chip_of.cache_clear()
    try:
        found = []
        for in_force[0] in (0, 1, 0):
            found.append(ops.has_kernels(torch.device("cuda", in_force[0]), FP8_DYNAMIC))
        assert found == [False, True, False]
    finally:
        chip_of.cache_clear()
