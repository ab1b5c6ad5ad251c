"""A kernel is compiled once for steps of all sizes: else requests wait for what nobody warmed up.

Triton compiles anew for numbers that are 1 or multiples of 16, and for memory that begins at
multiples of 16 bytes. Kernels aren't run here; what a launch would look for is told by Triton.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any

import pytest
import torch
from triton.runtime.interpreter import InterpretedFunction

from inferno import ops
from inferno.config.mixture import PlainSwiGLU
from inferno.engine.execution.static_batcher import StaticBatcher, _Layout, _Places
from inferno.ops import AttentionKind, Batch, SamplingSpec
from inferno.ops.cuda.packed_weights import CodedWeight
from inferno.quantization import FP8_DYNAMIC, INT8, RowRange
from tests.ops.cuda.launches import bind

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(torch.cuda.is_available(), reason="kernels aren't interpreted there"),
]

CUDA = ops.BACKENDS["cuda"]
CPU = torch.device("cpu")
BLOCK_SIZE = 16


@dataclass
class Forms:
    """What each kernel would have been compiled for."""

    of_kernel: dict[str, set[Any]] = field(default_factory=lambda: defaultdict(set))

    def note(self, kernel: Any, args: Any, kwargs: Any) -> None:
        bound = bind(kernel, args, kwargs)
        form = zip(bound.arguments, bound.specialization, strict=True)
        self.of_kernel[kernel.fn.__name__].add((*form, *sorted(bound.options.items())))


@pytest.fixture
def forms(monkeypatch: pytest.MonkeyPatch) -> Forms:
    """The forms of kernels that are launched from now on, none of which runs."""
    found = Forms()

    def noted(kernel: Any, *args: Any, grid: Any, warmup: bool, **kwargs: Any) -> None:
        found.note(kernel, args, kwargs)

    monkeypatch.setattr(InterpretedFunction, "run", noted)
    return found


STEPS: list[tuple[tuple[int, ...], int]] = [  # tokens of each request, and how wide tables are
    *(((112,), 7), ((95,), 6), ((96,), 16), ((97,), 17)),
    *(((80, 7), 16), ((81, 20, 1), 9), ((94, 3, 2, 1), 32)),
]


def places_of(query_lens: Sequence[int], width: int) -> _Places:
    """Return where a step's numbers lie on the device."""
    num_tokens, num_requests = sum(query_lens), len(query_lens)
    batcher = StaticBatcher(
        block_size=BLOCK_SIZE,
        group_windows=(None, 64),
        max_model_len=1024,
        device=CPU,
        attention=AttentionKind.AUTO,
        max_tokens=128,
        max_num_seqs=4,
        drawn_N=torch.zeros(8, dtype=torch.int64),
    )
    places = batcher._place(_Layout(num_tokens, num_requests, num_requests, 2, width, None))
    places.query_starts_R[:] = torch.tensor([0, *accumulate(query_lens)])
    return places


@pytest.mark.parametrize("group", [0, 1])
def test_attention_and_rotation(group: int, forms: Forms) -> None:
    kv = CUDA.empty_cache((64, BLOCK_SIZE, 2, 64), torch.float16)
    kv = type(kv)(kv.keys_NSKD, kv.values_NSKD, group)
    for query_lens, width in STEPS:
        places, num_tokens = places_of(query_lens, width), sum(query_lens)
        batch = Batch(
            token_ids_T=places.token_ids_T,
            positions_T=places.positions_T,
            query_lens=query_lens,
            context_lens=query_lens,
            query_starts_R=places.query_starts_R,
            context_lens_R=places.context_lens_R,
            groups=places.groups,
        )
        cos_sin_TD = CUDA.cos_sin(places.positions_T, torch.ones(40), 1.0)
        qkv_THD = torch.zeros((num_tokens, 8, 64), dtype=torch.float16)
        q_THD, k_TKD, v_TKD = torch.split(qkv_THD, [4, 2, 2], dim=1)
        q_THD = CUDA.rotate_and_store(q_THD, k_TKD, v_TKD, cos_sin_TD[:, :64], batch, kv)
        CUDA.attention(q_THD, batch, kv, scale=0.1)
    assert {name: len(found) for name, found in forms.of_kernel.items()} == dict.fromkeys(
        (
            *("cos_sin_kernel", "rotate_and_store_kernel", "prefill_attention_kernel"),
            *("decode_attention_kernel", "combine_splits_kernel"),
        ),
        1,
    )


