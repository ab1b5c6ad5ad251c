"""Products with a weight of one output: a number that Triton makes a constant of."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from inferno.ops.cuda import products
from inferno.ops.cuda.chips import Chip
from inferno.ops.cuda.variants import Variant


def variants(chip: Chip) -> Iterator[Variant]:
    """Yield the smallest variant of each kernel, of packed weights, with gates and without."""
    for variant in products.variants(chip):
        if variant.name in {
            "split_linear_int8_fp16_fp16_8",
            "split_linear_int8_fp16_fp16_gated_8",
            "tiled_linear_int8_fp16_fp16_32",
            "tiled_linear_int8_fp16_fp16_gated_32",
        }:
            signature = dict(variant.signature)
            del signature["num_outputs"]
            constants = {**variant.constants, "num_outputs": 1}
            yield replace(variant, signature=signature, constants=constants)
