"""Does the time of a key's check tell anything about the keys? Prints Welch's t for each question.

    python benchmarks/key_timing.py [--rounds 100000] [--keys 8]

Each round checks one key of each kind, in a random order: keys that are wrong from their first
character on, in the middle or at the last; and each of the configured keys itself. |t| beyond 4.5
(p below 0.00001, as in Test Vector Leakage Assessment) tells two kinds apart. Where code and keys
of a process lie in memory makes single kinds differ by some nanoseconds: run it several times, as
only what keys are keeps its sign. The same is then done with a check that ends as soon as it
knows, which must be found out.
"""

from __future__ import annotations

import argparse
import gc
import math
import random
import secrets
import statistics
import string
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from time import perf_counter_ns

from inferno.server.api_keys import ApiKey, find_key, read_keys

LENGTH = 48
NUM_VARIANTS = 256  # of each kind, so that none is known to a cache because it was just there
CROPPED = 0.05  # the slowest of all: interrupts, and nobody's key
LIMIT = 4.5
_CHARACTERS = string.ascii_letters + string.digits

Check = Callable[[bytes], object]
Samples = dict[str, list[int]]


@dataclass(frozen=True)
class Welch:
    """How two kinds differ: in nanoseconds, within what, and in standard errors."""

    difference: float
    error: float

    @property
    def t(self) -> float:
        return self.difference / self.error


def main() -> None:
    """Ask every question of the server's check, and of one that leaks."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=100_000)
    parser.add_argument("--keys", type=int, default=8)
    arguments = parser.parse_args()
    texts = [_random(LENGTH) for _ in range(arguments.keys)]
    keys = read_keys(texts, None, {})
    worst = tell("the server's check", _server_check(keys), texts, arguments.rounds)
    leaky = tell("a check that leaks", _leaky_check(texts), texts, arguments.rounds // 10)
    is_well = worst < LIMIT < leaky
    print(f"worst |t| {worst:.2f}, of the leaking one {leaky:.2f}: {'ok' if is_well else 'NOT OK'}")
    raise SystemExit(not is_well)


def tell(title: str, check: Check, texts: Sequence[str], num_rounds: int) -> float:
    """Print how each kind differs from the first of its question; returns the greatest |t|."""
    samples = measure(check, kinds_of(texts), num_rounds)
    kept = cropped(samples)
    print(f"{title}: {num_rounds} rounds, median {statistics.median(kept['wrong at 0']):.0f} ns")
    worst = 0.0
    for first, others in questions(len(texts)):
        for other in others:
            found = welch(kept[other], kept[first])
            worst = max(worst, abs(found.t))
            print(
                f"  {other:12} - {first:12} {found.difference:+8.2f} ns "
                f"± {1.96 * found.error:.2f}  t {found.t:+.2f}"
            )
    return worst


def questions(num_keys: int) -> list[tuple[str, list[str]]]:
    """What is compared with what: wrong keys, and right ones."""
    wrong = [f"wrong at {place}" for place in (LENGTH // 2, LENGTH - 1)]
    right = [f"key {number}" for number in range(2, num_keys + 1)]
    return [("wrong at 0", wrong), ("key 1", right)]


def kinds_of(texts: Sequence[str]) -> dict[str, list[bytes]]:
    """Keys to check, by kind; each is an object of its own, of the same length."""
    kinds = {
        f"wrong at {place}": [_wrong_from(texts[0], place) for _ in range(NUM_VARIANTS)]
        for place in (0, LENGTH // 2, LENGTH - 1)
    }
    right = {
        f"key {number}": [text.encode() for _ in range(NUM_VARIANTS)]
        for number, text in enumerate(texts, 1)
    }
    return kinds | right


def measure(check: Check, kinds: dict[str, list[bytes]], num_rounds: int) -> Samples:
    """Nanoseconds of each check, kinds in a new order each round.

    What differs by kind is the bytes that are checked: not where they lie in memory, as each check
    gets a fresh copy at the place of the one before, nor where its time is noted.
    """
    order = [name for _ in range(num_rounds) for name in random.sample(list(kinds), len(kinds))]
    given = [memoryview(kinds[name][place % NUM_VARIANTS]) for place, name in enumerate(order)]
    taken = []
    gc.disable()
    for each in given:
        copy = bytes(each)
        began = perf_counter_ns()
        check(copy)
        ended = perf_counter_ns()
        taken.append(ended - began)
        del copy
    gc.enable()
    samples: Samples = {name: [] for name in kinds}
    for name, nanoseconds in zip(order, taken, strict=True):
        samples[name].append(nanoseconds)
    return samples


def cropped(samples: Samples) -> Samples:
    """Without what is slower than nearly all checks of whatever kind."""
    everything = sorted(each for values in samples.values() for each in values)
    most = everything[round((1 - CROPPED) * (len(everything) - 1))]
    return {name: [each for each in values if each <= most] for name, values in samples.items()}


def welch(values: Sequence[int], others: Sequence[int]) -> Welch:
    """Welch's comparison of two means."""
    parts = [statistics.variance(each) / len(each) for each in (values, others)]
    return Welch(statistics.fmean(values) - statistics.fmean(others), math.sqrt(sum(parts)))


def _server_check(keys: tuple[ApiKey, ...]) -> Check:
    return lambda given: find_key(keys, given)


def _leaky_check(texts: Sequence[str]) -> Check:
    """Compares character by character, key after key, and ends as soon as it knows."""
    keys = [text.encode() for text in texts]

    def check(given: bytes) -> bool:
        return any(_are_equal(key, given) for key in keys)

    return check


def _are_equal(key: bytes, given: bytes) -> bool:
    return len(key) == len(given) and all(a == b for a, b in zip(key, given, strict=True))


def _random(length: int) -> str:
    return "".join(secrets.choice(_CHARACTERS) for _ in range(length))


def _wrong_from(text: str, place: int) -> bytes:
    """A key that is right up to this place, and there and after it anything else."""
    wrong = secrets.choice(_CHARACTERS.replace(text[place], ""))
    return (text[:place] + wrong + _random(LENGTH - place - 1)).encode()


if __name__ == "__main__":
    main()
