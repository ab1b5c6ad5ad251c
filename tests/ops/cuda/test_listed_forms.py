"""The forms that are listed, and compiled without a GPU, are those that models have launched.

What isn't listed would be compiled by users first, and what nobody launches takes hours to read.
Kernels aren't run here. `test_emulated_gpu` and `test_whole_models` look at whole models' launches.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any

import pytest
import torch
from torch import Tensor

from inferno import ops
from inferno.config.mixture import ClampedSwiGLU, PlainSwiGLU
from inferno.ops import Penalties, Purpose, SamplingSpec
from inferno.ops.cuda import chips
from inferno.ops.cuda.chips import CHIPS, Chip
from inferno.ops.cuda.paged_attention import CACHED, HEAD_SIZES, head_sizes
from inferno.quantization import FP8, FP8_DYNAMIC, INT4, INT8, MXFP4, RowRange, WeightFormat
from tests.ops.batches import make_batch
from tests.ops.cuda.launches import listed_forms, noted_launches

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(torch.cuda.is_available(), reason="kernels aren't interpreted there"),
]

CUDA = ops.BACKENDS["cuda"]
CPU = torch.device("cpu")
HALVES = (torch.bfloat16, torch.float16)
TYPES = (torch.float32, *HALVES)
# int4's head and embedding are int8; files may have any matrix in the other formats.
OF_LAYERS = (INT8, INT4, FP8, MXFP4)
OF_HEADS = (INT8, FP8, MXFP4)
CODES = (torch.int8, torch.float8_e4m3fn)
EXPERTS, CHOSEN = 16, 2


def zeros(*shape: int, dtype: torch.dtype) -> Tensor:
    return torch.zeros(shape, dtype=dtype)


def weight(
    num_rows: int, num_inputs: int, dtype: torch.dtype, format: WeightFormat | None, **how: bool
) -> Any:
    floats = ops.float_format(dtype)
    ranges = (RowRange(num_rows, format or floats),)
    found = CUDA.allocate(torch.Size((num_rows, num_inputs)), dtype, ranges, **how)
    return zeros(num_rows, num_inputs, dtype=dtype) if found is None else found


def launch_embeddings() -> None:
    ids_T = torch.zeros(3, dtype=torch.int64)
    for dtype, format in product(TYPES, (None, *OF_HEADS)):
        CUDA.embedding(ids_T, weight(32, 512, dtype, format))


def launch_norms() -> None:
    for dtype, width in product(TYPES, (256 << shift for shift in range(7))):
        x_TE = zeros(3, width, dtype=dtype)
        CUDA.rms_norm(x_TE, x_TE[0], 1e-6)
        CUDA.add_rms_norm(x_TE, x_TE, x_TE[0], 1e-6)


def launch_products(chip: Chip) -> None:
    """Layers may have a bias, heads have none; a head's result is float32."""
    all_rows = (1, 9, 17, 33, 65)
    for dtype, format, is_invariant in product(HALVES, (None, *OF_LAYERS), (False, True)):
        layer = weight(128, 256, dtype, format, is_invariant=is_invariant)
        for num_rows, bias_O in product(all_rows, (None, zeros(128, dtype=dtype))):
            x_TI = zeros(num_rows, 256, dtype=dtype)
            CUDA.linear(x_TI, layer, bias_O)
            CUDA.gated_linear(x_TI, layer, bias_O)
    for dtype, format, is_invariant in product(HALVES, (None, *OF_HEADS), (False, True)):
        head = weight(128, 256, dtype, format, is_invariant=is_invariant)
        for num_rows in all_rows:
            logits_NV = zeros(num_rows, 128, dtype=torch.float32)
            CUDA.linear(zeros(num_rows, 256, dtype=dtype), head, out=logits_NV)
    for dtype in TYPES if chip.has_fp8 else ():  # loading refuses this format on other chips
        layer = weight(128, 256, dtype, FP8_DYNAMIC)
        for num_rows, bias_O in product(all_rows, (None, zeros(128, dtype=dtype))):
            CUDA.linear(zeros(num_rows, 256, dtype=dtype), layer, bias_O)
            CUDA.gated_linear(zeros(num_rows, 256, dtype=dtype), layer, bias_O)


