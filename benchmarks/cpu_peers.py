"""How fast is inferno on this CPU beside llama.cpp, with the same weights and threads?

    python benchmarks/cpu_peers.py --peer-python PYTHON [--model NAME ...] [--weights bf16 ...]

PYTHON has llama-cpp-python and gguf (`pip install 'inferno-engine[peers]'`, or in a virtual
environment of its own). The models have real shapes and random weights; the files, 6 GB for
TinyLlama-1.1B and 4 GB for Qwen3-0.6B, are written once into --work-dir. Each engine is a process
of its own; both are warmed, then run in turn, round by round. gpt-oss-20b (14 GB; only when named)
is loaded by one engine at a time: inferno, llama.cpp, inferno.

What is compared is each engine's own loop over token ids. llama.cpp runs `llama_decode` and draws
no tokens, as in its own benchmarks; inferno also schedules and draws. Ratios, and shares of the
limits, are medians of the rounds' own. Limits are measured after each round, in a process of its
own: the sum of a large buffer, and a matrix product through PyTorch; `inferno bench` says more.
Close other programs first, and compare within one run only.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from peer_shapes import CONFIGS, is_mixture
from peer_table import ENGINES, Row, as_json, as_markdown
from peer_worker import Worker

from inferno.machine import num_usable_cores, read_cpu

STEPS = 16  # of decoding, in a round
COLD_TOKENS = 16
PAUSE = 0.1  # seconds, in which the other engine's threads stop spinning
SETTLE = 3.0  # seconds, in which the system takes back the memory of a process that ended
Samples = dict[str, list[float]]
# Our option for each precision. In the last, llama.cpp runs the file as it is.
QUANTIZE = {"bf16": "none", "int8": "int8", "int4": "int4", "mxfp4": "none", "mxfp4+int8": "int8"}


@dataclass(frozen=True, kw_only=True)
class Case:
    """Requests of equal length; `decode` times single steps after their prompts."""

    name: str
    requests: int
    prompt: int
    output: int = 1
    decode: bool = False


CASES = (
    Case(name="prefill 128", requests=1, prompt=128),
    Case(name="prefill 512", requests=1, prompt=512),
    Case(name="decode, batch 1", requests=1, prompt=128, decode=True),
    Case(name="decode, batch 8", requests=8, prompt=128, decode=True),
    Case(name="decode, batch 32", requests=32, prompt=128, decode=True),
    Case(name="32 requests, 128 in, 64 out", requests=32, prompt=128, output=64),
)


@dataclass(frozen=True, kw_only=True)
class Subject:
    """A model in one precision, and how each engine comes by it."""

    model: str
    weights: str
    folder: Path
    threads: int
    rounds: int
    cases: tuple[Case, ...]
    peer_python: str

    @property
    def decode_steps(self) -> int:
        """Steps of a case, the first round's being to warm up."""
        return (self.rounds + 1) * STEPS

    def start(self, engine: str) -> Worker:
        """A fresh process that has loaded nothing yet."""
        if engine == "inferno":
            return Worker(sys.executable, "peer_inferno.py")
        return Worker(self.peer_python, "peer_llama.py")

    def load(self, engine: str, worker: Worker) -> str:
        if engine == "inferno":
            return str(
                worker.ask(
                    "load",
                    path=str(self.folder),
                    threads=self.threads,
                    quantize=QUANTIZE[self.weights],
                    load_format="dummy" if is_mixture(CONFIGS[self.model]) else "safetensors",
                    context=most_tokens(self.rounds),
                )
            )
        path = str(self.folder / f"{_file_of(self.weights)}.gguf")
        return str(worker.ask("load", path=path, threads=self.threads))


def main() -> None:
    """Measure what is asked for, and print a table."""
    arguments = _arguments()
    rows: list[Row] = []
    notes: list[str] = []
    for model in arguments.model or ["TinyLlama-1.1B", "Qwen3-0.6B"]:
        precisions = _precisions(model, arguments.weights)
        folder = arguments.work_dir / model
        _say(f"{model}: files in {folder}")
        script = Path(__file__).with_name("peer_files.py")
        files = dict.fromkeys(map(_file_of, precisions))
        subprocess.run([arguments.peer_python, script, model, folder, *files], check=True)
        for weights in precisions:
            subject = Subject(
                model=model,
                weights=weights,
                folder=folder,
                threads=arguments.threads,
                rounds=arguments.rounds,
                cases=tuple(case for case in CASES if case.name in arguments.case),
                peer_python=arguments.peer_python,
            )
            found, said = measure(subject)
            rows += found
            notes += said
    machine = f"{read_cpu().name}, {arguments.threads} threads, {arguments.rounds} rounds"
    print(f"{machine}: medians (least to most)\n\n{as_markdown(rows)}\n")
    print("\n".join(f"- {note}" for note in dict.fromkeys(notes)))
    if arguments.json:
        found_json = {"machine": machine, "rows": as_json(rows), "notes": notes}
        arguments.json.write_text(json.dumps(found_json, indent=2) + "\n")


