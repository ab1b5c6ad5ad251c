"""What does speculation gain, and what does it cost where it fails? Prints ratios to "off".

    python benchmarks/speculation.py [FOLDER] [--formats bf16,int8,int4] [--rounds N] [--tokens N]

Without a folder it takes Qwen3-0.6B's shapes. Weights are random, so the sampler does its work and
then a script takes the place of what it drew: outputs are those that the question needs. One engine
runs with speculation and without in turn, so that the ratio holds when the machine's speed drifts.
"""

from __future__ import annotations

import argparse
import itertools
import json
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from step_overhead import QWEN3_06B
from torch import Tensor

from inferno.engine.build import build_engine
from inferno.engine.engine import Engine
from inferno.engine.execution.local import LocalExecutor
from inferno.engine.proposers.ngram import NgramProposer
from inferno.engine.proposers.prediction import PredictionProposer
from inferno.engine.sampling.constraints import Mask, MaskKey
from inferno.engine.sampling.logits_processors import LogitsRow
from inferno.engine.sampling.sampler import ProcessedRows, Sampled, Sampler
from inferno.engine.scheduling.speculation import Speculation
from inferno.options import EngineOptions
from inferno.requests import Request, SamplingParams

NUM_PROMPT = 64
EDITED = 400  # tokens of the text that an editing job repeats
FORMATS = {
    "bf16": {"dtype": "bfloat16"},
    "int8": {"quantize": "int8"},
    "int4": {"quantize": "int4"},
}
_NUMBERS = itertools.count()


class ScriptedSampler:
    """Samples as it would, and returns what the script of the request says."""

    def __init__(self, sampler: Sampler) -> None:
        self._sampler = sampler
        self.scripts: dict[str, Sequence[int]] = {}

    def process(
        self, logits_RV: Tensor, rows: Sequence[LogitsRow], drawn_N: Tensor | None = None
    ) -> ProcessedRows:
        return self._sampler.process(logits_RV, rows, drawn_N)

    def choose(
        self,
        processed: ProcessedRows,
        masks: Mapping[MaskKey, Mask],
        places: Sequence[int] | None = None,
    ) -> list[Sampled]:
        chosen = self._sampler.choose(processed, masks, places)
        rows = processed.rows if places is None else [processed.rows[i] for i in places]
        return [
            each._replace(token_id=self._said(row)) for row, each in zip(rows, chosen, strict=True)
        ]

    def forget(self, ids: Sequence[object]) -> None:
        self._sampler.forget(ids)  # type: ignore[arg-type]

    def _said(self, row: LogitsRow) -> int:
        return self.scripts[row.sequence_id.request_id][row.position - row.num_prompt_tokens]


def build(config: Path, options: Mapping[str, str], threads: int) -> tuple[Engine, ScriptedSampler]:
    engine = build_engine(
        EngineOptions(
            model=config,
            load_format="dummy",
            threads=threads,
            max_model_len=1024,
            num_blocks=1500,
            prefix_cache=False,
            **options,  # type: ignore[arg-type]
        )
    )
    executor = engine._executor
    assert isinstance(executor, LocalExecutor)
    sampler = ScriptedSampler(executor._sampler)
    executor._sampler = sampler  # type: ignore[assignment]
    return engine, sampler


Job = tuple[Sequence[int], Sequence[int], Sequence[int]]  # prompt, output, prediction


def run(
    engine: Engine, sampler: ScriptedSampler, jobs: Sequence[Job], speculation: Speculation
) -> float:
    """Return the seconds from the first tokens of all to the end."""
    engine._scheduler.speculation = speculation
    for prompt, output, prediction in jobs:
        name = f"r{next(_NUMBERS)}"
        sampler.scripts[name] = output
        engine.add_request(
            Request(
                request_id=name,
                prompt_token_ids=tuple(prompt),
                prediction_ids=tuple(prediction),
                params=SamplingParams(max_tokens=len(output), temperature=1.0, seed=1),
            )
        )
    waiting = len(jobs)
    began = 0.0
    while engine.has_work:
        for event in engine.step():
            if waiting and event.token_ids:
                waiting -= 1
                began = time.perf_counter()
    sampler.scripts.clear()
    return time.perf_counter() - began


def compare(
    engine: Engine,
    sampler: ScriptedSampler,
    make: Callable[[], Sequence[Job]],
    rounds: int,
) -> tuple[float, float, str]:
    """Return the median ratio of speeds, seconds without speculation, and what was proposed."""
    ratios, without = [], []
    counts = ""
    on = Speculation([PredictionProposer(), NgramProposer()])  # learns over all rounds
    run(engine, sampler, make(), on)
    for number in range(rounds):
        jobs = make()
        seconds = {}
        for is_on in (True, False) if number % 2 else (False, True):
            speculation = on if is_on else Speculation(is_on=False)
            seconds[is_on] = run(engine, sampler, jobs, speculation)
        ratios.append(seconds[False] / seconds[True])
        without.append(seconds[False])
    counts = ", ".join(f"{c.name} {c.num_stood}/{c.num_proposed}" for c in on.counts)
    return statistics.median(ratios), statistics.median(without), counts


def questions(
    rng: random.Random, vocab_size: int, num_output: int
) -> dict[str, Callable[[], Sequence[Job]]]:
    def text(length: int) -> list[int]:
        return [rng.randrange(vocab_size // 150, vocab_size) for _ in range(length)]

    def predicted(is_right: bool) -> Sequence[Job]:
        output = text(num_output)
        return [(text(NUM_PROMPT), output, output if is_right else text(num_output))]

    def edited() -> Sequence[Job]:
        """Return a prompt whose text comes again, but for a tenth of it in runs of ten tokens."""
        prompt = text(EDITED)
        output = list(prompt)
        for _ in range(EDITED // 100):
            place = rng.randrange(0, EDITED - 10)
            output[place : place + 10] = text(10)
        return [(prompt + text(8), output, ())]

    def several(number: int) -> Callable[[], Sequence[Job]]:
        return lambda: [(text(NUM_PROMPT), text(num_output // 2), ()) for _ in range(number)]

    return {
        "prediction that is the answer": lambda: predicted(True),
        "prediction that is all wrong": lambda: predicted(False),
        "a prompt of 400 tokens, edited": edited,
        "random text, 1 request": several(1),
        "random text, 8 requests": several(8),
        "random text, 32 requests": several(32),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("config", nargs="?", type=Path)
    parser.add_argument("--formats", default="bf16,int8,int4")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--tokens", type=int, default=128, help="Of an output.")
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        config = options.config or Path(folder)
        if options.config is None:
            (config / "config.json").write_text(json.dumps(QWEN3_06B))
        for name in options.formats.split(","):
            engine, sampler = build(config, FORMATS[name], options.threads)
            asked = questions(random.Random(1), engine.vocab_size, options.tokens)
            for question, make in asked.items():
                if options.only in question:
                    ratio, seconds, counts = compare(engine, sampler, make, options.rounds)
                    print(f"{name}  {question:<32} {ratio:6.3f}x  off {seconds:6.2f} s  {counts}")
            engine.close()


if __name__ == "__main__":
    main()
