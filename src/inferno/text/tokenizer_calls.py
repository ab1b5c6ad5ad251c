"""Calls of the tokenizers library that let other threads run, and what its panics are."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import tokenizers

# Characters, or tokens: the library's calls for one text hold the interpreter's lock, some
# microseconds for each, those for several don't.
LONG = 1000


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
