"""What does attention cost beyond its matrix products, and where is flash faster than naive?

python benchmarks/attention_speed.py
"""

from __future__ import annotations

import time
from collections.abc import Callable

import torch

from inferno.ops import AttentionKind, Batch, GroupTables, LayerKV
from inferno.ops.reference.flash import FlashAttentionConfig, flash_attention
from inferno.ops.reference.naive import naive_attention
from inferno.ops.reference.paged_attention import attention, is_flash

NUM_HEADS, NUM_KV_HEADS, HEAD_SIZE, BLOCK_SIZE = 16, 8, 128, 16
SCALE = HEAD_SIZE**-0.5
CHUNKS = [(64, 64), (64, 1024), (16, 4096), (128, 128), (256, 256), (512, 512), (512, 4096)]
TILES = [(32, 128), (64, 128), (64, 256), (128, 128), (128, 256), (256, 128), (256, 256)]
DECODES = [(1, 16), (1, 512), (1, 4096), (16, 64), (16, 512)]


def main() -> None:
    print(f"{torch.get_num_threads()} threads, {NUM_HEADS} heads, {NUM_KV_HEADS} of keys, float32")
    with torch.inference_mode():
        print_decoding()
        print_chunks()
        print_tiles()


def print_decoding() -> None:
    print("\nOne token for each request: microseconds, and times those of the products alone")
    print(f"{'requests':>8}{'context':>9}{'products':>10}{'in a row':>16}{'scattered':>16}")
    for num_requests, context_len in DECODES:
        products = seconds(decode_products(num_requests, context_len))
        row = f"{num_requests:>8}{context_len:>9}{products * 1e6:>10.0f}"
        for is_scattered in (False, True):
            taken = seconds(decode_step(num_requests, context_len, is_scattered))
            row += f"{taken * 1e6:>9.0f} {taken / products:>5.2f}x"
        print(row)


def print_chunks() -> None:
    print("\nA chunk at the end of its context: milliseconds; what `auto` takes is marked *")
    print(f"{'tokens':>8}{'context':>9}{'naive':>11}{'flash':>11}{'flash/naive':>13}")
    for num_tokens, context_len in CHUNKS:
        naive = seconds(chunk_naive(num_tokens, context_len))
        flash = seconds(chunk_flash(num_tokens, context_len, FlashAttentionConfig()))
        takes_flash = is_flash(AttentionKind.AUTO, num_tokens * context_len)
        marks = (" ", "*") if takes_flash else ("*", " ")
        print(
            f"{num_tokens:>8}{context_len:>9}{naive * 1e3:>10.2f}{marks[0]}"
            f"{flash * 1e3:>10.2f}{marks[1]}{flash / naive:>12.2f}x"
        )


def print_tiles() -> None:
    print("\nA prompt of 2048 tokens by tile: milliseconds, and times those of the default")
    default = seconds(chunk_flash(2048, 2048, FlashAttentionConfig()))
    print(f"{'queries':>8}{'keys':>9}{'flash':>11}")
    for block_size_q, block_size_kv in TILES:
        config = FlashAttentionConfig(block_size_q, block_size_kv)
        taken = seconds(chunk_flash(2048, 2048, config))
        print(f"{block_size_q:>8}{block_size_kv:>9}{taken * 1e3:>11.1f}{taken / default:>7.2f}x")


def decode_products(num_requests: int, context_len: int) -> Callable[[], object]:
    """Each request's two matrix products, with keys and values of its own laid out as cached."""
    q_KGD = torch.randn(NUM_KV_HEADS, NUM_HEADS // NUM_KV_HEADS, HEAD_SIZE)
    kv_pairs = torch.randn(2, num_requests, context_len, NUM_KV_HEADS, HEAD_SIZE).unbind(1)

    def multiply() -> None:
        for k_LKD, v_LKD in kv_pairs:
            torch.bmm(torch.bmm(q_KGD, k_LKD.permute(1, 2, 0)), v_LKD.transpose(0, 1))

    return multiply


def decode_step(num_requests: int, context_len: int, is_scattered: bool) -> Callable[[], object]:
    num_blocks = num_requests * context_len // BLOCK_SIZE
    order = torch.randperm(num_blocks) if is_scattered else torch.arange(num_blocks)
    tables_RB = 1 + order.view(num_requests, -1)
    query_lens, context_lens = (1,) * num_requests, (context_len,) * num_requests
    rows_R = torch.arange(num_requests)
    batch = Batch(
        token_ids_T=rows_R,
        positions_T=torch.tensor(context_lens) - 1,
        query_lens=query_lens,
        context_lens=context_lens,
        query_starts_R=torch.arange(num_requests + 1),
        context_lens_R=torch.tensor(context_lens),
        groups=(GroupTables(None, tables_RB, tables_RB[:, -1] * BLOCK_SIZE),),
    )
    keys, values = torch.randn(2, num_blocks + 1, BLOCK_SIZE, NUM_KV_HEADS, HEAD_SIZE)
    q_THD = torch.randn(num_requests, NUM_HEADS, HEAD_SIZE)
    return lambda: attention(q_THD, batch, LayerKV(keys, values), scale=SCALE)


def chunk_naive(num_tokens: int, context_len: int) -> Callable[[], object]:
    q, k, v = random_chunk(num_tokens, context_len)
    return lambda: naive_attention(q, [k], [v], scale=SCALE, query_start=context_len - num_tokens)


def chunk_flash(
    num_tokens: int, context_len: int, config: FlashAttentionConfig
) -> Callable[[], object]:
    q, k, v = random_chunk(num_tokens, context_len)
    return lambda: flash_attention(q, k, v, config, query_start=context_len - num_tokens)


def random_chunk(num_tokens: int, context_len: int) -> tuple[torch.Tensor, ...]:
    k_LKD, v_LKD = torch.randn(2, context_len, NUM_KV_HEADS, HEAD_SIZE)
    return torch.randn(num_tokens, NUM_HEADS, HEAD_SIZE), k_LKD, v_LKD


def seconds(step: Callable[[], object]) -> float:
    """The quickest of as many runs as fit into a quarter of a second, and of three at least."""
    step()
    times: list[float] = []
    while len(times) < 3 or sum(times) < 0.25:
        start = time.perf_counter()
        step()
        times.append(time.perf_counter() - start)
    return min(times)


if __name__ == "__main__":
    main()
