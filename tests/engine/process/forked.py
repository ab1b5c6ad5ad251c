"""Forks while engines are at work: `python -m tests.engine.process.forked SEED`.

A child has none of its parent's threads, whatever they were about. What the parent's engines hold
must let it go on with an engine of its own, and end as any process does.
"""

from __future__ import annotations

import gc
import os
import random
import signal
import sys
import threading
import time
from pathlib import Path

from inferno.engine.build import build_engine
from inferno.engine.engine import Engine
from inferno.engine.execution.torch_threads import BorrowedThreads
from inferno.options import EngineOptions
from inferno.requests import Request, SamplingParams

DEMO = Path(__file__).parents[3] / "src/inferno/demo/files/demo-draft"
NUM_FORKS = 3
SECONDS = 120  # until a child that hangs is ended


def build() -> Engine:
    return build_engine(EngineOptions(model=DEMO, threads=2, num_blocks=2000))


def run(engine: Engine) -> list[int]:
    params = SamplingParams(seed=3, max_tokens=4, ignore_eos=True)
    for name, prompt in {"long": tuple(range(3, 93)), "short": (5, 6, 7)}.items():
        engine.add_request(Request(request_id=name, prompt_token_ids=prompt, params=params))
    tokens: list[int] = []
    while engine.has_work:
        for event in engine.step():
            tokens += event.token_ids
    return tokens


def work(engine: Engine, expected: list[int], is_over: threading.Event) -> None:
    while not is_over.is_set():
        assert run(engine) == expected


def load(is_over: threading.Event) -> None:
    while not is_over.is_set():
        BorrowedThreads().give_back()
        build()


def main(seed: int) -> None:
    rng = random.Random(seed)
    held = build()
    expected = run(build())
    is_over = threading.Event()
    threads = [
        threading.Thread(target=work, args=(build(), expected, is_over)),
        threading.Thread(target=work, args=(build(), expected, is_over)),
        threading.Thread(target=load, args=(is_over,)),
    ]
    for thread in threads:
        thread.start()
    statuses = []
    for _ in range(NUM_FORKS):
        time.sleep(rng.random() * 0.05)
        child = os.fork()
        if not child:
            signal.alarm(SECONDS)
            BorrowedThreads().give_back()
            assert run(build()) == expected
            del held  # what touches its cache in the background stayed with the parent
            gc.collect()
            sys.exit(0)
        statuses.append(os.waitpid(child, 0)[1])
    is_over.set()
    for thread in threads:
        thread.join()
    assert run(build()) == expected
    assert statuses == [0] * NUM_FORKS, statuses


if __name__ == "__main__":
    main(int(sys.argv[1]))
