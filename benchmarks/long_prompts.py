"""How long does a short request wait beside long prompts, and what does that cost them?

    python benchmarks/long_prompts.py [--length N] [--rounds N] [--step-target-ms MS] [--threads N]
    python benchmarks/long_prompts.py --bars [--length N] [--rounds N] ...

The model has the shape of the smaller embedded one, random weights and a long context. A stream
runs beside three long prompts; short requests come one after the other, the first right behind the
prompts. Below each row stands how far off the expected times of the steps were.

With --bars, in turn with an engine whose steps have no bound (--step-target-ms 0): how fast prompts
are computed, with a stream and without; the gaps between that stream's tokens; and the first tokens
of prompts of 64 behind four long prompts and behind four of 512.
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
NUM_LONG, NUM_BEHIND = 3, 4


@dataclass
class Run:
    """What was seen of an engine's steps."""

    engine: Engine
    num_added: int = 0
    added_at: dict[str, float] = field(default_factory=dict)
    tokens_at: dict[str, list[float]] = field(default_factory=dict)
    steps: list[tuple[float, float | None]] = field(default_factory=list)  # seconds, expected

    @property
    def seconds(self) -> float:
        """Return how long its steps took together."""
        return sum(seconds for seconds, _ in self.steps)

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
    parser.add_argument("--bars", action="store_true", help="beside steps without a bound")
    arguments = parser.parse_args()
    engine = make_engine(arguments, arguments.step_target_ms)
    if arguments.bars:
        measure_bars(engine, make_engine(arguments, "0"), arguments.length, arguments.rounds)
        return
    print(
        "seconds                          first token of 8 tokens       all prompts   stream's gaps"
    )
    print(
        "long prompts          right behind    in their midst (max)                    p50     p99"
    )
    for number in range(arguments.rounds):
        measure(engine, f"{number}-", 512)
        measure(engine, f"{number}+", arguments.length)


def make_engine(arguments: argparse.Namespace, target: str) -> Engine:
    """Build an engine of the asked shape, with random weights."""
    config = (
        json.loads((arguments.folder / "config.json").read_text())
        if arguments.folder
        else DEMO_DRAFT
    )
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "config.json").write_text(json.dumps(config))
        return build_engine(
            EngineOptions(
                model=Path(folder),
                load_format="dummy",
                quantize=arguments.quantize,
                threads=arguments.threads,
                num_blocks=(NUM_BEHIND + 1) * (arguments.length // 16 + 200),
                step_target_ms=target if target == "auto" else float(target),
            )
        )


def measure_bars(bounded: Engine, unbounded: Engine, length: int, rounds: int) -> None:
    """Print the figures that have bars, of so many rounds after one that warms up."""
    for has_stream in (False, True):
        ratios: list[float] = []
        gaps: list[float] = []
        for number in range(rounds + 1):
            ours, theirs = (Run(each) for each in (bounded, unbounded))
            name = f"{number} {has_stream}"
            run_side_by_side((ours, theirs), name, length, has_stream=has_stream)
            if number:
                ratios.append(theirs.seconds / ours.seconds)
                gaps += stream_gaps(ours, name)
        beside = "beside a stream" if has_stream else "without streams"
        print(
            f"prompts of {length} {beside}: {statistics.median(ratios):.3f} of the speed of "
            f"unbounded steps ({min(ratios):.3f} to {max(ratios):.3f})"
        )
        if gaps:
            print(
                f"the stream's gaps: {quantile(gaps, 0.5):.4f}, {quantile(gaps, 0.99):.4f} at p99"
            )
    waits: dict[int, list[float]] = {size: [] for size in (512, length)}
    for number in range(rounds + 1):
        for size, found in waits.items():
            each = waits_behind(bounded, f"{number} behind {size}", size)
            found += each if number else []
    behind_short, behind_long = (statistics.median(waits[size]) for size in (512, length))
    print(
        f"the first token of 64 behind {NUM_BEHIND} prompts of 512: {behind_short:.4f} s, of "
        f"{length}: {behind_long:.4f}, {behind_long / behind_short:.2f} times"
    )


def run_side_by_side(runs: Sequence[Run], name: str, length: int, *, has_stream: bool) -> None:
    """Let each engine compute two prompts, and a stream, in steps that take turns.

    What holds the machine up for longer than a step so holds up both.
    """
    for run in runs:
        if has_stream:
            run.add(f"{name} stream", 32, 30_000)
            run.first_token(f"{name} stream")
        run.steps.clear()
        for number in range(2):
            run.add(f"{name} {number}", length, 1)
    while busy := [run for run in runs if not all(run.tokens_at[f"{name} {n}"] for n in range(2))]:
        min(busy, key=lambda run: run.seconds).step()
    for run in runs:
        run.engine.abort(f"{name} stream")
        while run.engine.has_work:
            run.engine.step()


def stream_gaps(run: Run, name: str) -> list[float]:
    """Return the seconds that the engine took from each of a stream's tokens to its next.

    Each step gives the stream its token, so these are the steps' own, without the other engine's.
    """
    return [seconds for seconds, _ in run.steps] if f"{name} stream" in run.tokens_at else []


def waits_behind(engine: Engine, name: str, length: int) -> list[float]:
    """Return the seconds to the first tokens of three prompts of 64 behind four of a length."""
    run = Run(engine)
    for number in range(NUM_BEHIND):
        run.add(f"{name} long {number}", length, 1)
    names = [f"{name} short {number}" for number in range(3)]
    for each in names:
        run.add(each, 64, 1)
    waits = [run.first_token(each) for each in names]
    for number in range(NUM_BEHIND):
        engine.abort(f"{name} long {number}")
    while engine.has_work:
        run.step()
    return waits


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