def _precisions(model: str, asked: list[str]) -> list[str]:
    """Those that were asked for and that the model has; all of those if none was asked for."""
    known = [name for name in QUANTIZE if name.startswith("mxfp4") == is_mixture(CONFIGS[model])]
    return [name for name in known if name in asked] or known


def _file_of(weights: str) -> str:
    return weights.partition("+")[0]


def most_tokens(rounds: int) -> int:
    """How many tokens the largest case has in the cache at a time."""
    steps = (rounds + 1) * STEPS
    return max(
        case.requests * (case.prompt + (steps + case.requests if case.decode else case.output))
        for case in CASES
    )


def measure(subject: Subject) -> tuple[list[Row], list[str]]:
    """All cases of one model in one precision."""
    rounds = subject.rounds
    name = f"{subject.model} {subject.weights}"
    samples: dict[str, Samples] = {}
    gauge = Gauge(subject)
    with ExitStack() as stack:
        if is_mixture(CONFIGS[subject.model]):
            notes = _in_turns(subject, gauge, samples)
        else:
            _cold_starts(subject, rounds, samples)
            workers = {engine: stack.enter_context(subject.start(engine)) for engine in ENGINES}
            notes = [subject.load(engine, worker) for engine, worker in workers.items()]
            gauge.find_works(workers["inferno"])
            _run_cases(subject, workers, gauge, samples)
            notes.append(f"{name}: {workers['inferno'].ask('memory')}")
            notes.append(f"{name}: the engines' logits have a cosine of {_agreement(workers):.4f}")
    notes.append(f"{name}: {gauge.summary()}")
    return list(_rows(subject, samples, gauge.least)), notes


class Gauge:
    """What the machine allows, measured beside each round: it changes from minute to minute."""

    def __init__(self, subject: Subject) -> None:
        self._subject = subject
        self._works: dict[str, dict[str, float]] = {}
        self._limits: list[dict[str, Any]] = []
        self.least: dict[str, list[float]] = {}  # seconds of each round, by case

    def find_works(self, worker: Worker) -> None:
        """What each case can't do without, as inferno's loaded model knows it."""
        cases = [
            {
                "requests": case.requests,
                "prompt": case.prompt,
                "output": case.output,
                "steps": self._subject.decode_steps if case.decode else 0,
            }
            for case in self._subject.cases
        ]
        works = worker.ask("works", cases=cases)
        self._works = {
            case.name: work for case, work in zip(self._subject.cases, works, strict=True)
        }

    def read(self, case: Case) -> None:
        """Measure, in a process of its own that leaves no memory behind."""
        subject = self._subject
        arithmetic = "bfloat16" if subject.weights == "bf16" else "int8"
        with subject.start("inferno") as worker:
            limits = worker.ask("limits", threads=subject.threads, arithmetic=arithmetic)
        self._limits.append(limits)
        work = self._works[case.name]
        prefill = work["prefill_operations"] / limits["peak"]
        reading = work["decode_bytes"] / limits["bandwidth"]
        decode = max(reading, work["decode_operations"] / limits["peak"])
        rounds = subject.decode_steps // STEPS if case.decode else 1
        self.least.setdefault(case.name, []).append(prefill + decode / rounds)

    def summary(self) -> str:
        """The limits' medians and ranges."""
        bandwidths = sorted(limits["bandwidth"] / 1e9 for limits in self._limits)
        peaks = sorted(limits["peak"] / 1e9 for limits in self._limits)
        return (
            f"limits {median(bandwidths):.1f} GB/s read ({bandwidths[0]:.1f} to "
            f"{bandwidths[-1]:.1f}), {median(peaks):.0f} GOP/s in "
            f"{self._limits[0]['arithmetic']} ({peaks[0]:.0f} to {peaks[-1]:.0f})"
        )


