"""Engines at work at once in threads of one process: `python -m tests.engine.many_engines SEED`.

Each thread generates with an LLM of its own, which is closed and built anew now and then, aborts a
stream, and compares tokens and log-probabilities with those of an LLM that was alone. A crash ends
the process, so tests run it as one of their own.
"""

from __future__ import annotations

import random
import sys
import threading
from dataclasses import dataclass
from typing import Any

from inferno import LLM, SamplingParams

# Of the engines: how many threads their kernels have, and what else differs.
OPTIONS: list[dict[str, Any]] = [
    {"threads": 1},
    {"threads": 2},
    {"threads": 2, "max_num_batched_tokens": 24},
    {"threads": 3, "quantize": "int8"},
    {"threads": 1, "quantize": "int4"},
]
NUM_TURNS = 5
PROMPTS = ["Once upon a time", "One day, a cat", "The sun was " * 9, "Tom and his dog " * 30]

Outcome = list[tuple[tuple[int, ...], tuple[Any, ...] | None]]


@dataclass(frozen=True, slots=True)
class Job:
    """Prompts that are generated together."""

    prompts: tuple[str, ...]
    params: SamplingParams

    def run(self, llm: LLM) -> Outcome:
        """Tokens and log-probabilities of each."""
        done = llm.generate(self.prompts, self.params)
        return [(completion.token_ids, completion.logprobs) for completion in done]


def make_jobs(rng: random.Random) -> list[Job]:
    jobs = []
    for _ in range(4):
        params = SamplingParams(
            seed=rng.randrange(100),
            temperature=rng.choice([0.0, 1.0]),
            top_p=rng.choice([1.0, 0.9]),
            max_tokens=rng.randint(1, 30),
            logprobs=3,
            ignore_eos=True,
        )
        jobs.append(Job(tuple(rng.sample(PROMPTS, rng.randint(1, 3))), params))
    return jobs


def run_alone(options: dict[str, Any], jobs: list[Job]) -> list[Outcome]:
    with LLM("demo", num_blocks=200, **options) as llm:
        return [job.run(llm) for job in jobs]


def work(
    options: dict[str, Any], jobs: list[Job], expected: list[Outcome], rng: random.Random
) -> None:
    """Do jobs in some order, with other things between them."""
    llm = LLM("demo", num_blocks=200, **options)
    for _ in range(NUM_TURNS):
        what = rng.choice(["close", "abort", "forget", "go on"])
        if what == "abort":
            stream = llm.stream(PROMPTS[0], SamplingParams(max_tokens=200))
            for _ in range(rng.randint(1, 5)):
                next(stream)
            stream.close()
        elif what in ("close", "forget"):
            if what == "close":
                llm.close()
            llm = LLM("demo", num_blocks=200, **options)
        index = rng.randrange(len(jobs))
        assert jobs[index].run(llm) == expected[index], (options, jobs[index])
    llm.close()


def main(seed: int) -> None:
    """Run all engines at once; raises where one of them had other bits."""
    rng = random.Random(seed)
    jobs = [make_jobs(rng) for _ in OPTIONS]
    expected = [run_alone(options, some) for options, some in zip(OPTIONS, jobs, strict=True)]
    problems: list[BaseException] = []

    def run(index: int, own: random.Random) -> None:
        try:
            work(OPTIONS[index], jobs[index], expected[index], own)
        except BaseException as problem:
            problems.append(problem)
            raise

    threads = [
        threading.Thread(target=run, args=(index, random.Random(rng.random())))
        for index in range(len(OPTIONS))
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not problems


if __name__ == "__main__":
    main(int(sys.argv[1]))
