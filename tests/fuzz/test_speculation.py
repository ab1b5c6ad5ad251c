"""Some random cases of `speculation.py`; many more are run by hand."""

from __future__ import annotations

from collections import Counter

from tests.fuzz.speculation import SPECULATIONS, Case, texts, without

# Cases of seed 11 in which documents were cut off: what followed a shortest way wasn't steered.
FOUND = (2, 5)


def test_nothing_that_is_told_depends_on_speculation() -> None:
    plain, prompts = without(), texts()
    stood: Counter[str] = Counter()
    kinds: set[str] = set()
    number = 0
    while number < 5 or kinds < SPECULATIONS.keys() or (len(stood) < 4 and number < 12):
        case = Case(2, number, prompts)
        problems, counts = case.run(plain)
        assert not problems
        kinds.add(case.kind)
        stood.update(counts)
        number += 1
    for number in FOUND:
        problems, _ = Case(11, number, prompts).run(plain)
        assert not problems
    plain.close()
    assert len(stood) >= 4, f"hardly anything was proposed: {stood}"
