"""What does a preempted request cost when it comes back: computed again, or copied?

    python benchmarks/swap.py [--tokens N] [--layers N] [--quantize int8] [--device cpu]

Qwen3-0.6B's shapes with random weights. A request of so many tokens loses its blocks to one of a
higher priority, which ends soon. Printed is, for each way to come back, how long a step took that
had to make room, and how long the request waited for its next token once the other had ended.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from pathlib import Path

from step_overhead import QWEN3_06B

from inferno.engine.build import build_engine
from inferno.engine.engine import Engine
from inferno.options import EngineOptions
from inferno.requests import Request, SamplingParams

BLOCK_SIZE = 16
MILLISECONDS = 1000


def main() -> None:
    """Measure both ways in turn and print a line for each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tokens", type=int, default=1000)
    parser.add_argument("--layers", type=int, default=QWEN3_06B["num_hidden_layers"])
    parser.add_argument("--quantize", default="int8")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    config = {**QWEN3_06B, "num_hidden_layers": arguments.layers}
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "config.json").write_text(json.dumps(config))
        for preemption in ("recompute", "swap"):
            engine = build_engine(
                EngineOptions(
                    model=Path(folder),
                    load_format="dummy",
                    quantize=arguments.quantize,
                    device=arguments.device,
                    max_model_len=2 * arguments.tokens,
                    num_blocks=arguments.tokens // BLOCK_SIZE + 8,
                    block_size=BLOCK_SIZE,
                    priority_aging=0.0,
                    preemption=preemption,
                    swap_space=1.0,
                    speculative="off",
                )
            )
            rounds = [measure(engine, arguments.tokens, i) for i in range(arguments.rounds)]
            leaving, coming = (statistics.median(each) for each in zip(*rounds, strict=True))
            now = engine.occupancy
            print(
                f"{preemption:<10} makes room in {leaving * MILLISECONDS:7.1f} ms, comes back in "
                f"{coming * MILLISECONDS:7.1f} ms; {now.num_preemptions} preemptions, "
                f"{now.num_swaps} swaps"
            )


def measure(engine: Engine, num_tokens: int, number: int) -> tuple[float, float]:
    """Return the seconds of the step that made room, and of the steps until the next token."""
    engine.add_request(request(f"long {number}", num_tokens, number, max_tokens=30))
    while not any(event.token_ids for event in engine.step()):
        pass
    # It takes nearly all blocks, so that none is left for the prefix cache to find.
    engine.add_request(request(f"first {number}", num_tokens, ~number, max_tokens=1, priority=1))
    began = time.perf_counter()
    engine.step()
    leaving = time.perf_counter() - began
    while not any(event.finish_reason for event in engine.step()):
        pass
    began = time.perf_counter()
    while not any(event.token_ids for event in engine.step()):
        pass
    coming = time.perf_counter() - began
    while engine.has_work:
        engine.step()
    return leaving, coming


def request(
    name: str, num_tokens: int, number: int, *, max_tokens: int, priority: int = 0
) -> Request:
    """Return a request whose prompt begins like no other's."""
    return Request(
        request_id=name,
        prompt_token_ids=((number + 1000) % 5000, *(i * 7 % 1000 for i in range(num_tokens - 1))),
        params=SamplingParams(max_tokens=max_tokens, temperature=0.0, ignore_eos=True, seed=1),
        priority=priority,
    )


if __name__ == "__main__":
    main()
