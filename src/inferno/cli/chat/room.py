"""Say why a message has no room in a conversation, and make some."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable

from inferno.errors import NeverFits


def no_room(
    problem: NeverFits,
    *,
    context: int,
    max_tokens: int | None,
    num_turns: int,
    num_tokens: Callable[[int], int],
) -> NeverFits:
    """Return the engine's refusal of a message, in a chat's words.

    context     tokens that the model can attend to; the KV cache may hold fewer.
    num_tokens  of the conversation with the message, without that many of its oldest turns.
    """
    is_context = problem.param == "prompt"
    place = f"the context of {context} tokens" if is_context else "the KV cache"
    more = "" if is_context else "; a larger --num-blocks holds more"
    now, alone = num_tokens(0), num_tokens(num_turns)
    if not is_context and max_tokens is not None:
        return NeverFits(
            f"a conversation of {now} tokens and max_tokens = {max_tokens} don't fit into {place}. "
            "First /set max_tokens none, then /retry",
            param=problem.param,
        )
    if not num_turns or alone >= context:
        return NeverFits(
            f"the message takes {alone} tokens, the system prompt included, which leaves no room "
            f"for an answer in {place}: shorten it{more}",
            param=problem.param,
        )
    most = most_tokens(min(context, now), None)
    return NeverFits(
        f"{place} is full: with this message the conversation takes {now} tokens. "
        f"First /trim {num_to_drop(most, num_turns, num_tokens)} or /reset, then /retry; "
        f"/set context trim does so by itself{more}",
        param=problem.param,
    )


def most_tokens(room: int, max_tokens: int | None) -> int:
    """Return how many tokens a prompt may take; a quarter, or max_tokens, is for the answer."""
    most = room * 3 // 4
    return most if max_tokens is None else max(most, room - max_tokens)


def num_to_drop(most: int, num_turns: int, num_tokens: Callable[[int], int]) -> int:
    """Return how many oldest turns to drop so that at most so many tokens are left, or all."""
    return 1 + bisect_left(range(1, num_turns), True, key=lambda num: num_tokens(num) <= most)
