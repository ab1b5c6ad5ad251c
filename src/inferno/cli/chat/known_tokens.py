"""Spell a prompt with tokens that were computed before, so that the prefix cache knows them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile

from inferno.text.tokenizer import Tokenizer


def with_known_tokens(
    rendered: Sequence[int], known: Sequence[int], tokenizer: Tokenizer
) -> list[int]:
    """Return the rendered prompt, beginning with the known tokens as far as both are the same text.

    A model may spell its answer otherwise than the tokenizer would, `New` + `_York` for `New_York`.
    The cache knows what the model wrote.
    """
    known_text, known_ends = _spell(known, tokenizer)
    rendered_text, rendered_ends = _spell(rendered, tokenizer)
    pairs = zip(known_text, rendered_text, strict=False)
    num_alike = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
    end = max(end for end in known_ends.keys() & rendered_ends.keys() if end <= num_alike)
    return [*known[: known_ends[end]], *rendered[rendered_ends[end] :]]


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
