"""What an engine's process does for the memory that it shares a machine with."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

# Holes between pieces that stay: free, but not at the heap's end.
PROGRAM = """
import ctypes
from inferno.engine.process.own_process import rss_bytes, share_one_heap
from inferno.machine import return_free_memory
share_one_heap()
libc = ctypes.CDLL(None)
libc.malloc.restype, libc.free.argtypes = ctypes.c_void_p, [ctypes.c_void_p]
pieces = [libc.malloc(60_000) for _ in range(1000)]
for piece in pieces:
    ctypes.memset(piece, 1, 60_000)
full = rss_bytes()
for index, piece in enumerate(pieces):
    if index % 10:
        libc.free(piece)
return_free_memory()
print(full - rss_bytes())
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="glibc's heap")
def test_what_the_heap_has_free_goes_back_to_the_system() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True
    )
    assert int(done.stdout) > 30_000_000
