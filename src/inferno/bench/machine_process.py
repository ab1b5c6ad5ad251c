"""The process that measures this machine for `inferno plan`, with as many threads as it is told.

It prints a JSON object of each figure, as soon as it is known: the bytes read a second, and the
operations a second of each type.
"""

from __future__ import annotations

import json
import sys

import torch

from inferno.bench.roofline import measure_bandwidth, measure_kernels

_BUFFER_BYTES = 2**28  # more than the caches of most machines
_ROUNDS = 3
_TYPES = ("float32", "bfloat16", "int8")


def main(num_threads: int) -> None:
    """Measure for some seconds, and print what is found."""
    torch.set_num_threads(num_threads)
    _print({"bandwidth": measure_bandwidth(_BUFFER_BYTES, _ROUNDS)})
    for name in _TYPES:
        found = measure_kernels(getattr(torch, name), num_threads, _ROUNDS)
        _print({"operations": {name: found}})


def _print(found: dict[str, object]) -> None:
    print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]))