def launch_mixtures() -> None:
    biased = ClampedSwiGLU(), zeros(EXPERTS, 512, dtype=torch.float32)
    # More experts than the kernel takes go to the reference.
    for num_experts, num_chosen in ((8, 2), (60, 4), (128, 8), (256, 1), (512, 10), (1024, 16)):
        for dtype, renormalize in product(TYPES, (False, True)):
            CUDA.route(zeros(3, num_experts, dtype=dtype), num_chosen, renormalize=renormalize)
    # Few choices, and 8, 64 and 128 for each expert.
    counts = (8, *(rows * EXPERTS // CHOSEN for rows in (8, 64, 128)))
    for dtype, format, (activation, bias_XF), size, num_tokens in product(
        TYPES, (None, *OF_LAYERS), ((PlainSwiGLU(), None), biased), (256, 272), counts
    ):
        given: dict[str, Any] = {"activation": activation}
        if bias_XF is not None:
            given["gate_up_bias_XF"] = zeros(EXPERTS, 2 * size, dtype=dtype)
            given["down_bias_XE"] = zeros(EXPERTS, size, dtype=dtype)
        weights: list[Any] = []
        for num_rows in (2 * size, size):
            shape = torch.Size((EXPERTS, num_rows, size))
            ranges = (RowRange(num_rows, format or ops.float_format(dtype)),)
            found = CUDA.allocate(shape, dtype, ranges)
            weights.append(torch.empty(shape, dtype=dtype) if found is None else found)
        CUDA.experts(
            zeros(num_tokens, size, dtype=dtype),
            torch.zeros((num_tokens, CHOSEN), dtype=torch.int64),
            zeros(num_tokens, CHOSEN, dtype=torch.float32),
            *weights,
            **given,
        )


def launch_attention() -> None:
    lens = [70, 1]
    batch = make_batch(lens, lens, [[1, 2, 3, 4, 5], [6]], block_size=16)
    large = make_batch(lens, lens, [[1], [2]], block_size=128)  # blocks that hold whole tiles
    CUDA.cos_sin(batch.positions_T, torch.ones(32), 1.0)
    for dtype, size in product(TYPES, HEAD_SIZES):
        for cached in CACHED[dtype]:
            kv = CUDA.empty_cache((8, 16, 1, size), cached)
            for num_heads in (2, 17) if size in head_sizes(dtype, cached) else ():
                q_THD = zeros(71, num_heads, size, dtype=dtype)
                CUDA.attention(q_THD, batch, kv, scale=0.1)
                CUDA.attention(q_THD, large, CUDA.empty_cache((3, 128, 1, size), cached), scale=0.1)
            if size < 64 or cached not in (dtype, *CODES):
                continue  # other sizes are not listed; the reference stores in other types
            heads, cos_sin_TD = (
                zeros(71, 1, size, dtype=dtype),
                zeros(71, size, dtype=torch.float32),
            )
            for norm_D in (None, zeros(size, dtype=dtype)):
                CUDA.rotate_and_store(
                    *(heads, heads, heads, cos_sin_TD, batch, kv), q_norm_D=norm_D, k_norm_D=norm_D
                )


def launch_draws() -> None:
    plain = SamplingSpec(temperature=1.0, top_k=0, top_p=1.0, min_p=0.0)
    penalties = Penalties(token_ids=(1,), in_output=(1,), repetition=1.1, frequency=0, presence=0)
    for num_rows in (1, 8):
        logits_RV = zeros(num_rows, 2**15, dtype=torch.float32)
        masks = (None, torch.zeros((num_rows, 2**10), dtype=torch.int32))
        uniform_R = CUDA.uniform(
            [1] * num_rows, [0] * num_rows, [0] * num_rows, Purpose.SAMPLE, CPU
        )
        out_R = torch.zeros(num_rows, dtype=torch.int64)
        for allowed_RW, spec in product(masks, (plain, plain._replace(top_p=0.9))):
            peak_R, _ = CUDA.argmax(logits_RV, allowed_RW=allowed_RW)
            specs = CUDA.sampling_specs([spec] * num_rows, CPU)
            CUDA.draw(logits_RV, peak_R, specs, uniform_R, allowed_RW=allowed_RW, out=out_R)
        CUDA.log_probabilities(logits_RV, torch.zeros((num_rows, 1), dtype=torch.int64))
        CUDA.top_tokens(logits_RV, 3)
        CUDA.penalize(logits_RV, [0], [penalties])
        CUDA.penalize(logits_RV, [0], [penalties._replace(pending_row=0)], out_R)


@pytest.fixture(params=[80, 89, 90, 100], ids="SM{}".format)
def chip(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Chip]:
    """A chip that launches choose for."""
    found = next(each for each in CHIPS if each.capability == request.param)
    monkeypatch.setattr(chips, "INTERPRETED", found)
    chips.chip_of.cache_clear()
    yield found
    chips.chip_of.cache_clear()


def test_what_is_listed_is_what_is_launched(chip: Chip) -> None:
    with noted_launches(are_run=False) as launched:
        launch_embeddings()
        launch_norms()
        launch_products(chip)
        launch_mixtures()
        launch_attention()
        launch_draws()
    assert sorted(launched - listed_forms(chip)) == []
    assert sorted(listed_forms(chip) - launched) == []
