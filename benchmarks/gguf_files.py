"""Quantize a GGUF file by llama.cpp, for gguf_peers.py.

PEER_PYTHON benchmarks/gguf_files.py SOURCE FOLDER TYPE...
"""

from __future__ import annotations

import sys
from pathlib import Path

import llama_cpp

TYPES = {
    "Q4_0": llama_cpp.LLAMA_FTYPE_MOSTLY_Q4_0,
    "Q8_0": llama_cpp.LLAMA_FTYPE_MOSTLY_Q8_0,
    "Q4_K_M": llama_cpp.LLAMA_FTYPE_MOSTLY_Q4_K_M,
}


def main() -> None:
    """Files that are there already stay."""
    source, folder, *names = sys.argv[1:]
    for name in names:
        path = Path(folder) / f"{name}.gguf"
        if path.exists():
            continue
        params = llama_cpp.llama_model_quantize_default_params()
        params.ftype = TYPES[name]
        params.nthread = 2
        part = path.with_suffix(".part")
        if llama_cpp.llama_model_quantize(source.encode(), str(part).encode(), params) != 0:
            sys.exit(f"llama.cpp can't make {name} of {source}")
        part.rename(path)


if __name__ == "__main__":
    main()
