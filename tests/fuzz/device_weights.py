"""Compare the weights that the CUDA backend makes of logits with the CPU's, for all inputs.

    python -m tests.fuzz.device_weights --seconds 100

A weight is a function of one float32: how far a logit is below the peak, by the temperature. All
that is below the least exponent counts as that. So there are some 1.12 billion inputs, from minus
zero down, and for each the kernels' function, run in Triton's interpreter or on a GPU, must give
what ops/reference/sampling.py says. Compiled CPU kernels tell no weights, but the logarithm of a
row's total: of a row with the likeliest token and one other it tells the other's weight to the bit,
and that must be the same too.

Inputs are taken in lots, each of which is spread over the whole range. `--first` goes on where a
run has ended.
"""

from __future__ import annotations

import argparse
import sys
import time

import torch
import triton
import triton.language as tl
from torch import Tensor

from inferno.ops import cpu
from inferno.ops.reference.sampling import LEAST_EXPONENT, Scale, unit_weight
from tests.fuzz.device_sampling import DEVICE, let_programs_be_large

from inferno.ops.cuda import drawing  # isort: skip - it reads whether kernels are interpreted

_FIRST = -(2**31)  # the bits of minus zero, as a signed number
NUM_INPUTS = int(torch.tensor(LEAST_EXPONENT).view(torch.int32)) - _FIRST + 2  # one is below it
_LOT = 2**18
NUM_LOTS = -(-NUM_INPUTS // _LOT)
_UNIT = unit_weight(2)


@triton.jit
def weigh_kernel(scaled, out, unit, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + place, drawing._weigh(tl.load(scaled + place), 0.0, unit))


def inputs(lot: int) -> Tensor:
    """Return a lot's inputs, [_LOT]; the last ones may be some below the least exponent."""
    bits_N = _FIRST + lot + torch.arange(_LOT) * NUM_LOTS
    return bits_N.clamp_(max=_FIRST + NUM_INPUTS - 1).to(torch.int32).view(torch.float32)


def on_the_device(x_N: Tensor) -> Tensor:
    """Return the weights that the kernels' function makes, int64."""
    x_N = x_N.to(DEVICE)
    out_N = torch.empty(len(x_N), dtype=torch.int64, device=DEVICE)
    block = len(x_N) if DEVICE.type == "cpu" else 1024
    weigh_kernel[len(x_N) // block,](x_N, out_N, _UNIT, block, enable_fp_fusion=False)
    return out_N.cpu()


def by_the_reference(x_N: Tensor) -> Tensor:
    scale = Scale(torch.zeros(1, 1), torch.ones(1, 1), None, _UNIT)
    return scale.weigh(x_N.unsqueeze(0)).squeeze(0).long()


def on_the_cpu(x_N: Tensor) -> Tensor:
    """Return the weights that totals tell: (e^log_total - 1) of the unit is off by less than 1."""
    logits_N2 = torch.stack((torch.zeros_like(x_N), x_N), dim=1)
    log_share_N1 = cpu.log_probabilities(logits_N2, torch.zeros(len(x_N), 1, dtype=torch.int64))
    return torch.expm1(-log_share_N1.squeeze(1)).mul_(_UNIT).round_().long()


def num_different(lot: int) -> int:
    """Compare a lot; return how many weights differ from the reference's anywhere."""
    x_N = inputs(lot)
    want_N = by_the_reference(x_N)
    is_other_N = (on_the_device(x_N) != want_N) | (on_the_cpu(x_N) != want_N)
    for i in is_other_N.nonzero().flatten().tolist()[:3]:
        print(f"input {float(x_N[i])!r}: the weight should be {int(want_N[i])}")
    return int(is_other_N.sum())


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--first", type=int, default=0, help="the lot to begin with")
    args = parser.parse_args()
    torch.set_num_threads(1)
    if DEVICE.type == "cpu":
        let_programs_be_large()
    deadline, lot, different = time.monotonic() + args.seconds, args.first, 0
    while lot < NUM_LOTS and time.monotonic() < deadline:
        different += num_different(lot)
        lot += 1
    print(
        f"lots {args.first:,} to {lot:,} of {NUM_LOTS:,}, {_LOT:,} inputs each, on {DEVICE.type}: "
        f"{different:,} differ"
    )
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