def _cold_starts(subject: Subject, rounds: int, samples: dict[str, Samples]) -> None:
    for number in range(rounds + 1):
        for engine in ENGINES:
            _say(f"{subject.model} {subject.weights}: cold start of {engine}")
            begun = time.perf_counter()
            with subject.start(engine) as worker:
                _first_token(subject, engine, worker)
                taken = time.perf_counter() - begun
            if number:  # the first brings the files into the page cache
                _add(samples, "cold start to first token", engine, taken)


def _in_turns(subject: Subject, gauge: Gauge, samples: dict[str, Samples]) -> list[str]:
    """One engine at a time, for models that don't fit into memory twice."""
    notes: list[str] = []
    for engine in (*ENGINES, ENGINES[0]):
        begun = time.perf_counter()
        with subject.start(engine) as worker:
            notes.append(_first_token(subject, engine, worker))
            _add(samples, "cold start to first token", engine, time.perf_counter() - begun)
            if engine == "inferno":
                gauge.find_works(worker)
            _run_cases(subject, {engine: worker}, gauge, samples)
            if engine == "inferno":
                notes.append(worker.ask("memory"))
    return notes


def _first_token(subject: Subject, engine: str, worker: Worker) -> str:
    said = subject.load(engine, worker)
    worker.ask("prefill", tokens=COLD_TOKENS)
    return said


def _run_cases(
    subject: Subject, workers: dict[str, Worker], gauge: Gauge, samples: dict[str, Samples]
) -> None:
    for case in subject.cases:
        for engine, worker in workers.items():
            _say(f"{subject.model} {subject.weights}: {case.name}, warming {engine}")
            if case.decode:
                steps = subject.decode_steps
                worker.ask("begin", batch=case.requests, context=case.prompt, steps=steps)
            _once(worker, case)
        for number in range(subject.rounds):
            # What comes before changes what follows it, so each engine is the first in turn.
            for engine in list(workers)[:: -1 if number % 2 else 1]:
                time.sleep(PAUSE)
                _add(samples, case.name, engine, _once(workers[engine], case))
            gauge.read(case)
            time.sleep(SETTLE)
    for engine, worker in workers.items():
        _add(samples, "most memory held", engine, worker.ask("peak_memory"))


def _once(worker: Worker, case: Case) -> float:
    if case.decode:
        return float(worker.ask("decode", steps=STEPS))
    return float(
        worker.ask("serve_all", requests=case.requests, prompt=case.prompt, output=case.output)
    )


def _agreement(workers: dict[str, Worker]) -> float:
    """The cosine of both engines' logits after one text: 1 if they run the same model."""
    ours, theirs = (workers[engine].ask("logits", ids=list(range(1, 13))) for engine in ENGINES)
    products = sum(x * y for x, y in zip(ours, theirs, strict=True))
    return float(products / (sum(x * x for x in ours) * sum(y * y for y in theirs)) ** 0.5)


def _rows(
    subject: Subject, samples: dict[str, Samples], least: dict[str, list[float]]
) -> Iterator[Row]:
    tokens = {case.name: case.requests * STEPS for case in CASES if case.decode}
    tokens |= {case.name: case.prompt for case in CASES if case.output == 1 and not case.decode}
    for case, found in samples.items():
        yield Row(
            model=subject.model,
            weights=subject.weights,
            case=case,
            samples=found,
            num_tokens=tokens.get(case),
            least=least.get(case, ()),
            is_bytes=case == "most memory held",
        )


def _add(samples: dict[str, Samples], case: str, engine: str, value: float) -> None:
    samples.setdefault(case, {}).setdefault(engine, []).append(value)


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--peer-python", default=sys.executable, help="has llama_cpp and gguf")
    parser.add_argument("--model", action="append", choices=CONFIGS, help="may be repeated")
    parser.add_argument("--weights", nargs="+", choices=QUANTIZE, default=[])
    names = [case.name for case in CASES]
    parser.add_argument("--case", nargs="+", choices=names, default=names)
    parser.add_argument("--threads", type=int, default=num_usable_cores())
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", type=Path, help="write every sample to this file")
    folder = Path(tempfile.gettempdir()) / "inferno-peers"
    parser.add_argument("--work-dir", type=Path, default=folder, help=f"default: {folder}")
    return parser.parse_args()


if __name__ == "__main__":
    main()
