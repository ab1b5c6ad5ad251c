"""How long does a short request wait beside long prompts, and what does that cost them?

    python benchmarks/long_prompts.py [--length N] [--rounds N] [--step-target-ms MS] [--threads N]

The model has the shape of the smaller embedded one, random weights and a long context. A stream
runs beside three long prompts; short requests come one after the other, the first right behind the
prompts. Below each row stands how far off the expected times of the steps were.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

from inferno.engine.build import build_engine
from inferno.engine.engine import Engine
from inferno.options import EngineOptions
from inferno.requests import Request, SamplingParams

DEMO_DRAFT: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "vocab_size": 2048,
    "hidden_size": 64,
    "intermediate_size": 160,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 32,
    "max_position_embeddings": 32768,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "tie_word_embeddings": True,
    "torch_dtype": "bfloat16",
}
NUM_LONG = 3


@dataclass
class Run:
    """What was seen of an engine's steps."""

    engine: Engine
    num_added: int = 0
    added_at: dict[str, float] = field(default_factory=dict)
    tokens_at: dict[str, list[float]] = field(default_factory=dict)
    steps: list[tuple[float, float | None]] = field(default_factory=list)  # seconds, expected

    def add(self, name: str, num_tokens: int, max_tokens: int) -> None:
        """Add a request of random tokens, which begins like no other."""
        ids = random.Random(name).choices(range(self.engine.vocab_size), k=num_tokens)
        params = SamplingParams(temperature=0.0, max_tokens=max_tokens, ignore_eos=True)
        self.added_at[name] = time.perf_counter()
        self.tokens_at[name] = []
        self.engine.add_request(
            Request(request_id=name, prompt_token_ids=tuple(ids), params=params)
        )

    def step(self) -> None:
        """Run a step and note its time and its tokens'."""
        begun = time.perf_counter()
        events = self.engine.step()
        now = time.perf_counter()
        self.steps.append((now - begun, self.engine.expected_step_seconds))
        for event in events:
            self.tokens_at[event.request_id] += [now] * len(event.token_ids)

    def first_token(self, name: str) -> float:
        """Seconds from a request's arrival to its first token."""
        while not self.tokens_at[name]:
            self.step()
        return self.tokens_at[name][0] - self.added_at[name]


def main() -> None:
    """Measure, and print what was found."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "folder", nargs="?", type=Path, help="of a config.json; default: demo-draft's"
    )
    parser.add_argument("--length", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--quantize", default="none")
    parser.add_argument("--step-target-ms", default="auto")
    parser.add_argument("--threads", type=int)
    arguments = parser.parse_args()
    target = arguments.step_target_ms
    config = (
        json.loads((arguments.folder / "config.json").read_text())
        if arguments.folder
        else DEMO_DRAFT
    )
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "config.json").write_text(json.dumps(config))
        engine = build_engine(
            EngineOptions(
                model=Path(folder),
                load_format="dummy",
                quantize=arguments.quantize,
                threads=arguments.threads,
                num_blocks=(NUM_LONG + 1) * (arguments.length // 16 + 200),
                step_target_ms=target if target == "auto" else float(target),
            )
        )
    print(
        "seconds                          first token of 8 tokens       all prompts   stream's gaps"
    )
    print(
        "long prompts          right behind    in their midst (max)                    p50     p99"
    )
    for number in range(arguments.rounds):
        measure(engine, f"{number}-", 512)
        measure(engine, f"{number}+", arguments.length)


def measure(engine: Engine, name: str, length: int) -> None:
    """Run a stream, long prompts and short requests; print a line, and the cost model's errors."""
    run = Run(engine)
    run.add(f"{name} stream", 32, 30_000)
    run.first_token(f"{name} stream")
    names = [f"{name} long {number}" for number in range(NUM_LONG)]
    begun = time.perf_counter()
    for each in names:
        run.add(each, length, 1)
    waits: list[float] = []
    while not all(run.tokens_at[each] for each in names):
        run.add(f"{name} short {len(waits)}", 8, 1)
        waits.append(run.first_token(f"{name} short {len(waits)}"))
        for _ in range(10):
            if not all(run.tokens_at[each] for each in names):
                run.step()
    seconds = time.perf_counter() - begun
    engine.abort(f"{name} stream")
    while engine.has_work:
        run.step()
    times = run.tokens_at[f"{name} stream"]
    gaps = [later - earlier for earlier, later in pairwise(times)]
    in_midst = f"{statistics.median(waits):8.3f} ({max(waits):.3f})"
    print(
        f"{NUM_LONG} of {length:6}           {waits[0]:12.3f} {in_midst:>22} {seconds:16.2f} "
        f"{quantile(gaps, 0.5):11.3f} {quantile(gaps, 0.99):7.3f}"
    )
    errors = [abs(expected / taken - 1) for taken, expected in run.steps[20:] if expected]
    if errors:
        print(
            f"  {len(run.steps)} steps; what was expected of them was off by "
            f"{quantile(errors, 0.5):.0%} in the median, {quantile(errors, 0.9):.0%} at p90"
        )


def quantile(values: Sequence[float], share: float) -> float:
    """The value below which this share of them lies."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


if __name__ == "__main__":
    main()
