"""Is inferno right on this GPU, and how near its limits? Prints a table; takes under eight minutes.

    python benchmarks/gpu.py [--device cuda:0] [--json FILE] [--only PART] [--seconds N]

First the kernels' tests run (pytest -m gpu; a part of them under compute-sanitizer where it is
installed), then everything is timed beside the limits of the chip, which the same run measures:
bandwidth of a copy (bytes read and written) and the speed of a matrix product in bfloat16. Each
figure is a fraction of such a limit, or a ratio to PyTorch's attention or `transformers`. Weights
are random, in real shapes. Parts: checks, attention, decode-attention, models, throughput.

With TRITON_INTERPRET=1 and --device cpu shapes are tiny: that tries this script alone.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import torch
from gpu_attention import attention_figures, decode_attention_figures
from gpu_checks import check
from gpu_models import model_figures, throughput_figures
from gpu_timing import Bench, Figure, measure_limits
from rich.console import Console
from rich.table import Table

from inferno import ops

PARTS: dict[str, Callable[[Bench], Iterator[Figure]]] = {
    "checks": check,
    "attention": attention_figures,
    "decode-attention": decode_attention_figures,
    "models": model_figures,
    "throughput": throughput_figures,
}


def main() -> None:
    """Run the parts one after the other; what fails in one is told, and the others go on."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--json", type=Path, help="write all figures there, part by part")
    parser.add_argument("--only", choices=PARTS, action="append")
    parser.add_argument("--seconds", type=float, default=460.0, help="begin no part after so many")
    arguments = parser.parse_args()
    device = torch.device(arguments.device)
    if device.type == "cpu":
        ops.BACKENDS["cpu"] = ops.BACKENDS["cuda"]
    begun = time.perf_counter()
    console = Console()
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(device, Path(folder), measure_limits(device))
        console.print(bench.describe())
        told: dict[str, object] = {"machine": bench.describe()}
        for name in arguments.only or PARTS:
            taken = time.perf_counter() - begun
            if taken > arguments.seconds:
                console.print(f"{name}: not run, {taken:.0f} s have passed")
                told[name] = "not run"
                continue
            figures: list[Figure] = []
            try:
                for figure in PARTS[name](bench):
                    figures.append(figure)
            except Exception as problem:  # the others are worth having all the same
                console.print(f"[red]{name} failed: {type(problem).__name__}: {problem}")
                told[f"{name} failed"] = repr(problem)
            console.print(_table(name, figures, time.perf_counter() - begun - taken, bench.is_gpu))
            told[name] = [asdict(figure) for figure in figures]
            if arguments.json is not None:
                with suppress(OSError):
                    arguments.json.write_text(json.dumps(told, indent=1))


def _table(name: str, figures: Sequence[Figure], seconds: float, is_judged: bool) -> Table:
    table = Table(title=f"{name} ({seconds:.0f} s)", title_justify="left")
    for heading in ("work", "measured", "beside", "bar", ""):
        table.add_column(heading)
    for figure in figures:
        is_met = figure.is_met if is_judged else None
        verdict = "" if is_met is None else "met" if is_met else "MISSED"
        ratio = "" if figure.ratio is None else f"{figure.ratio:g}"
        bar = "" if figure.bar is None else f"{figure.bar:g}"
        table.add_row(figure.work, figure.value, f"{ratio} {figure.beside}", bar, verdict)
    return table


if __name__ == "__main__":
    main()