def test_products_of_many_rows(forms: Forms) -> None:
    shape = torch.Size((128, 256))
    weights = [
        CUDA.allocate(shape, torch.float16, (RowRange(128, format),))
        for format in (INT8, FP8_DYNAMIC)
    ]
    for num_tokens in (112, 95, 97, 128):
        for weight in weights:
            assert isinstance(weight, CodedWeight)
            CUDA.linear(torch.zeros((num_tokens, 256), dtype=torch.float16), weight)
    assert {name: len(found) for name, found in forms.of_kernel.items()} == dict.fromkeys(
        ("tiled_linear_kernel", "quantize_rows_kernel", "fp8_linear_kernel"), 1
    )


def test_products_of_few_rows(forms: Forms) -> None:
    weight = CUDA.allocate(torch.Size((128, 256)), torch.float16, (RowRange(128, INT8),))
    assert isinstance(weight, CodedWeight)
    for num_tokens in (1, 2, 8):
        CUDA.linear(torch.zeros((num_tokens, 256), dtype=torch.float16), weight)
    assert len(forms.of_kernel["split_linear_kernel"]) == 1
    for num_tokens in (9, 15, 16):
        CUDA.linear(torch.zeros((num_tokens, 256), dtype=torch.float16), weight)
    assert len(forms.of_kernel["split_linear_kernel"]) == 2, "tiles of 8 rows, and of 16"


def test_mixtures_of_few_choices(forms: Forms) -> None:
    gate_up_XFE, down_XEF = torch.zeros(8, 64, 128).half(), torch.zeros(8, 128, 32).half()
    for num_tokens in (1, 2, 16):
        x_TE = torch.zeros((num_tokens, 128), dtype=torch.float16)
        chosen = CUDA.route(torch.zeros((num_tokens, 8)).half(), 3, renormalize=True)
        CUDA.experts(x_TE, *chosen, gate_up_XFE, down_XEF, activation=PlainSwiGLU())
    assert {name: len(found) for name, found in forms.of_kernel.items()} == dict.fromkeys(
        ("route_kernel", "gate_up_kernel", "down_kernel", "combine_kernel"), 1
    )


def test_mixtures(forms: Forms) -> None:
    gate_up_XFE, down_XEF = torch.zeros(8, 64, 128).half(), torch.zeros(8, 128, 32).half()
    for num_tokens in (48, 45, 53, 64):
        x_TE = torch.zeros((num_tokens, 128), dtype=torch.float16)
        chosen = CUDA.route(torch.zeros((num_tokens, 8)).half(), 3, renormalize=True)
        CUDA.experts(x_TE, *chosen, gate_up_XFE, down_XEF, activation=PlainSwiGLU())
    assert {name: len(found) for name, found in forms.of_kernel.items()} == dict.fromkeys(
        ("route_kernel", "sort_choices_kernel", "gate_up_kernel", "down_kernel", "combine_kernel"),
        1,
    )


def test_draws(forms: Forms) -> None:
    for query_lens, width in STEPS:
        num_rows, places = len(query_lens), places_of(query_lens, width)
        logits_RV = torch.zeros((num_rows, 512))
        peak_R, token_R = CUDA.argmax(logits_RV)
        spec = SamplingSpec(temperature=1.0, top_k=5, top_p=0.9, min_p=0.0)
        specs = CUDA.sampling_specs([spec] * num_rows, CPU)
        CUDA.draw(logits_RV, peak_R, specs, places.uniform_N[:num_rows], out=token_R)
    assert set(map(len, forms.of_kernel.values())) == {1}
    assert "finish_kernel" in forms.of_kernel
