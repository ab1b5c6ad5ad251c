"""Run random requests with speculation and without, and compare every bit of what is told.

    python -m tests.fuzz.speculation --count 2000 --seed 1

A case is an engine with random options, whose pool is often too small, and requests of all kinds
that come at random times; some are aborted, with proposals under way. Each must tell the tokens,
log-probabilities and ending that it tells alone in an engine without speculation; one that was
aborted, a beginning of them. What differs is printed, and ends the run with status 1.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from typing import Any

from inferno.demo import MODEL_FOLDERS
from inferno.engine.build import build_engine
from inferno.engine.engine import Engine
from inferno.errors import InvalidRequest
from inferno.options import EngineOptions
from inferno.requests import FinishReason, Request, SamplingParams, TokenEvent, TokenLogprobs
from inferno.structured import StructuredOutput

DEMO, DRAFT = MODEL_FOLDERS["demo"], MODEL_FOLDERS["demo-draft"]
# Who proposes; the model and its early layers are those of `demo`.
SPECULATIONS: Mapping[str, Mapping[str, Any]] = {
    "ngram": {"speculative": "ngram"},
    "draft": {"speculative": str(DRAFT)},
    "early": {"speculative": "early", "speculative_early_layers": 1},
    "all": {"speculative_model": DRAFT},
}
SHAPES = [
    StructuredOutput(choice=("yes", "no", "perhaps")),
    StructuredOutput(regex="[a-c]{3,12}(,[a-c]{3,12}){0,3}"),
    StructuredOutput(regex="abcdefghijklmnop[0-9]{2,9}qrstuvwxyz"),
    StructuredOutput(json={"type": "object", "properties": {"a": {"enum": ["x", "y"]}}}),
]
VOCAB_SIZE, END = 2048, 1  # of demo


@dataclass
class Outcome:
    """All that was told of one sequence."""

    tokens: list[int] = field(default_factory=list)
    logprobs: list[TokenLogprobs] = field(default_factory=list)
    prompt_logprobs: Any = None
    ending: tuple[FinishReason, int | None] | None = None

    def note(self, event: TokenEvent) -> None:
        assert self.ending is None, "news after the end"
        self.tokens += event.token_ids
        self.logprobs += event.logprobs
        if event.prompt_logprobs is not None:
            self.prompt_logprobs = event.prompt_logprobs
        if event.finish_reason is not None:
            self.ending = event.finish_reason, event.stop_token_id


Outcomes = dict[tuple[str, int], Outcome]


def options(rng: Random, model: Path, speculation: Mapping[str, Any]) -> EngineOptions:
    return EngineOptions(
        model=model,
        threads=1,
        block_size=rng.choice([1, 4, 16]),
        max_num_seqs=rng.choice([1, 3, 8]),
        max_num_batched_tokens=rng.choice([16, 40, 128]),
        max_model_len=256,
        num_blocks=rng.choice([300, 400, 700]),
        num_speculative_tokens=_lengths(rng),
        prefix_cache=rng.random() < 0.7,
        **speculation,
    )


def _lengths(rng: Random) -> int | str:
    return rng.choice([1, 3, 9]) if rng.random() < 0.75 else "auto"


def request(rng: Random, name: str, prompts: Sequence[Sequence[int]], vocab_size: int) -> Request:
    prompt = list(rng.choice(prompts))
    prompt = prompt[: rng.randint(1, len(prompt))] * rng.choice([1, 1, 1, 3])
    params: dict[str, Any] = {
        "max_tokens": rng.randint(1, 50),
        "seed": rng.randrange(1000),
        "temperature": rng.choice([0.0, 0.0, 0.5, 1.0, 1.5]),
    }
    changes: list[dict[str, Any]] = [
        {"logprobs": rng.randint(0, 3)},
        {"prompt_logprobs": 1},
        {"n": rng.randint(2, 3)},
        {"top_p": 0.9, "top_k": 20},
        {"min_p": 0.05},
        {"repetition_penalty": 1.3, "frequency_penalty": 0.4, "presence_penalty": -0.2},
        {"ignore_eos": True},
        {"min_tokens": rng.randint(1, params["max_tokens"])},
        {"stop_token_ids": [rng.randrange(vocab_size) for _ in range(60)]},
        {"logit_bias": {rng.randrange(vocab_size): 4.0 for _ in range(5)}},
    ]
    for change in rng.sample(changes, rng.randint(0, 3)):
        params |= change
    if rng.random() < 0.2:
        params |= {"structured": rng.choice(SHAPES), "max_tokens": 50}
        params.pop("min_tokens", None)
    return Request(
        request_id=name,
        prompt_token_ids=tuple(prompt[:150]),
        params=SamplingParams(**params),
        eos_token_ids=frozenset({END}),
        bad_words_ids=((7,), (8, 9)) if rng.random() < 0.2 else (),
        priority=rng.randint(0, 2),
        cache_salt=rng.choice(["", "salt"]),
    )


def predicted(rng: Random, each: Request, answer: Sequence[int], vocab_size: int) -> Request:
    """Return the request with a prediction: its answer, with some changes; or none."""
    if rng.random() < 0.5 or not answer:
        return each
    prediction = list(answer)
    for _ in range(rng.choice([0, 0, 1, 3])):
        place = rng.randrange(len(prediction) + 1)
        new = [rng.randrange(vocab_size) for _ in range(rng.randint(0, 4))]
        prediction[place : place + rng.randint(0, 4)] = new
    return replace(each, prediction_ids=tuple(prediction))


def run(
    engine: Engine, requests: Sequence[Request], rng: Random, aborts: float
) -> tuple[Outcomes, Counter[str]]:
    """Run requests that come at random times; abort a share of them."""
    outcomes: Outcomes = {}
    waiting = list(requests)
    doomed = {each.request_id: rng.randint(1, 30) for each in requests if rng.random() < aborts}
    counts: dict[tuple[str, int], Mapping[str, int]] = {}
    while waiting or engine.has_work:
        while waiting and rng.random() < 0.5:
            _add(engine, waiting.pop(0))
        for event in engine.step():
            key = event.request_id, event.sequence_index
            outcomes.setdefault(key, Outcome()).note(event)
            counts[key] = {each.name: each.num_stood for each in event.proposals}
            doom = doomed.get(event.request_id)
            if doom is not None and len(outcomes[key].tokens) >= doom:
                engine.abort(event.request_id, rng.choice([None, event.sequence_index]))
    pool = engine._scheduler.pool
    assert pool.num_available == pool.num_blocks, "blocks are lost"
    stood: Counter[str] = Counter()
    for each in counts.values():
        stood.update(each)
    return outcomes, stood


def _add(engine: Engine, each: Request) -> None:
    """Add a request; a machine that is too busy to compile its shape in time gets more of it."""
    for attempt in range(20):
        try:
            engine.add_request(each)
            return
        except InvalidRequest:
            if attempt == 19:
                raise
            time.sleep(1)


def differences(found: Outcomes, expected: Outcomes) -> list[str]:
    problems = []
    for key, one in found.items():
        other = expected[key]
        if one.ending is not None and one.ending[0] is FinishReason.ABORTED:
            length = len(one.tokens)
            is_same = (one.tokens, one.logprobs) == (
                other.tokens[:length],
                other.logprobs[: len(one.logprobs)],
            )
        else:
            is_same = one == other
        if not is_same:
            problems.append(f"{key}: {one} and not {other}")
    return problems


class Case:
    """A case of a seed and number: an engine's options, and requests."""

    def __init__(self, seed: int, number: int, prompts: Sequence[Sequence[int]]) -> None:
        self.rng = Random(f"{seed} {number}")
        self.kind = self.rng.choice(list(SPECULATIONS))
        self.options = options(self.rng, DEMO, SPECULATIONS[self.kind])
        self.requests = [
            request(self.rng, f"r{i}", prompts, VOCAB_SIZE) for i in range(self.rng.randint(4, 16))
        ]

    def run(self, plain: Engine) -> tuple[list[str], Counter[str]]:
        """Return what differs from an engine without speculation, and how many tokens stood."""
        expected: Outcomes = {}
        for each in self.requests:  # alone
            expected |= run(plain, [each], Random(1), aborts=0)[0]
        requests = [
            predicted(self.rng, each, expected[each.request_id, 0].tokens, VOCAB_SIZE)
            for each in self.requests
        ]
        engine = build_engine(self.options)
        try:
            found, stood = run(engine, requests, self.rng, aborts=0.2)
        finally:
            engine.close()
        return differences(found, expected), stood


