"""Call the tokenizers library so that other threads can run, and recognise its panics."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import tokenizers

# Characters, or tokens: the library's calls for one text hold the interpreter's lock, some
# microseconds for each, those for several don't.
LONG = 1000


def ids_of(backend: tokenizers.Tokenizer, text: str, *, add_special_tokens: bool) -> list[int]:
    """Return a text's token ids, without blocking Python's other threads if the text is long."""
    if len(text) > LONG:
        with no_threads_needed():
            return backend.encode_batch_fast([text], add_special_tokens=add_special_tokens)[0].ids
    return backend.encode(text, add_special_tokens=add_special_tokens).ids


@contextmanager
def no_threads_needed() -> Iterator[None]:
    """Let calls for several texts fail until the block ends, so that single ones can be made.

    A call for several texts starts the library's threads. If the system refuses them once, as when
    memory is short for a moment, every such call of the process panics from then on.
    """
    try:
        yield
    except BaseException as problem:
        if not is_panic(problem):
            raise


def is_panic(problem: BaseException) -> bool:
    """Return whether an error is a panic of the library, which is no Exception."""
    return type(problem).__name__ == "PanicException"
