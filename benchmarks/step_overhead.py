"""What does a step cost beside its own matrix products? Prints their times and the ratios.

    python benchmarks/step_overhead.py [CONFIG_FOLDER] [--layers N] [--threads N]

Without a folder it takes Qwen3-0.6B's shapes. Weights are random. Steps and bare products run in
turn, so that the ratio holds when the machine's speed drifts. The first ratio is to the products
with weights alone, the second to those and attention's two with the keys and values of a context.
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
from torch import Tensor

from inferno import ops
from inferno.engine.build import build_engine
from inferno.engine.engine import Engine
from inferno.engine.execution.local import LocalExecutor
from inferno.layers.decoder import CausalLM
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
CASES = [
    (1, 128, 1),
    (1, 1024, 1),
    (8, 128, 1),
    (8, 512, 1),
    (8, 1024, 1),
    (32, 128, 1),
    (32, 512, 1),
    (1, 512, 512),
    (4, 128, 128),
]


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
                max_num_batched_tokens=32768,
                prefix_cache=False,
            )
        )
    headings = (
        "requests",
        "context",
        "tokens",
        "step ms",
        "weights ms",
        "ratio",
        "all ms",
        "ratio",
    )
    print(" ".join(f"{heading:>10}" for heading in headings))
    measure(engine, 8, 64, 1, arguments.rounds)  # first calls are slow
    for num_requests, context, num_tokens in CASES:
        step, weights, attention = measure(
            engine, num_requests, context, num_tokens, arguments.rounds
        )
        both = weights + attention
        print(
            f"{num_requests:10} {context:10} {num_requests * num_tokens:10} {step * 1e3:10.1f} "
            f"{weights * 1e3:10.1f} {step / weights:10.2f} {both * 1e3:10.1f} {step / both:10.2f}"
        )


def measure(
    engine: Engine, num_requests: int, context: int, num_tokens: int, rounds: int
) -> tuple[float, float, float]:
    """Median seconds of a step, of its products with weights, and of attention's products."""
    products = bare_products(engine, num_requests * num_tokens, num_requests)
    attention = attention_products(engine, num_requests, context, num_tokens)
    triples = []
    if num_tokens == 1:
        start(engine, num_requests, context, rounds + 3)
        engine.step()  # the prompts
        engine.step()
    for _ in range(rounds):
        if num_tokens > 1:
            start(engine, num_requests, context, 1)
        triples.append((seconds(engine.step), seconds(products), seconds(attention)))
    while engine.has_work:
        engine.step()
    step, weights, scores = (statistics.median(times) for times in zip(*triples, strict=True))
    return step, weights, scores


def start(engine: Engine, num_requests: int, context: int, max_tokens: int) -> None:
    """Add requests of random tokens."""
    for _ in range(num_requests):
        ids = torch.randint(engine.vocab_size, (context,)).tolist()
        params = SamplingParams(temperature=0.0, max_tokens=max_tokens, ignore_eos=True)
        request_id = str(time.perf_counter_ns())
        engine.add_request(
            Request(request_id=request_id, prompt_token_ids=tuple(ids), params=params)
        )


def executor_of(engine: Engine) -> LocalExecutor:
    """Return the executor, whose parts are timed alone."""
    assert isinstance(engine._executor, LocalExecutor)
    return engine._executor


def bare_products(engine: Engine, num_tokens: int, num_rows: int) -> Callable[[], None]:
    """The step's matrix products and nothing else."""
    model = executor_of(engine)._runner._model
    assert isinstance(model, CausalLM)
    linears = [module for module in model.modules() if isinstance(module, Linear)]
    weights = [module.weight for module in linears]
    inputs = {w.shape[1]: torch.randn(num_tokens, w.shape[1], dtype=w.dtype) for w in weights}
    head = model.model.embed_tokens.weight if model.lm_head is None else None
    rows = torch.randn(num_rows, weights[0].shape[1], dtype=weights[0].dtype)

    @torch.inference_mode()
    def run() -> None:
        result: Tensor
        with executor_of(engine)._kernels:
            for weight in weights:
                result = ops.linear(inputs[weight.shape[1]], weight)
            if head is not None:
                result = ops.linear(rows, head)
            del result

    return run


def attention_products(
    engine: Engine, num_requests: int, context: int, num_tokens: int
) -> Callable[[], None]:
    """Each layer's q k and weights v of each request, over keys that lie in a row."""
    runner = executor_of(engine)._runner
    num_kv_heads, head_size = runner._kv[0].keys_NSKD.shape[2:]
    dtype = runner._kv[0].keys_NSKD.dtype
    assert isinstance(runner._model, CausalLM)
    output = runner._model.get_submodule("model.layers.0.self_attn.o_proj")
    assert isinstance(output, Linear)
    width = output.weight.shape[1]  # of all heads together
    rows = num_tokens * width // (num_kv_heads * head_size)
    q_KMD = torch.randn(num_kv_heads, rows, head_size, dtype=dtype)
    weights_KML = torch.randn(num_kv_heads, rows, context, dtype=dtype)
    pairs = torch.randn(2, num_requests, context, num_kv_heads, head_size, dtype=dtype).unbind(1)

    @torch.inference_mode()
    def run() -> None:
        for _ in runner._kv:
            for k_LKD, v_LKD in pairs:
                torch.bmm(q_KMD, k_LKD.permute(1, 2, 0))
                torch.bmm(weights_KML, v_LKD.transpose(0, 1))

    return run


def seconds(function: Callable[[], object]) -> float:
    """How long a call takes."""
    begun = time.perf_counter()
    function()
    return time.perf_counter() - begun


if __name__ == "__main__":
    main()
