"""Encode text in which a special token counts only where it is meant to."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise

import tokenizers

from inferno.text.marks import RenderedChat

# Characters, or tokens: the library's calls for one text hold the interpreter's lock, some
# microseconds for each, those for several don't.
LONG = 1000


class PrivateSpelling:
    """A copy of a tokenizer that knows special tokens only by spellings that nobody can guess.

    What is meant as a special token is respelled, the whole text is encoded at once, as the
    original would do it, and the ids of the private spellings give way to the real ones.
    """

    def __init__(self, backend: tokenizers.Tokenizer) -> None:
        self._backend = tokenizers.Tokenizer.from_str(backend.to_str())
        self._backend.encode_special_tokens = True  # their public spelling is but text
        secret = secrets.token_hex(16)
        added = backend.get_added_tokens_decoder()
        special = {token_id: token for token_id, token in added.items() if token.special}
        spellings = {token_id: f"<{secret}:{token_id}>" for token_id in special}
        # All at once: each call of add_tokens goes through those that are there.
        self._backend.add_tokens([_respelled(special[i], spellings[i]) for i in special])
        self._spelling = {special[i].content: spellings[i] for i in special}
        self._real_id = {self._backend.token_to_id(spellings[i]): i for i in special}

    def encode(self, chat: RenderedChat) -> list[int]:
        """Return the ids of a rendered conversation, with nothing put before or after."""
        ids = ids_of(self._backend, self._respell(chat), add_special_tokens=False)
        return [self._real_id.get(token_id, token_id) for token_id in ids]

    def _respell(self, chat: RenderedChat) -> str:
        borders = [0, *(border for span in chat.special_spans for border in span), len(chat.text)]
        pieces = [chat.text[start:end] for start, end in pairwise(borders)]
        pieces[1::2] = [self._spelling[piece] for piece in pieces[1::2]]
        return "".join(pieces)


def ids_of(backend: tokenizers.Tokenizer, text: str, *, add_special_tokens: bool) -> list[int]:
    """Return a text's ids; of a long one without keeping Python's other threads from running."""
    if len(text) > LONG:
        with no_threads_needed():
            return backend.encode_batch_fast([text], add_special_tokens=add_special_tokens)[0].ids
    return backend.encode(text, add_special_tokens=add_special_tokens).ids


@contextmanager
def no_threads_needed() -> Iterator[None]:
    """Let a call for several texts fail, so that one for a single text can be made instead.

    Such a call starts the library's threads. Where the system refuses these once, be it that memory
    is short for a moment, each such call of the process panics from then on.
    """
    try:
        yield
    except BaseException as problem:
        if not is_panic(problem):
            raise


def is_panic(problem: BaseException) -> bool:
    """Return whether the library panicked: such an error is no Exception, and no order to stop."""
    return type(problem).__name__ == "PanicException"


def _respelled(token: tokenizers.AddedToken, spelling: str) -> tokenizers.AddedToken:
    return tokenizers.AddedToken(
        spelling,
        lstrip=token.lstrip,
        rstrip=token.rstrip,
        # Found wherever it stands: a secret must never be read as text.
        single_word=False,
        normalized=False,
        special=False,
    )
