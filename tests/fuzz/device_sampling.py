"""Draw random rows by the CUDA backend's kernels and by the CPU's, and count what differs.

    python -m tests.fuzz.device_sampling --seconds 60 --seed 1

On a GPU the kernels run as they are launched, on rows of up to 150,000 tokens. Without one they run
in Triton's interpreter, which takes as long for an operation on 4 rows as on 4,000. So all rows of
a batch are one program's there, vocabularies are small (most have at most 19 tokens, some 97), and
chunks and tiles are so small that rows lie in many of them all the same: 10 million rows take about
a quarter of an hour of one core. A third of the batches have neither top-k nor top-p, for which
kernels are others.

All that is hostile comes: ties, minus infinity, NaN, masks of a single token, temperatures at both
ends of float32. Likeliest tokens and random numbers are compared as well. What differs is printed,
and ends the run with status 1. `device_weights.py` beside this goes through all inputs of the
function that makes weights of logits.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
import warnings
from collections.abc import Sequence

import torch
from torch import Tensor

if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"  # read when kernels are defined

import triton

from inferno.ops import Purpose, SamplingSpec, cpu
from inferno.ops.cuda import random_numbers, sampling
from inferno.ops.cuda.sampling import Tiles

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
_MOST_INTERPRETED = 32768  # rows of one program; Triton's own bound is for compiled ones
SPREADS = (0.0, 1e-3, 0.3, 1.0, 3.0, 10.0, 300.0, 1e37)
TEMPERATURES = (1.1754944e-38, 1e-20, 0.01, 0.3, 0.7, 1.0, 1.0, 1.3, 2.0, 20.0, 1e30, 3e38)
TOP_PS = (1e-300, 1e-9, 0.1, 0.5, 0.8, 0.9, 0.95, 0.999, 1 - 2.0**-53)
MIN_PS = (1e-30, 1e-4, 0.05, 0.5, 1.0)


class Random:
    """Random choices for rows, from one seed."""

    def __init__(self, seed: int) -> None:
        self.generator = torch.Generator().manual_seed(seed)

    def integers(self, high: int, *shape: int) -> Tensor:
        return torch.randint(high, shape, generator=self.generator)

    def choices(self, values: Sequence[float], count: int) -> Tensor:
        table = torch.tensor(values, dtype=torch.float64)
        return table[self.integers(len(values), count)]

    def numbers(self, *shape: int) -> Tensor:
        return torch.rand(shape, generator=self.generator, dtype=torch.float64)

    def are(self, share: float, *shape: int) -> Tensor:
        return self.numbers(*shape) < share


def random_logits(random: Random, num_rows: int, vocab_size: int) -> Tensor:
    """Make rows of all kinds."""
    logits_RV = torch.randn(num_rows, vocab_size, generator=random.generator)
    logits_RV *= random.choices(SPREADS, num_rows).float().unsqueeze(1)
    is_tied_R1 = random.are(0.4, num_rows, 1)
    logits_RV = torch.where(is_tied_R1, (logits_RV * 2).round() / 2, logits_RV)  # and minus zeros
    is_short_R1 = random.are(0.3, num_rows, 1)
    logits_RV = torch.where(is_short_R1, logits_RV.bfloat16().float(), logits_RV)
    is_never_RV = random.are(0.3, num_rows, 1) & random.are(0.5, num_rows, vocab_size)
    logits_RV.masked_fill_(is_never_RV, -torch.inf)
    is_nan_RV = random.are(0.01, num_rows, 1) & random.are(0.1, num_rows, vocab_size)
    return logits_RV.masked_fill_(is_nan_RV, torch.nan)


def random_mask(random: Random, num_rows: int, vocab_size: int) -> Tensor:
    """Make words of which some rows allow all, half, or one of the tokens."""
    num_words = -(-vocab_size // 32)
    bits_RT = random.are(0.5, num_rows, num_words * 32)
    bits_RT |= random.are(0.3, num_rows, 1)
    only_R1 = random.integers(vocab_size, num_rows, 1)
    one_RT = torch.zeros_like(bits_RT).scatter_(1, only_R1, True)
    bits_RT = torch.where(random.are(0.2, num_rows, 1), one_RT, bits_RT)
    words_RW = (bits_RT.view(num_rows, num_words, 32).long() << torch.arange(32)).sum(-1)
    return words_RW.to(torch.int32)


def random_specs(random: Random, num_rows: int, vocab_size: int) -> list[SamplingSpec]:
    """Make specs of all kinds, a third of which have a top-k, a top-p and a min-p each."""
    temperature_R = random.choices(TEMPERATURES, num_rows)
    temperature_R.masked_fill_(random.are(0.05, num_rows), 0.0)
    top_k_R = random.integers(vocab_size, num_rows) * random.are(0.4, num_rows)
    top_p_R = torch.where(random.are(0.5, num_rows), random.choices(TOP_PS, num_rows), 1.0)
    min_p_R = random.choices(MIN_PS, num_rows) * random.are(0.3, num_rows)
    columns = (temperature_R.tolist(), top_k_R.tolist(), top_p_R.tolist(), min_p_R.tolist())
    return [SamplingSpec(*fields) for fields in zip(*columns, strict=True)]


def random_tiles(random: Random, num_rows: int, vocab_size: int) -> Tiles:
    """Choose tiles, in which rows lie in one chunk or many, and are listed or don't fit."""
    block = 2 ** (2 + int(random.integers(4)))
    tile = 2 ** (2 + int(random.integers(3)))
    capacity = (vocab_size, 4, 1 + vocab_size // 3)[int(random.integers(3))]
    return Tiles(rows=num_rows, block=block, tile=tile, capacity=capacity, chunks=32)


def compare(random: Random, num_rows: int, vocab_size: int, tiles: Tiles | None) -> int:
    """Draw rows twice, by tiles or as the backend chooses; return how many differ."""
    logits_RV = random_logits(random, num_rows, vocab_size)
    allowed_RW = random_mask(random, num_rows, vocab_size) if random.are(0.5, 1).item() else None
    specs = random_specs(random, num_rows, vocab_size)
    if random.are(0.3, 1).item():
        specs = [spec._replace(top_k=0, top_p=1.0) for spec in specs]
    seeds = (random.integers(2**32, num_rows) * 2**31 + random.integers(2**31, num_rows)).tolist()
    indices, positions = (random.integers(2**20, num_rows).tolist() for _ in range(2))
    asked = (seeds, indices, positions, Purpose.SAMPLE)
    uniform_R = cpu.uniform(*asked, torch.device("cpu"))
    peak_R, likeliest_R = cpu.argmax(logits_RV, allowed_RW=allowed_RW)
    want_R = torch.where(peak_R.isfinite(), likeliest_R, -1)
    cpu_specs = cpu.sampling_specs(specs, torch.device("cpu"))
    cpu.draw(logits_RV, peak_R, cpu_specs, uniform_R, allowed_RW=allowed_RW, out=want_R)

    logits_RV = logits_RV.to(DEVICE)
    allowed_RW = None if allowed_RW is None else allowed_RW.to(DEVICE)
    found_R = random_numbers.uniform(*asked, DEVICE)
    tiles = tiles or sampling.choose(num_rows, vocab_size)
    found_peak_R, got_R = sampling.argmax_by_tiles(logits_RV, allowed_RW, tiles)
    is_same_R = (found_R.cpu() == uniform_R) & (
        (found_peak_R.cpu() == peak_R) | (peak_R.isnan() & found_peak_R.cpu().isnan())
    )
    is_same_R &= (got_R.cpu() == likeliest_R) | ~peak_R.isfinite()
    got_R = torch.where(found_peak_R.isfinite(), got_R, -1)
    device_specs = sampling.sampling_specs(specs, DEVICE)
    sampling.draw_by_tiles(logits_RV, found_peak_R, device_specs, found_R, allowed_RW, got_R, tiles)
    is_same_R &= got_R.cpu() == want_R
    for row in (~is_same_R).nonzero().flatten().tolist()[:3]:
        print(
            f"row {row} of {num_rows} x {vocab_size}: {got_R[row].item()} instead of "
            f"{want_R[row].item()} by {specs[row]}, tiles {tiles}"
        )
    return int((~is_same_R).sum())


def run(seconds: float, seed: int, most_rows: int) -> tuple[int, int]:
    """Compare batch after batch for so long; return how many rows were, and how many differed."""
    random, deadline = Random(seed), time.monotonic() + seconds
    num_rows = num_different = 0
    while time.monotonic() < deadline and num_rows < most_rows:
        if DEVICE.type == "cuda":
            vocab_size = 1 + int(2 ** (17.2 * random.numbers(1).item()))
            batch = max(1, min(65536, 2**24 // vocab_size))
            tiles = None
        else:
            most_bits, batch = (
                (6.6, 4096) if random.are(0.1, 1).item() else (4.2, _MOST_INTERPRETED)
            )
            vocab_size = 1 + int(2 ** (most_bits * random.numbers(1).item()))
            tiles = random_tiles(random, batch, vocab_size)
        num_different += compare(random, batch, vocab_size, tiles)
        num_rows += batch
    return num_rows, num_different


def let_programs_be_large() -> None:
    """Let Triton's interpreter run programs of as many rows as there are in a batch."""
    triton._utils.TRITON_MAX_TENSOR_NUMEL = 2**31
    random_numbers._ROWS = _MOST_INTERPRETED
    warnings.simplefilter("ignore", RuntimeWarning)  # numpy's, of infinities less infinities


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--rows", type=int, default=10_000_000, help="end after so many")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    torch.set_num_threads(1)
    if DEVICE.type == "cpu":
        let_programs_be_large()
    num_rows, num_different = run(args.seconds, args.seed, args.rows)
    print(f"{num_rows:,} rows on {DEVICE.type}, {num_different:,} differ")
    return 1 if num_different else 0


if __name__ == "__main__":
    sys.exit(main())