def without() -> Engine:
    return build_engine(
        EngineOptions(model=DEMO, threads=1, max_model_len=256, num_blocks=400, speculative="off")
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=2000, help="requests")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    plain = without()
    prompts = texts()
    done, number, problems = 0, 0, 0
    tried: Counter[str] = Counter()
    stood: Counter[str] = Counter()
    began = time.perf_counter()
    while done < arguments.count:
        case = Case(arguments.seed, number, prompts)
        found, counts = case.run(plain)
        for problem in found:
            problems += 1
            print(f"seed {arguments.seed} case {number} ({case.kind}): {problem}")
        done += len(case.requests)
        number += 1
        tried[case.kind] += len(case.requests)
        stood.update(counts)
    seconds = time.perf_counter() - began
    print(f"{done} requests in {seconds:.0f} s: {problems} differ; {dict(tried)}")
    print(f"proposed tokens that stood: {dict(stood)}")
    return 1 if problems or not stood else 0


def texts() -> list[list[int]]:
    """Return prompts as the model's own answers have them, so that some of it comes again."""
    engine = without()
    found = []
    rng = Random(1)
    for i in range(12):
        asked = Request(
            request_id=f"t{i}",
            prompt_token_ids=tuple(rng.randrange(1, 500) for _ in range(3)),
            params=SamplingParams(max_tokens=90, seed=i, temperature=0.8, ignore_eos=True),
        )
        outcomes, _ = run(engine, [asked], rng, aborts=0)
        found.append(outcomes[f"t{i}", 0].tokens)
    engine.close()
    return found


if __name__ == "__main__":
    sys.exit(main())
