"""Fit a conversation into the model's context: reuse cached tokens, and handle an overflow."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from itertools import takewhile

from inferno.errors import NeverFits
from inferno.text.tokenizer import Tokenizer


def with_cached_tokens(
    rendered: Sequence[int], cached: Sequence[int], tokenizer: Tokenizer
) -> list[int]:
    """Return the rendered prompt, spelled with the cached tokens as far as both are the same text.

    A model may spell its answer otherwise than the tokenizer would, `New` + `_York` for `New_York`.
    The cache knows what the model wrote.
    """
    cached_text, cached_ends = _spell(cached, tokenizer)
    rendered_text, rendered_ends = _spell(rendered, tokenizer)
    pairs = zip(cached_text, rendered_text, strict=False)
    num_alike = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
    end = max(end for end in cached_ends.keys() & rendered_ends.keys() if end <= num_alike)
    return [*cached[: cached_ends[end]], *rendered[rendered_ends[end] :]]


def _spell(
    token_ids: Sequence[int], tokenizer: Tokenizer
) -> tuple[list[str | int], dict[int, int]]:
    """Return the characters of the tokens, and how many tokens end at each of their ends.

    A special token is one unit of its own: nothing that is text may pass for it.
    """
    units: list[str | int] = []
    ends = {0: 0}
    for num_tokens, token_id in enumerate(token_ids, start=1):
        spelling = tokenizer.id_to_token(token_id)
        is_text = spelling is not None and token_id not in tokenizer.special_tokens
        units.extend(spelling or "" if is_text else [token_id])
        ends[len(units)] = num_tokens
    return units, ends


def context_overflow(
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
    most = most_prompt_tokens(min(context, now), None)
    return NeverFits(
        f"{place} is full: with this message the conversation takes {now} tokens. "
        f"First /trim {num_to_drop(most, num_turns, num_tokens)} or /reset, then /retry; "
        f"/set context trim does so by itself{more}",
        param=problem.param,
    )


def most_prompt_tokens(capacity: int, max_tokens: int | None) -> int:
    """Return how many tokens a prompt may take; a quarter, or max_tokens, is for the answer."""
    most = capacity * 3 // 4
    return most if max_tokens is None else max(most, capacity - max_tokens)


def num_to_drop(most: int, num_turns: int, num_tokens: Callable[[int], int]) -> int:
    """Return how many oldest turns to drop so that at most so many tokens are left, or all."""
    return 1 + bisect_left(range(1, num_turns), True, key=lambda num: num_tokens(num) <= most)
