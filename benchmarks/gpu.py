"""Is inferno right on this GPU, and how near its limits? Prints a table; takes under eight minutes.

    python benchmarks/gpu.py [--device cuda:0] [--json FILE] [--only PART] [--seconds N]

First the limits of the chip are measured, with which figures are compared: bandwidth of a copy
(bytes read and written) and the speed of a matrix product in bfloat16. Then the kernels' tests run,
and everything is timed: each figure is a fraction of such a limit, or a ratio to PyTorch's
attention or `transformers`. Weights are random, in real shapes. Last a few tests run under
compute-sanitizer.

Parts run in a process of their own, which is ended where one takes too long; after a part that
failed the next ones have a new process, for an error may leave a GPU useless to the old one. Each
figure is printed, and written to FILE as a line of JSON, as soon as it is known.

With TRITON_INTERPRET=1 and --device cpu shapes are tiny: that tries this script alone.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, cast

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import torch
from gpu_attention import attention_figures, decode_attention_figures
from gpu_checks import sanitize, test
from gpu_models import free, invariant_figures, model_figures, throughput_figures
from gpu_timing import Bench, Figure, Limits, measure_limits
from rich.console import Console
from rich.table import Table

from inferno import ops
from inferno.ops import Backend, reference

_LIMITS = "limits"
_WATCHED_EVERY = 0.2  # seconds
_START_SECONDS = 60.0  # of a process, until its first part begins


@dataclass(frozen=True, slots=True)
class Part:
    """A part of the run: what yields its figures, and the seconds after which it is ended."""

    figures: Callable[[Bench], Iterator[Figure]]
    seconds: float


def _limit_figures(bench: Bench) -> Iterator[Figure]:
    yield Figure("machine", bench.describe())


# What matters most comes first, for the time may not suffice for all.
PARTS: dict[str, Part] = {
    _LIMITS: Part(_limit_figures, 60),
    "tests": Part(test, 150),
    "decode-attention": Part(decode_attention_figures, 45),
    "Qwen3-0.6B": Part(partial(model_figures, name="Qwen3-0.6B"), 75),
    "Llama-3.1-8B": Part(partial(model_figures, name="Llama-3.1-8B"), 100),
    "gpt-oss-20b": Part(partial(model_figures, name="gpt-oss-20b"), 90),
    "attention": Part(attention_figures, 60),
    "throughput": Part(throughput_figures, 130),
    "batch-invariant": Part(invariant_figures, 75),
    "sanitizer": Part(sanitize, 60),
}


def main() -> None:
    """Have the parts run one after the other, and tell of all; whatever fails, the others go on."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--json", type=Path, help="write each figure there, a line each")
    parser.add_argument("--only", choices=PARTS, action="append")
    parser.add_argument("--seconds", type=float, default=460.0, help="end after so many")
    parser.add_argument("--work", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    wanted = [name for name in PARTS if arguments.only is None or name in arguments.only]
    if arguments.work:
        work(torch.device(arguments.device), wanted, arguments.json)
        return
    with tempfile.TemporaryDirectory() as folder:
        file = arguments.json or Path(folder) / "figures"
        file.write_text("")
        if _LIMITS not in wanted:
            wanted.insert(0, _LIMITS)
        is_gpu = arguments.device.startswith("cuda")
        limits = {name: part.seconds if is_gpu else math.inf for name, part in PARTS.items()}
        seconds = arguments.seconds if is_gpu else math.inf
        supervise(wanted, _command(arguments.device, file), file, seconds, limits)
        _print(file, is_judged=is_gpu)


def _command(device: str, file: Path) -> Callable[[Sequence[str]], list[str]]:
    """Return what makes the command that runs some parts."""
    own = [sys.executable, __file__, "--work", "--device", device, "--json", str(file)]
    return lambda parts: [*own, *(word for part in parts for word in ("--only", part))]


def supervise(
    parts: Sequence[str],
    command: Callable[[Sequence[str]], list[str]],
    file: Path,
    seconds: float,
    limits: Mapping[str, float],
) -> None:
    """Run parts in a process, and what follows a part that failed, or had no end, in a new one.

    command   which runs some of them, and notes in `file` what begins and what ends.
    seconds   for all parts; limits: for each.
    """
    first, left = time.monotonic(), list(parts)
    while left:
        num_known = len(read(file))
        process = subprocess.Popen(command(left), process_group=0)
        current, since, why = left[0], time.monotonic(), ""
        limit = _START_SECONDS + limits[current]
        while process.poll() is None and not why:
            time.sleep(_WATCHED_EVERY)
            now = time.monotonic()
            begun = _begun(read(file)[num_known:])
            if begun and (begun != current or limit != limits[current]):
                current, since, limit = begun, now, limits[begun]
            if now - since > limit:
                why = f"no end after {limit:g} s"
            elif now - first > seconds:
                why = f"no end when {seconds:g} s had passed in all"
        if why:
            os.killpg(process.pid, signal.SIGKILL)
        code = process.wait()
        if code == 0 and not why:
            return
        lines = read(file)[num_known:]
        current = _begun(lines) or left[0]
        if not any(line["part"] == current and "failed" in line for line in lines):
            note(file, part=current, failed=why or f"the process ended with {code}")
        left = left[left.index(current) + 1 :]
        if time.monotonic() - first > seconds:
            for name in left:
                note(file, part=name, failed=f"not run, for {seconds:g} s had passed")
            return


def _begun(lines: Sequence[Mapping[str, Any]]) -> str | None:
    """Return the part that began last."""
    return next((str(line["part"]) for line in reversed(lines) if "begun" in line), None)


def work(device: torch.device, parts: Sequence[str], file: Path) -> None:
    """Run parts; ends with 1 after the first that fails."""
    if device.type == "cpu":
        ops.BACKENDS["cpu"] = cast(Backend, _Interpreted())
    limits = _known_limits(file)
    with tempfile.TemporaryDirectory() as folder:
        for name in parts:
            note(file, part=name, begun=time.time())
            try:
                if name == _LIMITS:
                    limits = measure_limits(device)
                    note(file, part=name, limits=asdict(limits))
                bench = Bench(device, Path(folder), limits)
                for figure in PARTS[name].figures(bench):
                    note(file, part=name, figure=asdict(figure))
                    print(f"{name}: {_words(figure)}", flush=True)
            except Exception as problem:
                text = "".join(traceback.format_exception(problem))
                note(file, part=name, failed=f"{type(problem).__name__}: {problem}", text=text)
                print(f"{name} failed\n{text}", flush=True)
                sys.exit(1)
            note(file, part=name, ended=time.time())
            free()


class _Interpreted:
    """CUDA's kernels on a CPU, which has no memory and no streams of a GPU."""

    __name__ = "interpreted"
    _others = ("is_asynchronous", "new_upload", "new_download", "graph_capture")

    def __getattr__(self, name: str) -> Any:
        return getattr(reference if name in self._others else ops.BACKENDS["cuda"], name)


def note(file: Path, **facts: object) -> None:
    """Add a line to the file of figures."""
    with file.open("a") as lines:
        lines.write(json.dumps(facts) + "\n")


def read(file: Path) -> list[dict[str, Any]]:
    """Return the lines of the file of figures; one that is being written is left out."""
    lines = file.read_text().splitlines(keepends=True)
    return [json.loads(line) for line in lines if line.endswith("\n")]


def _known_limits(file: Path) -> Limits:
    """Return the limits that were measured, or such that no figure compares with."""
    found = [line["limits"] for line in read(file) if "limits" in line]
    return Limits(**found[-1]) if found else Limits(math.nan, math.nan)


def _words(figure: Figure) -> str:
    ratio = "" if figure.ratio is None else f"{figure.ratio:g} {figure.beside}"
    return "; ".join(filter(None, (figure.work, figure.value, ratio)))


def _print(file: Path, *, is_judged: bool) -> None:
    console, lines = Console(), read(file)
    for name in dict.fromkeys(line["part"] for line in lines):
        own = [line for line in lines if line["part"] == name]
        figures = [Figure(**line["figure"]) for line in own if "figure" in line]
        begun, ended = ([line[key] for line in own if key in line] for key in ("begun", "ended"))
        seconds = f" ({ended[-1] - begun[-1]:.0f} s)" if begun and ended else ""
        console.print(_table(f"{name}{seconds}", figures, is_judged))
        for line in own:
            if "failed" in line:
                console.print(f"[red]{name} failed:[/] ", end="")
                console.print(line["failed"], markup=False)


def _table(title: str, figures: Iterable[Figure], is_judged: bool) -> Table:
    table = Table(title=title, title_justify="left")
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
