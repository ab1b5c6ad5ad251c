"""The program that asks llama.cpp, run as a file in a process of its own: a crash ends it alone.

It reads one JSON object from standard input and answers on standard output; what the library prints
goes to standard error. It imports nothing of inferno, and so no PyTorch.

    {"ask": "logits", "texts": [[id, ...], ...]}  is answered by a line, {"vocab_size": V}, then the
                                                  float32 logits of every position of each text.
    {"ask": "encode", "text": "..."}              by the ids, or null from a model without words.
    {"ask": "decode", "ids": [id, ...]}           by the text, or null.

Each has the `model`'s path and the number of `threads` besides.
"""

from __future__ import annotations

import ctypes
import json
import os
import sys
from collections.abc import Iterator, Sequence
from typing import Any, BinaryIO

import llama_cpp

_POSITIONS_AT_A_TIME = 64  # whose logits are in memory at once
_LEAST_CONTEXT = 64
_NO_VOCABULARY = 0
_ERROR = 4  # of ggml_log_level
_MOST_IDS = 3  # of a byte: SentencePiece's sign for a space, in bytes
_LONGEST_WORD = 512  # bytes of a token's text


def main() -> None:
    # What C libraries print to standard output must not stand between the answers.
    with os.fdopen(os.dup(1), "wb") as answers:
        os.dup2(2, 1)
        question = json.load(sys.stdin)
        llama_cpp.llama_log_set(_log_nothing_but_errors, ctypes.c_void_p(0))
        llama_cpp.llama_backend_init()
        try:
            _answer(question, answers)
        except _Refused as problem:
            sys.exit(f"llama.cpp {problem}")


class _Refused(Exception):
    """A refusal by the library, in words that follow its name."""


@llama_cpp.llama_log_callback  # type: ignore[untyped-decorator]
def _log_nothing_but_errors(level: int, text: bytes, _: object) -> None:
    if level == _ERROR:
        sys.stderr.buffer.write(text)
        sys.stderr.flush()


def _answer(question: dict[str, Any], answers: BinaryIO) -> None:
    is_about_words = question["ask"] != "logits"
    model = _load(question["model"], only_words=is_about_words)
    vocab = llama_cpp.llama_model_get_vocab(model)
    if not is_about_words:
        size = llama_cpp.llama_vocab_n_tokens(vocab)
        _say({"vocab_size": size}, answers)
        for text in question["texts"]:
            for rows in _logits(model, text, size, question["threads"]):
                answers.write(rows)
    elif llama_cpp.llama_vocab_type(vocab) == _NO_VOCABULARY:
        _say(None, answers)
    elif question["ask"] == "encode":
        _say(_encode(vocab, question["text"].encode()), answers)
    else:
        _say(_decode(vocab, question["ids"]), answers)


def _say(answer: object, answers: BinaryIO) -> None:
    answers.write(json.dumps(answer).encode() + b"\n")


def _load(path: str, *, only_words: bool) -> Any:
    how = llama_cpp.llama_model_default_params()
    how.vocab_only = only_words
    how.n_gpu_layers = 0
    model = llama_cpp.llama_model_load_from_file(path.encode(), how)
    if not model:
        raise _Refused("can't load this file")
    return model


def _logits(model: Any, ids: Sequence[int], size: int, threads: int) -> Iterator[bytes]:
    """Yield the logits of some positions at a time, computed with keys and values in float32."""
    how = llama_cpp.llama_context_default_params()
    how.n_ctx = max(len(ids), _LEAST_CONTEXT)
    how.n_batch = how.n_ubatch = _POSITIONS_AT_A_TIME
    how.n_threads = how.n_threads_batch = threads
    how.type_k = how.type_v = llama_cpp.GGML_TYPE_F32
    how.flash_attn_type = llama_cpp.LLAMA_FLASH_ATTN_TYPE_DISABLED  # it would round values
    how.offload_kqv = False
    context = llama_cpp.llama_init_from_model(model, how)
    if not context:
        raise _Refused("can't run this model")
    batch = llama_cpp.llama_batch_init(_POSITIONS_AT_A_TIME, 0, 1)
    for first in range(0, len(ids), _POSITIONS_AT_A_TIME):
        some = ids[first : first + _POSITIONS_AT_A_TIME]
        batch.n_tokens = len(some)
        for index, token in enumerate(some):
            batch.token[index] = token
            batch.pos[index] = first + index
            batch.n_seq_id[index] = 1
            batch.seq_id[index][0] = 0
            batch.logits[index] = True
        if llama_cpp.llama_decode(context, batch):
            raise _Refused(f"can't compute {len(some)} tokens from position {first} on")
        rows = llama_cpp.llama_get_logits(context)
        yield ctypes.string_at(rows, len(some) * size * ctypes.sizeof(ctypes.c_float))
    llama_cpp.llama_batch_free(batch)
    llama_cpp.llama_free(context)


def _encode(vocab: Any, text: bytes) -> list[int]:
    most = _MOST_IDS * len(text) + 2
    tokens = (llama_cpp.llama_token * most)()
    # With BOS where the file says so; special tokens that the text spells out count as such.
    count = llama_cpp.llama_tokenize(vocab, text, len(text), tokens, most, True, True)
    if count < 0:
        raise _Refused(f"makes {-count} tokens of {len(text)} bytes")
    return list(tokens[:count])


def _decode(vocab: Any, ids: Sequence[int]) -> str:
    tokens, most = (llama_cpp.llama_token * len(ids))(*ids), len(ids) * _LONGEST_WORD
    text = ctypes.create_string_buffer(most)
    count = llama_cpp.llama_detokenize(vocab, tokens, len(ids), text, most, True, False)
    if count < 0:
        raise _Refused(f"makes {-count} bytes of {len(ids)} tokens")
    return text.raw[:count].decode(errors="replace")


if __name__ == "__main__":
    main()
