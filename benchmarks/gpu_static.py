"""What CUDA kernels would do on chips that aren't here: resources of their code, and estimates.

    python benchmarks/gpu_static.py [--chips 90] [--only rms_norm] [--checked] [--json]

Every kernel is compiled for each chip (build/triton-cache keeps the code). Registers, stack and
shared memory are those of the machine code. Blocks per multiprocessor follow from registers,
shared memory and warps; B200's tensor memory, which may allow fewer, isn't counted. All times are
ESTIMATES, of a roofline: a chip full of such blocks moves its bytes at the data sheet's bandwidth
or multiplies at its tensor cores' peak, whichever takes longer; no latency, no cache, no launch.
They say what binds a kernel, not how fast it is.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from rich import box
from rich.console import Console
from rich.table import Table

from inferno.ops.cuda.chips import CHIPS
from inferno.ops.cuda.shipped import shipped_variants
from inferno.ops.cuda.variants import Variant
from tests.ops.cuda.compile_kernels import Compiled, compile_in_processes

# Of a multiprocessor, by capability.
_MAX_BLOCKS = {80: 32, 86: 16, 89: 24, 90: 32, 100: 32, 120: 24}
_REGISTER_UNIT = 256  # registers are given to a warp in such pieces
_RESERVED_BYTES = 1024  # of shared memory, which the system takes for each block
# Little's law: so long lasts a load from memory, nearly alike on all chips.
_LATENCY = 700e-9


@dataclass(frozen=True, slots=True)
class Estimate:
    """A kernel's resources on a chip, measured on its code, and what a roofline makes of its work.

    blocks          that fit a multiprocessor; bound_by: what allows no more.
    occupancy       the part of the chip's warps that they are.
    microseconds    in which a multiprocessor's share of memory and tensor cores does a program.
    limit           the slower of both.
    in_flight       the bytes that all blocks of the chip ask for at once, if each asks for all of
                    its program's, to those that full bandwidth needs; too many for one with a loop.
    """

    name: str
    chip: str
    registers: int
    stack_bytes: int
    shared_bytes: int
    blocks: int
    bound_by: str
    occupancy: float
    microseconds: float
    limit: str
    in_flight: float
    is_estimate: bool = True


def estimate(variant: Variant, compiled: Compiled) -> Estimate:
    """Reckon how a chip would be filled, and with what it would be busy."""
    chip, work = variant.chip, variant.work
    a_warp = -(-compiled.registers * 32 // _REGISTER_UNIT) * _REGISTER_UNIT
    allowed = {
        "registers": chip.registers // (a_warp * variant.num_warps),
        "shared memory": (chip.shared_bytes + _RESERVED_BYTES)
        // (compiled.shared_bytes + _RESERVED_BYTES),
        "warps": chip.max_warps // variant.num_warps,
        "blocks": _MAX_BLOCKS[chip.capability],
    }
    blocks, bound_by = min((count, what) for what, count in allowed.items())
    of_memory = work.num_bytes * chip.num_multiprocessors / chip.bandwidth
    of_products = work.flops * chip.num_multiprocessors / chip.bf16_flops
    asked = work.num_bytes * blocks * chip.num_multiprocessors
    return Estimate(
        name=variant.name,
        chip=f"{chip.name} (SM{chip.capability})",
        registers=compiled.registers,
        stack_bytes=compiled.stack_bytes,
        shared_bytes=compiled.shared_bytes,
        blocks=blocks,
        bound_by=bound_by,
        occupancy=blocks * variant.num_warps / chip.max_warps,
        microseconds=max(of_memory, of_products) * 1e6,
        limit="memory" if of_memory >= of_products else "tensor cores",
        in_flight=asked / (chip.bandwidth * _LATENCY),
    )


def estimates(arguments: argparse.Namespace) -> Iterator[Estimate]:
    """Yield one for each kernel and chip, but for those that didn't compile."""
    options = ["--chips", *map(str, arguments.chips), "--only", arguments.only]
    options += ["--checked"] * arguments.checked
    variants = {
        (chip.capability, variant.name): variant
        for chip in CHIPS
        for variant in shipped_variants(chip)
    }
    for compiled in compile_in_processes(options, num_processes=2):
        if compiled.error:
            print(f"{compiled.name}: {compiled.error}", file=sys.stderr)
        else:
            yield estimate(variants[compiled.capability, compiled.name], compiled)


def main() -> None:
    """Print a table, or a line of JSON for each."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    known = [chip.capability for chip in CHIPS]
    parser.add_argument("--chips", type=int, nargs="+", choices=known, default=known)
    parser.add_argument("--only", default="", help="a pattern that names match")
    parser.add_argument("--checked", action="store_true", help="one configuration of a kernel")
    parser.add_argument("--json", action="store_true", help="a line of JSON for each")
    arguments = parser.parse_args()
    if arguments.json:
        for found in estimates(arguments):
            print(json.dumps(asdict(found)), flush=True)
        return
    is_terminal = sys.stdout.isatty()
    console = Console(width=None if is_terminal else 160, highlight=False)
    table = Table(box=box.SIMPLE_HEAD if is_terminal else None, pad_edge=is_terminal)
    for heading in ("kernel", "chip", "regs", "stack", "shared", "blocks", "bound by", "warps"):
        table.add_column(heading)
    for heading in ("us a program", "limit", "in flight", ""):
        table.add_column(heading)
    for one in sorted(estimates(arguments), key=lambda one: (one.name, one.chip)):
        table.add_row(
            *(one.name, one.chip, str(one.registers), str(one.stack_bytes), str(one.shared_bytes)),
            *(str(one.blocks), one.bound_by, f"{one.occupancy:.0%}"),
            *(f"{one.microseconds:.3g}", one.limit, f"{one.in_flight:.1f}x", "estimate"),
        )
    console.print(table)
    console.print("Blocks, times and bytes in flight are estimates: nothing of this was run.")


if __name__ == "__main__":
    main()
