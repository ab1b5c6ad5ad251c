"""Runs a module without what PyTorch has for tracing, which takes much of the start of a process.

Run as `python -m tests.quick_start MODULE ARGUMENT...`, as `python -m MODULE ARGUMENT...` would be.
"""

from __future__ import annotations

import runpy
import sys

from inferno.torch_start import defer_tracing

if __name__ == "__main__":
    defer_tracing()
    del sys.argv[0]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
