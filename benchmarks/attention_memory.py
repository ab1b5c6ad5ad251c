"""How much memory do naive and flash attention need for a long prompt?

Each runs in a process of its own; its peak is the growth of the resident set during the call.

    python benchmarks/attention_memory.py [tokens]
"""

from __future__ import annotations

import multiprocessing
import resource
import sys

import torch
from torch import Tensor

from inferno.ops import AttentionKind
from inferno.ops.reference.flash import FlashAttentionConfig, flash_attention
from inferno.ops.reference.naive import naive_attention

NUM_HEADS, NUM_KV_HEADS, HEAD_SIZE = 4, 2, 64


def main() -> None:
    num_tokens = int(sys.argv[1]) if len(sys.argv) > 1 else 8192
    with multiprocessing.get_context("spawn").Pool(1, maxtasksperchild=1) as processes:
        naive, flash = processes.starmap(
            peak_bytes,
            [(AttentionKind.REFERENCE, num_tokens), (AttentionKind.FLASH, num_tokens)],
            chunksize=1,
        )
    print(f"{num_tokens} tokens, {NUM_HEADS} heads of {HEAD_SIZE}, float32")
    print(f"{'attention':<12}{'peak MB':>10}{'of naive':>10}")
    for kind, peak in ((AttentionKind.REFERENCE, naive), (AttentionKind.FLASH, flash)):
        print(f"{kind:<12}{peak / 1e6:>10.1f}{peak / naive:>10.3f}")


def peak_bytes(kind: AttentionKind, num_tokens: int) -> int:
    """By how much the resident set's maximum grows while attention runs over the whole prompt."""
    attend(kind, *random_inputs(64))  # what libraries allocate once is not attention's
    inputs = random_inputs(num_tokens)
    before = max_resident_bytes()
    attend(kind, *inputs)
    return max_resident_bytes() - before


def random_inputs(num_tokens: int) -> tuple[Tensor, Tensor, Tensor]:
    q_THD = torch.randn(num_tokens, NUM_HEADS, HEAD_SIZE)
    k_TKD, v_TKD = torch.randn(2, num_tokens, NUM_KV_HEADS, HEAD_SIZE)
    return q_THD, k_TKD, v_TKD


def attend(kind: AttentionKind, q_THD: Tensor, k_TKD: Tensor, v_TKD: Tensor) -> Tensor:
    if kind is AttentionKind.FLASH:
        return flash_attention(q_THD, k_TKD, v_TKD, FlashAttentionConfig())
    return naive_attention(q_THD, [k_TKD], [v_TKD], scale=HEAD_SIZE**-0.5)


def max_resident_bytes() -> int:
    largest = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return largest if sys.platform == "darwin" else largest * 1024  # kilobytes but on macOS


if __name__ == "__main__":
    main()
