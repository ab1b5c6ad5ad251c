"""inferno as cpu_peers.py measures it: the engine's steps, with scheduling and greedy sampling.

python benchmarks/peer_inferno.py, started by cpu_peers.py
"""

from __future__ import annotations

import itertools
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from peer_worker import peak_memory, serve

import inferno
from inferno import ops
from inferno.bench.measurement import Work
from inferno.bench.roofline import ModelCosts, measure_limits, model_costs
from inferno.engine.build import build_engine, read_hf_config
from inferno.engine.execution.device import choose_kv_dtype
from inferno.options import EngineOptions
from inferno.requests import Request, SamplingParams

_CPU = torch.device("cpu")
_BLOCK_SIZE = 16
_GROUPS = 2  # of layers with equal windows, at most: each has blocks of its own
_SPARE_BLOCKS = 64  # of requests that end inside one


class Peer:
    """An engine, and the requests that it is given."""

    def load(
        self,
        path: str,
        threads: int,
        quantize: str,
        load_format: str,
        context: int,
        activations: str = "int8",
    ) -> str:
        """With a cache for `context` tokens in all. Returns what computes."""
        options = EngineOptions(
            model=Path(path),
            threads=threads,
            quantize=quantize,
            load_format=load_format,
            activations=activations,
            speculative="off",  # the other engines guess no tokens
            block_size=_BLOCK_SIZE,
            num_blocks=_GROUPS * (context // _BLOCK_SIZE + _SPARE_BLOCKS),
        )
        self._engine = build_engine(options)
        # The cache is made ready in the background; llama.cpp clears its own while it loads.
        _wait_until_idle()
        self._options = options
        self._names = itertools.count()
        self._open: set[str] = set()
        return f"inferno {inferno.__version__}, kernels {ops.isa(_CPU)}"

    def prefill(self, tokens: int) -> float:
        """Seconds from a prompt to its first token."""
        return self.serve_all(1, tokens, 1)

    def begin(self, batch: int, context: int, steps: int) -> None:
        """Prompts of `context` tokens in each of `batch` requests, which then go on for `steps`."""
        self._drop_all()
        # Requests that are prefilled first go on while the others are.
        self._add(batch, context, steps + batch * context)
        started: set[str] = set()
        while len(started) < batch:
            started |= {event.request_id for event in self._engine.step() if event.token_ids}
        self._open = started

    def decode(self, steps: int) -> float:
        """Seconds of so many steps of one token for each request."""
        begun = time.perf_counter()
        num_tokens = sum(
            len(event.token_ids) for _ in range(steps) for event in self._engine.step()
        )
        taken = time.perf_counter() - begun
        assert num_tokens == steps * len(self._open), "a request ended early"
        return taken

    def serve_all(self, requests: int, prompt: int, output: int) -> float:
        """Seconds that so many requests take together."""
        self._drop_all()
        begun = time.perf_counter()
        self._add(requests, prompt, output)
        while self._engine.has_work:
            self._engine.step()
        return time.perf_counter() - begun

    def logits(self, ids: list[int]) -> list[float]:
        """Logits after the last of these tokens."""
        self._drop_all()
        found: list[float] = self._engine.logits(ids, [len(ids) - 1])[0].tolist()
        return found

    def memory(self) -> str:
        """The most that was held so far, beside weights and cache."""
        lives_in = self._engine.footprint
        known = lives_in.weights_bytes + lives_in.kv_cache_bytes
        return (
            f"inferno held at most {(peak_memory() - known) / 1e6:.0f} MB beside its weights "
            f"({lives_in.weights_bytes / 1e6:.0f} MB) and KV cache "
            f"({lives_in.kv_cache_bytes / 1e6:.0f} MB)"
        )

    def limits(self, threads: int, arithmetic: str) -> dict[str, Any]:
        """What memory and arithmetic do here at their best, now; no model need be loaded."""
        return asdict(measure_limits(threads, arithmetic))

    def works(self, cases: list[dict[str, int]]) -> list[dict[str, float]]:
        """What each case can't do without: `requests`, `prompt` and `output`, or `steps` after."""
        dtype = getattr(torch, self._engine.footprint.dtype)
        kv_dtype = choose_kv_dtype(self._options, read_hf_config(self._options.model), dtype, _CPU)
        costs = model_costs(self._options, dtype, kv_dtype)
        return [asdict(_work(costs, **case)) for case in cases]

    def _add(self, count: int, prompt: int, output: int) -> None:
        for _ in range(count):
            ids = torch.randint(self._engine.vocab_size, (prompt,)).tolist()
            params = SamplingParams(temperature=0.0, max_tokens=output, ignore_eos=True)
            request = Request(
                request_id=str(next(self._names)), prompt_token_ids=tuple(ids), params=params
            )
            self._engine.add_request(request)

    def _drop_all(self) -> None:
        for request_id in self._open:
            self._engine.abort(request_id)
        while self._engine.has_work:
            self._engine.step()
        self._open = set()


def _wait_until_idle() -> None:
    """Wait until this process has used no processor for a while."""
    while True:
        before = time.process_time()
        time.sleep(0.5)
        if time.process_time() - before < 0.02:
            return


def _work(costs: ModelCosts, requests: int, prompt: int, output: int = 1, steps: int = 0) -> Work:
    if not steps:
        return costs.work(
            num_requests=requests, at_once=requests, prompt_tokens=prompt, max_tokens=output
        )
    whole = costs.work(
        num_requests=requests, at_once=requests, prompt_tokens=prompt, max_tokens=steps + 1
    )
    return Work(
        prefill_operations=0.0,
        decode_operations=whole.decode_operations,
        decode_bytes=whole.decode_bytes,
    )


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
            "memory": peer.memory,
            "limits": peer.limits,
            "works": peer.works,
            "peak_memory": peak_memory,
        }
    )
