"""How many turns make room for a message, against trying each number."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from inferno.cli.chat.context import context_overflow
from inferno.errors import NeverFits

CONTEXT = 100


@given(st.integers(1, 99), st.lists(st.integers(1, 60), min_size=1, max_size=8))
def test_the_fewest_turns_are_named_that_leave_a_quarter_for_the_answer(
    message: int, turns: list[int]
) -> None:
    problem = NeverFits("too long", param="prompt")
    found = context_overflow(
        problem,
        context=CONTEXT,
        max_tokens=None,
        num_turns=len(turns),
        num_tokens=lambda num_dropped: message + sum(turns[num_dropped:]),
    )
    [named] = re.findall(r"First /trim (\d+) or /reset, then /retry", str(found))
    most = min(CONTEXT, message + sum(turns)) * 3 // 4
    enough = [num for num in range(1, len(turns)) if message + sum(turns[num:]) <= most]
    assert int(named) == min(enough, default=len(turns))
    assert found.param == "prompt"
