"""The text that a model is verified on: the user's, or a fixed one that is long enough."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from inferno.errors import InvalidRequest
from inferno.text.tokenizer import Tokenizer

_NUM_NEW = 16
MOST_TOKENS = 1024  # scores of a layer take heads * tokens² numbers, logits tokens * vocabulary
_LEAST_TOKENS = 48
_PAST_WINDOW = 24
_LONGEST_WINDOW = 512
_TEXT = (
    "Once upon a time there was a little dog named Max. He lived in a small house by the river, "
    "and every morning he ran 3 miles to the old bridge. One day, the bridge was gone! Max sat "
    'down and thought: "What shall I do?" '
)
# What tokenizers are compared on: letters, digits, spaces, signs, and more than one script.
TOKENIZER_TEXT = "The quick brown fox, aged 12,345: don't\n\tdef f(x): return x**2  # café 你好 🙂"


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    """A prompt's text and ids; text is None where the ids were made up.

    The ids are made up without a tokenizer, or with one of other texts.
    """

    text: str | None
    token_ids: tuple[int, ...]


def choose_prompt(
    text: str | None,
    tokenizer: Tokenizer | None,
    *,
    windows: Sequence[int | None],
    vocab_size: int,
    max_model_len: int,
) -> Prompt:
    """Return the ids to compute; raise InvalidRequest for a text that can't be encoded or fit."""
    most = max(1, min(MOST_TOKENS, max_model_len) - num_new_tokens(max_model_len))
    if text is not None:
        return _given(text, tokenizer, most)
    length = min(_needed(windows), most)
    if tokenizer is not None and (fixed := _fixed(tokenizer, length)) is not None:
        return fixed
    return Prompt(text=None, token_ids=_made_up(length, vocab_size))


def num_new_tokens(max_model_len: int) -> int:
    """Return how many tokens are generated after the prompt; a short context is shared."""
    return max(1, min(_NUM_NEW, max_model_len // 2))


def unreached(windows: Sequence[int | None], num_tokens: int) -> tuple[int, ...]:
    """Return the windows that hide nothing, as so many tokens don't reach beyond them."""
    return tuple(sorted({window for window in windows if window and window >= num_tokens}))


def _needed(windows: Sequence[int | None]) -> int:
    """Return how many tokens reach beyond every window that is not too long for it."""
    short = [window for window in windows if window and window <= _LONGEST_WINDOW]
    return max([_LEAST_TOKENS, *(window + _PAST_WINDOW for window in short)])


def _fixed(tokenizer: Tokenizer, length: int) -> Prompt | None:
    """Repeat the fixed text until it is long enough; None if more copies give no more tokens.

    So it is where a tokenizer knows no character of it: each text is nothing, or one unknown token.
    """
    copies, ids = 1, tokenizer.encode(_TEXT)
    while len(ids) < length:
        num_before, copies = len(ids), 2 * copies
        ids = tokenizer.encode(_TEXT * copies)
        if len(ids) < num_before + copies // 2:
            return None
    return Prompt(text=_TEXT * copies, token_ids=tuple(ids[:length]))


def _given(text: str, tokenizer: Tokenizer | None, most: int) -> Prompt:
    if tokenizer is None:
        raise InvalidRequest(
            "--prompt needs a tokenizer.json in the model's folder; without it ids are made up",
            param="prompt",
        )
    ids = tuple(tokenizer.encode(text))
    if not 1 <= len(ids) <= most:
        raise InvalidRequest(
            f"--prompt has {len(ids)} tokens, expected 1 to {most}", param="prompt"
        )
    return Prompt(text=text, token_ids=ids)


def _made_up(length: int, vocab_size: int) -> tuple[int, ...]:
    """Return ids that look like no pattern and are the same everywhere."""
    return tuple((7919 * i * i + 104729 * i + 13) % vocab_size for i in range(length))
