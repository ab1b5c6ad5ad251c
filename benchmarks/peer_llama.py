"""llama.cpp as cpu_peers.py measures it: `llama_decode` and nothing else; no token is drawn.

PEER_PYTHON benchmarks/peer_llama.py, started by cpu_peers.py
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any

import llama_cpp
from peer_worker import peak_memory, serve

Token = tuple[int, int, int, bool]  # id, sequence, position, whether its logits are wanted
_BATCH = 2048  # tokens given at once: llama.cpp's default
_CONTEXT_STEP = 256  # contexts are rounded up to this


@llama_cpp.llama_log_callback  # type: ignore[untyped-decorator]
def _say_nothing(_level: int, _text: bytes, _data: object) -> None:
    pass


class Peer:
    """A model, and a context made anew for each case, of the size that it needs."""

    def load(self, path: str, threads: int) -> str:
        """Returns what computes."""
        llama_cpp.llama_log_set(_say_nothing, None)
        llama_cpp.llama_backend_init()
        self._threads = threads
        params = llama_cpp.llama_model_default_params()
        self._model = llama_cpp.llama_model_load_from_file(path.encode(), params)
        if not self._model:
            raise SystemExit(f"llama.cpp can't load {path}")
        vocab = llama_cpp.llama_model_get_vocab(self._model)
        self._vocab_size: int = llama_cpp.llama_vocab_n_tokens(vocab)
        self._context: Any = None
        self._batch = llama_cpp.llama_batch_init(_BATCH, 0, 1)
        return f"llama.cpp of llama-cpp-python {llama_cpp.__version__}"

    def prefill(self, tokens: int) -> float:
        """Seconds from a prompt to its logits."""
        self._new_context(1, tokens)
        return self._decode(self._prompt(0, tokens))

    def begin(self, batch: int, context: int, steps: int) -> None:
        """Prompts of `context` tokens in each of `batch` sequences."""
        self._new_context(batch, context + steps)
        self._length = context
        self._num_sequences = batch
        for sequence in range(batch):
            self._decode(self._prompt(sequence, context))

    def decode(self, steps: int) -> float:
        """Seconds of so many steps of one token for each sequence."""
        return sum(self._step() for _ in range(steps))

    def serve_all(self, requests: int, prompt: int, output: int) -> float:
        """Seconds that so many requests take together."""
        self._new_context(requests, prompt + output)
        tokens = [token for one in range(requests) for token in self._prompt(one, prompt)]
        starts = range(0, len(tokens), _BATCH)
        taken = sum(self._decode(tokens[start : start + _BATCH]) for start in starts)
        self._length, self._num_sequences = prompt, requests
        return taken + self.decode(output - 1)  # the first token comes of the prompt

    def logits(self, ids: list[int]) -> list[float]:
        """Logits after the last of these tokens."""
        self._new_context(1, len(ids))
        last = len(ids) - 1
        self._decode([(one, 0, place, place == last) for place, one in enumerate(ids)])
        found = llama_cpp.llama_get_logits_ith(self._context, last)
        return list(found[: self._vocab_size])

    def _step(self) -> float:
        position = self._length
        self._length += 1
        return self._decode(
            [(self._some_id(position + n), n, position, True) for n in range(self._num_sequences)]
        )

    def _prompt(self, sequence: int, length: int) -> list[Token]:
        return [
            (self._some_id(31 * sequence + place), sequence, place, place == length - 1)
            for place in range(length)
        ]

    def _some_id(self, number: int) -> int:
        return (7919 * number + 1) % self._vocab_size

    def _new_context(self, num_sequences: int, length: int) -> None:
        if self._context:
            llama_cpp.llama_free(self._context)
        params = llama_cpp.llama_context_default_params()
        params.n_ctx = num_sequences * -(-length // _CONTEXT_STEP) * _CONTEXT_STEP
        params.n_seq_max = num_sequences
        params.n_batch = _BATCH
        params.n_threads = params.n_threads_batch = self._threads
        self._context = llama_cpp.llama_init_from_model(self._model, params)
        if not self._context:
            raise SystemExit(f"llama.cpp can't make a context of {params.n_ctx} tokens")

    def _decode(self, tokens: Iterable[Token]) -> float:
        batch = self._batch
        batch.n_tokens = 0
        for index, (token_id, sequence, position, wants_logits) in enumerate(tokens):
            batch.token[index] = token_id
            batch.pos[index] = position
            batch.n_seq_id[index] = 1
            batch.seq_id[index][0] = sequence
            batch.logits[index] = wants_logits
            batch.n_tokens += 1
        begun = time.perf_counter()
        if llama_cpp.llama_decode(self._context, batch) != 0:
            raise SystemExit("llama.cpp can't decode this batch")
        llama_cpp.llama_synchronize(self._context)
        return time.perf_counter() - begun


if __name__ == "__main__":
    peer = Peer()
    serve(
        {
            "load": peer.load,
            "prefill": peer.prefill,
            "begin": peer.begin,
            "decode": peer.decode,
            "serve_all": peer.serve_all,
            "logits": peer.logits,
            "peak_memory": peak_memory,
        }
    )
