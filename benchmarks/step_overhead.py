"""What does a step cost beside its own matrix products? Prints their times and the ratio.

    python benchmarks/step_overhead.py [CONFIG_FOLDER] [--layers N] [--threads N]

Without a folder it takes Qwen3-0.6B's shapes. Weights are random. Steps and bare products run in
turn, so that the ratio holds when the machine's speed drifts.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from inferno.engine.assemble import build_engine
from inferno.engine.engine import Engine
from inferno.layers.linear import Linear
from inferno.options import EngineOptions
from inferno.requests import Request, SamplingParams

QWEN3_06B: dict[str, Any] = {
    "architectures": ["Qwen3ForCausalLM"],
    "vocab_size": 151936,
    "hidden_size": 1024,
    "intermediate_size": 3072,
    "num_hidden_layers": 28,
    "num_attention_heads": 16,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "max_position_embeddings": 40960,
    "rms_norm_eps": 1e-6,
    "rope_theta": 1e6,
    "tie_word_embeddings": True,
}
# Requests, tokens of context, tokens that a step computes for each.
CASES = [(1, 128, 1), (1, 1024, 1), (8, 128, 1), (32, 128, 1), (1, 512, 512), (4, 128, 128)]


def main() -> None:
    """Measure each case and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", nargs="?", type=Path)
    parser.add_argument("--layers", type=int, help="fewer layers than the config says")
    parser.add_argument("--threads", type=int)
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--rounds", type=int, default=7)
    arguments = parser.parse_args()
    config = dict(QWEN3_06B)
    if arguments.folder:
        config = json.loads((arguments.folder / "config.json").read_text())
    config["num_hidden_layers"] = arguments.layers or config["num_hidden_layers"]
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "config.json").write_text(json.dumps(config))
        engine = build_engine(
            EngineOptions(
                model=Path(folder),
                load_format="dummy",
                dtype=arguments.dtype,
                threads=arguments.threads,
                num_blocks=2048,
                max_num_batched_tokens=2048,
                prefix_cache=False,
            )
        )
    print(f"{'requests':>8} {'context':>8} {'tokens':>7} {'step ms':>9} {'products ms':>12} ratio")
    for num_requests, context, num_tokens in CASES:
        step, products = measure(engine, num_requests, context, num_tokens, arguments.rounds)
        print(
            f"{num_requests:8} {context:8} {num_requests * num_tokens:7} {step * 1e3:9.2f} "
            f"{products * 1e3:12.2f} {step / products:5.2f}"
        )


def measure(
    engine: Engine, num_requests: int, context: int, num_tokens: int, rounds: int
) -> tuple[float, float]:
    """Median seconds of a step, and of its bare products."""
    products = bare_products(engine, num_requests * num_tokens, num_requests)
    pairs = []
    if num_tokens == 1:
        start(engine, num_requests, context, rounds + 3)
        engine.step()  # the prompts
        engine.step()
    for _ in range(rounds):
        if num_tokens > 1:
            start(engine, num_requests, context, 1)
        pairs.append((seconds(engine.step), seconds(products)))
    while engine.has_work:
        engine.step()
    steps, bare = zip(*pairs, strict=True)
    return statistics.median(steps), statistics.median(bare)


def start(engine: Engine, num_requests: int, context: int, max_tokens: int) -> None:
    """Add requests of random tokens."""
    for _ in range(num_requests):
        ids = torch.randint(engine.vocab_size, (context,)).tolist()
        params = SamplingParams(temperature=0.0, max_tokens=max_tokens, ignore_eos=True)
        request_id = str(time.perf_counter_ns())
        engine.add_request(
            Request(request_id=request_id, prompt_token_ids=tuple(ids), params=params)
        )


def bare_products(engine: Engine, num_tokens: int, num_rows: int) -> Callable[[], None]:
    """The step's matrix products and nothing else."""
    model = engine._executor._runner._model
    weights = [module.weight for module in model.modules() if isinstance(module, Linear)]
    inputs = {w.shape[1]: torch.randn(num_tokens, w.shape[1], dtype=w.dtype) for w in weights}
    head = model.model.embed_tokens.weight if model.lm_head is None else None
    rows = torch.randn(num_rows, weights[0].shape[1], dtype=weights[0].dtype)

    @torch.inference_mode()
    def run() -> None:
        result: Tensor
        for weight in weights:
            result = F.linear(inputs[weight.shape[1]], weight)
        if head is not None:
            result = F.linear(rows, head)
        del result

    return run


def seconds(function: Callable[[], object]) -> float:
    """How long a call takes."""
    begun = time.perf_counter()
    function()
    return time.perf_counter() - begun


if __name__ == "__main__":
    main()
