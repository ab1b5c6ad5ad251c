"""The process that measures this machine for `inferno plan`, with as many threads as it is told.

It prints one JSON object: the bytes read a second, and the operations a second by type.
"""

from __future__ import annotations

import json
import sys

import torch

from inferno.bench.roofline import measure_bandwidth, measure_peak

_BUFFER_BYTES = 2**28  # more than the caches of most machines
_ROUNDS = 3
_TYPES = ("float32", "bfloat16", "int8")


def main(num_threads: int) -> None:
    """Measure for about a second, and print what was found."""
    torch.set_num_threads(num_threads)
    operations = {}
    for name in _TYPES:
        operations[name] = measure_peak(getattr(torch, name), _ROUNDS)
    found = {"bandwidth": measure_bandwidth(_BUFFER_BYTES, _ROUNDS), "operations": operations}
    print(json.dumps(found))


if __name__ == "__main__":
    main(int(sys.argv[1]))
