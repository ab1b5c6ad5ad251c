"""Estimate a model's speed from the measured figures of this machine.

A token of a stream reads all its weights, and the keys and values before it, so memory bounds its
speed; a prompt's tokens share the reading, so arithmetic bounds theirs. Both are upper limits:
bench/roofline.py measures the same ones.

`inferno plan` (`cli/plan.py`) asks for a measurement where no figures are kept, and with
`--measure`. Kept ones, of whatever age, are used for the same processor's name and number of
threads.
"""

from __future__ import annotations

import json
import math
import re
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from inferno.errors import ModelError
from inferno.home import home_folder
from inferno.json_file import read_json
from inferno.machine import num_usable_cores, read_cpu
from inferno.plan.memory import Plan, kept_bytes, kept_formats
from inferno.plan.shape import ModelShape
from inferno.quantization import FORMATS, InputRounding
from inferno.whole_file import whole_file

_EXPERT = re.compile(r".*\.experts\.")
_TABLE, _HEAD = "model.embed_tokens.weight", "lm_head.weight"
_MOST_SECONDS = 30.0
_MOST_BYTES = 1 << 16
_UNITS = ((86400 * 2, 86400, "days"), (7200, 3600, "hours"), (120, 60, "minutes"))


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineFigures:
    """The measured figures of a machine with a number of threads.

    bandwidth    bytes of memory that are read a second; None: it could not be measured.
    operations   sums and products a second, by the type that is multiplied, as far as measured.
    measured_at  seconds since 1970.
    """

    cpu: str
    threads: int
    bandwidth: float | None
    operations: Mapping[str, float]
    measured_at: float

    @property
    def age(self) -> str:
        """Return how long ago the figures were measured, in words."""
        seconds = max(0.0, time.time() - self.measured_at)
        for least, unit, name in _UNITS:
            if seconds >= least:
                return f"{seconds / unit:.0f} {name} ago"
        return "just now"


@dataclass(frozen=True, slots=True, kw_only=True)
class Speed:
    """Tokens a second at best: of one stream, with a short and a full context, and of prompts."""

    decode: float
    decode_full: float
    prefill: float | None


def kept_figures(threads: int | None) -> MachineFigures | None:
    """Return earlier figures of this machine with so many threads, or None."""
    try:
        values = read_json(_path(), error=ModelError, max_bytes=_MOST_BYTES)
        found = _figures(values)
    except (ModelError, RuntimeError, ValueError):
        return None
    wanted = threads or num_usable_cores()
    return found if (found.cpu, found.threads) == (_cpu_name(), wanted) else None


def measure_figures(threads: int | None) -> MachineFigures:
    """Measure this machine in a process of its own, for some seconds, and keep the figures.

    Those that were known when the process failed, or took too long, are kept as well: nobody waits
    for it twice.
    """
    wanted = threads or num_usable_cores()
    command = [sys.executable, "-P", "-m", "inferno.bench.machine_process", str(wanted)]
    try:
        printed = subprocess.run(
            command, capture_output=True, timeout=_MOST_SECONDS, check=False
        ).stdout
    except subprocess.TimeoutExpired as stopped:
        printed = stopped.stdout or b""
    except OSError:
        printed = b""
    bandwidth, operations = None, {}
    with suppress(ValueError, KeyError, TypeError, AttributeError):
        for line in printed.splitlines():
            values = json.loads(line)
            bandwidth = values.get("bandwidth", bandwidth)
            operations.update(values.get("operations", {}))
    found = MachineFigures(
        cpu=_cpu_name(),
        threads=wanted,
        bandwidth=bandwidth,
        operations=operations,
        measured_at=time.time(),
    )
    with suppress(OSError, RuntimeError):  # a folder that can't be written: measured again
        _keep(found)
    return found


def expected_speed(shape: ModelShape, plan: Plan, figures: MachineFigures) -> Speed | None:
    """Return the best speed that a model can have on a machine with the given figures, if any."""
    if figures.bandwidth is None:
        return None
    # The head and the embedding may have a wider one than what was asked for.
    quantized = (name for name in plan.weights if FORMATS[name].steps is not None)
    quantize = min(quantized, key=lambda name: FORMATS[name].bits, default=None)
    mixture = shape.decoder.mixture
    share = mixture.num_chosen / mixture.num_experts if mixture else 1.0
    is_tied = not any(tensor.name == _HEAD for tensor in shape.tensors)
    read, operations, arithmetic = 0.0, 0.0, plan.dtype
    for tensor, format in kept_formats(shape.tensors, plan.dtype, quantize):
        used = share if _EXPERT.match(tensor.name) else 1.0
        if tensor.name == _TABLE and not is_tied:
            continue
        read += used * kept_bytes(tensor, format)
        if len(tensor.shape) > 1 and tensor.name not in (_TABLE, _HEAD):
            values = math.prod(tensor.shape) * (2 if tensor.name.endswith("_blocks") else 1)
            operations += 2 * used * values
            if format.inputs is not InputRounding.NOTHING:
                arithmetic = "int8"
    kv_bytes = sum(
        min(plan.context, window or plan.context)
        * plan.cache.token_bytes
        * sum(layer.window == window for layer in plan.cache.layers)
        / len(plan.cache.layers)
        for window in plan.cache.windows
    )
    peak = figures.operations.get(arithmetic)
    return Speed(
        decode=figures.bandwidth / max(1.0, read),
        decode_full=figures.bandwidth / max(1.0, read + kv_bytes),
        prefill=peak / max(1.0, operations) if peak else None,
    )


def _figures(values: Mapping[str, Any]) -> MachineFigures:
    """Return what a file or a process says; ValueError where it can't be."""
    try:
        operations = {str(name): float(count) for name, count in values["operations"].items()}
        found = MachineFigures(
            cpu=str(values["cpu"]),
            threads=int(values["threads"]),
            bandwidth=None if values["bandwidth"] is None else float(values["bandwidth"]),
            operations=operations,
            measured_at=float(values["measured_at"]),
        )
    except (KeyError, TypeError, AttributeError, OverflowError) as problem:
        raise ValueError(f"no figures: {problem!r}") from None
    numbers = [*operations.values(), *([] if found.bandwidth is None else [found.bandwidth])]
    if not all(0 < number < 1e18 for number in numbers):
        raise ValueError("no machine has such figures")
    return found


def _keep(figures: MachineFigures) -> None:
    path = _path()
    path.parent.mkdir(parents=True, exist_ok=True)
    with whole_file(path, prefix=".machine-") as file:
        file.write(json.dumps(asdict(figures)).encode())


def _path() -> Path:
    return home_folder() / "machine.json"


def _cpu_name() -> str:
    return read_cpu().name or "unknown"
