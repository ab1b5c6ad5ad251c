"""Open mutated models in child processes, under a limit of memory and of time.

    python -m tests.fuzz.run --count 50000 --seed 1

Each case is made of its seed and its number alone, so `--first 1234 --count 1 --seed 1 --keep DIR`
makes one again and leaves its files there. What is found, be it a crash, a hang, an error that is
none of ours or a tensor that differs, is printed, and ends the run with status 1.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import resource
import select
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import torch

from tests.fuzz.mutations import mutated
from tests.fuzz.opening import open_model
from tests.fuzz.seeds import Seed, made_seeds, read_seeds

PATIENCE = 240.0  # seconds for a case; only one that hangs takes them all
MEMORY = 1 << 30  # bytes more than the process has when it begins
SLOW = 5.0  # seconds of the processor's time: far more than files of this size may take
_BATCH = 200
_RUNS_EVERY = 8  # one case in so many is loaded, and generates
_PANICS = ("panicked at", "Traceback", "Fatal")


@dataclass
class Report:
    """The outcomes of cases by their count, what was found, and the longest time that one took."""

    outcomes: Counter[str] = field(default_factory=Counter)
    findings: list[str] = field(default_factory=list)
    slowest: tuple[float, int] = (0.0, 0)


def run(seeds: Sequence[Seed], seed: int, cases: range, keep: Path | None = None) -> Report:
    """Run the cases, in batches of a child process each, and a new one where one has died."""
    report = Report()
    number = cases.start
    while number < cases.stop:
        batch = range(number, min(number + _BATCH, cases.stop))
        number = _run_batch(seeds, seed, batch, report, keep)
        num_done = number - cases.start
        print(f"{num_done} cases, {len(report.findings)} findings", file=sys.stderr, flush=True)
    return report


def _run_batch(
    seeds: Sequence[Seed], seed: int, batch: range, report: Report, keep: Path | None
) -> int:
    """Run a batch in a child, and return the number of the first case that wasn't run."""
    readable, writable = os.pipe()
    folder = Path(tempfile.mkdtemp(prefix="fuzz-"))
    child = os.fork()
    if child == 0:
        os.close(readable)
        _be_child(seeds, seed, batch, folder, writable, keep)
    os.close(writable)
    done = batch.start
    hangs = True
    with open(readable, encoding="utf-8") as lines:
        while select.select([lines], [], [], PATIENCE)[0]:
            line = lines.readline()
            if not line:
                hangs = False
                break
            _take_in(json.loads(line), report)
            done += 1
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    shutil.rmtree(folder, ignore_errors=True)
    if done < batch.stop:
        what = "hangs" if hangs else f"ends the process with status {status}"
        report.findings.append(f"case {done}: {what}: {describe(seeds, seed, done)}")
        done += 1
    return done


def _take_in(said: dict[str, Any], report: Report) -> None:
    report.outcomes[said["outcome"]] += 1
    report.slowest = max(report.slowest, (said["seconds"], said["number"]))
    if said["finding"]:
        report.findings.append(f"case {said['number']}: {said['finding']}")


def _be_child(
    seeds: Sequence[Seed],
    seed: int,
    batch: range,
    folder: Path,
    writable: int,
    keep: Path | None,
) -> None:
    """Run the cases of a batch, say a line of JSON for each, and end the process."""
    try:
        os.setpgid(0, 0)
        errors = os.open(folder / "stderr", os.O_RDWR | os.O_CREAT | os.O_APPEND)
        os.dup2(errors, 2)
        os.environ["INFERNO_HOME"] = str(folder / "home")
        limit = _address_space() + MEMORY
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
        for number in batch:
            opened = _write(seeds, seed, number, folder, keep)
            started = time.process_time()
            outcome, finding = _outcome(opened, runs=number % _RUNS_EVERY == 0)
            seconds = time.process_time() - started
            with open(folder / "stderr", "r+", encoding="utf-8", errors="replace") as said:
                printed = said.read()
                said.truncate(0)
            if not finding and any(word in printed for word in _PANICS):
                finding = f"prints {printed[-1000:]}"
            if not finding and seconds > SLOW:
                finding = f"takes {seconds:.1f} s"
            if finding:
                finding = f"{describe(seeds, seed, number)}\n{finding}"
            line = {"number": number, "outcome": outcome, "finding": finding, "seconds": seconds}
            os.write(writable, json.dumps(line).encode() + b"\n")
        os._exit(0)
    finally:
        os._exit(9)


def _write(seeds: Sequence[Seed], seed: int, number: int, folder: Path, keep: Path | None) -> Path:
    """Write a case's files, which may take seconds, and return what is to be opened."""
    chosen, files, _ = case(seeds, seed, number)
    place = keep if keep is not None else folder / "model"
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir()
    for name, content in files.items():
        (place / name).write_bytes(content)
    return place / chosen.opened


def _outcome(opened: Path, *, runs: bool) -> tuple[str, str]:
    try:
        return open_model(opened, runs=runs), ""
    except BaseException:
        return "finding", traceback.format_exc()[-4000:]


def case(seeds: Sequence[Seed], seed: int, number: int) -> tuple[Seed, dict[str, bytes], str]:
    """Return a case's seed, its mutated files, and what was done to them."""
    random = Random(f"{seed} {number}")
    chosen = random.choice(seeds)
    other = random.choice(seeds)
    files, what = mutated(chosen.files, tuple(other.files.values()), random)
    return chosen, files, what


def describe(seeds: Sequence[Seed], seed: int, number: int) -> str:
    """Return which model a case is made of, and how."""
    chosen, _, what = case(seeds, seed, number)
    return f"{chosen.name}, {what}"


def _address_space() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    return pages * resource.getpagesize()


@contextlib.contextmanager
def _all_seeds(models: Path | None) -> Iterator[list[Seed]]:
    if models is not None:
        yield read_seeds(models)
        return
    with tempfile.TemporaryDirectory(prefix="fuzz-seeds-") as folder:
        yield made_seeds(Path(folder))


def main() -> int:
    """Run the cases that are asked for, tell of the findings, and return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--keep", type=Path)
    parser.add_argument("--models", type=Path, help="where `write_seeds` has written the models")
    given = parser.parse_args()
    torch.set_num_threads(1)
    started = time.monotonic()
    with _all_seeds(given.models) as seeds:
        report = run(seeds, given.seed, range(given.first, given.first + given.count), given.keep)
    for finding in report.findings:
        print(finding, end="\n\n")
    seconds = time.monotonic() - started
    print(f"{report.outcomes.total()} cases in {seconds:.0f} s, {len(report.findings)} findings")
    print(f"slowest: case {report.slowest[1]}, {report.slowest[0]:.2f} s")
    for outcome, count in report.outcomes.most_common():
        print(f"{count:7} {outcome}")
    return 1 if report.findings else 0


if __name__ == "__main__":
    sys.exit(main())
