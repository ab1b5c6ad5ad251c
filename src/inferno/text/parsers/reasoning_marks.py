"""Find the tokens around a model's reasoning, for the constraint of the answer after it."""

from __future__ import annotations

from collections.abc import Sequence

from inferno.requests import Reasoning
from inferno.text.parsers.choose import Dialect
from inferno.text.parsers.harmony_header import Mark
from inferno.text.parsers.think import CLOSES, OPENS, from_last_mark
from inferno.text.tokenizer import Tokenizer

# Templates write it between the end of the reasoning and the answer.
_AFTER_THINKING = "\n\n"


def reasoning_marks(
    dialect: Dialect,
    tokenizer: Tokenizer,
    prompt_token_ids: Sequence[int],
    *,
    has_calls: bool = False,
) -> Reasoning | None:
    """Return the tokens with which an output may begin before its answer.

    has_calls   the answer may be calls of tools, which have a channel of their own: then the answer
                begins with the name of its channel.

    Returns None where the output is an answer from its first token on: the model marks no
    reasoning, or the prompt has ended it.
    """
    match dialect:
        case Dialect.THINK:
            return _of_thinking(tokenizer, prompt_token_ids)
        case Dialect.HARMONY:
            return _of_channels(tokenizer, prompt_token_ids, has_calls)
    return None


def _of_thinking(tokenizer: Tokenizer, prompt_token_ids: Sequence[int]) -> Reasoning | None:
    opens, closes = map(tokenizer.token_to_id, (OPENS, CLOSES))
    assert opens is not None, "the dialect has both marks"
    assert closes is not None, "the dialect has both marks"
    since_mark = from_last_mark(tokenizer, prompt_token_ids, {opens, closes})
    if since_mark and since_mark[0] == closes:
        return None
    gap = tokenizer.encode(_AFTER_THINKING, add_special_tokens=False)
    return Reasoning(
        opens=(opens,),
        skips=(),
        closes=(closes, *gap),
        marks=frozenset((opens,)),
        is_open=bool(since_mark),
    )


def _of_channels(
    tokenizer: Tokenizer, prompt_token_ids: Sequence[int], has_calls: bool
) -> Reasoning | None:
    def ids(*parts: str) -> tuple[int, ...]:
        found: list[int] = []
        for part in parts:
            mark = tokenizer.token_to_id(part) if part in set(Mark) else None
            found += (
                [mark] if mark is not None else tokenizer.encode(part, add_special_tokens=False)
            )
        return tuple(found)

    answer = (Mark.CHANNEL,) if has_calls else (Mark.CHANNEL, "final", Mark.MESSAGE)
    opens = ids(Mark.CHANNEL, "analysis", Mark.MESSAGE)
    is_open = False
    [start] = ids(Mark.START)
    for index in reversed(range(len(prompt_token_ids))):
        if prompt_token_ids[index] == start:
            message = tuple(prompt_token_ids[index:])
            if opens[-1] in message:
                is_open = any(message[i : i + len(opens)] == opens for i in range(len(message)))
                if not is_open:
                    return None
            break
    return Reasoning(
        opens=opens,
        skips=ids(*answer),
        closes=ids(Mark.END, Mark.START, "assistant", *answer),
        marks=frozenset(ids(*Mark)),
        is_open=is_open,
    )
