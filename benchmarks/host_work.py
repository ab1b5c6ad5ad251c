"""How long does the host take from one step's results to the next launch? Prints it by part.

    python benchmarks/host_work.py [--streams N] [--context N] [--steps N] [--sampled] [--mixed]

All streams decode. The device costs nothing: passes and draws return what lies there, and copies
are none. So what is left is the work of scheduler, executor and engine, with a step in flight as on
a GPU. Times are those of the processor, so that other programs count little. With --mixed a
sequence ends and another begins every few steps.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from inferno import ops
from inferno.engine.engine import Engine
from inferno.engine.execution.batcher import Batcher
from inferno.engine.execution.footprint import Footprint
from inferno.engine.execution.local import Ahead, LocalExecutor
from inferno.engine.execution.runner import Runner
from inferno.engine.execution.static_batcher import StaticBatcher
from inferno.engine.kv.block_manager import BlockManager
from inferno.engine.sampling.device_draws import DeviceDraws
from inferno.engine.sampling.sampler import Sampler
from inferno.engine.scheduling.scheduler import Scheduler
from inferno.ops import AttentionKind, Batch
from inferno.requests import Request, SamplingParams

VOCAB_SIZE = 64
BLOCK_SIZE = 16
_HOST_DEVICE = torch.device("cpu")


class FreeRunner(Runner):
    """A runner whose passes cost nothing."""

    def __init__(self, num_rows: int) -> None:
        self._hidden_NE = torch.zeros(num_rows, 8)
        self._logits_NV = torch.zeros(num_rows, VOCAB_SIZE)

    @property
    def footprint(self) -> Footprint:
        raise NotImplementedError

    def forward(
        self, batch: Batch, layers: range | None = None, stream_TE: Tensor | None = None
    ) -> Tensor:
        return self._hidden_NE

    def logits_at(self, hidden_TE: Tensor, rows_N: Tensor | None, num_rows: int) -> Tensor:
        return self._logits_NV[:num_rows]


class FreeDevice:
    """The CPU's backend, with draws that cost nothing."""

    def __init__(self, usual: Any, num_rows: int) -> None:
        self._usual = usual
        self._token_N = torch.arange(num_rows) % (VOCAB_SIZE - 1)
        self._peak_N = torch.zeros(num_rows)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._usual, name)

    def argmax(self, logits_RV: Tensor, *, allowed_RW: Tensor | None = None) -> Any:
        return self._peak_N[: len(logits_RV)], self._token_N[: len(logits_RV)]

    def draw(self, logits_RV: Tensor, *args: Any, out: Tensor, **kwargs: Any) -> Tensor:
        return out


def main() -> None:
    """Measure steps and print their parts."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--streams", type=int, default=256)
    parser.add_argument("--context", type=int, default=1024, help="tokens of each prompt")
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--sampled", action="store_true", help="temperature 1, top-p 0.9")
    parser.add_argument("--mixed", action="store_true", help="sequences end and begin")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    num, steps = arguments.streams, arguments.steps
    ops.BACKENDS["cpu"] = FreeDevice(ops.BACKENDS["cpu"], num)
    engine, executor = build(num, arguments.context, steps)
    params: dict[str, Any] = {"temperature": 1.0, "top_p": 0.9} if arguments.sampled else {}
    count = 0

    def add() -> None:
        nonlocal count
        lifetime = 2 * steps
        if arguments.mixed:  # the first ones end one after the other
            lifetime = steps // 2 if count >= num else 20 + count * steps // num
        engine.add_request(
            Request(
                request_id=f"request {count}",
                prompt_token_ids=(1 + count % 50,) * arguments.context,
                params=SamplingParams(
                    **{"temperature": 0.0, "seed": 1, "ignore_eos": True, **params},
                    max_tokens=lifetime,
                ),
            )
        )
        count += 1

    for _ in range(num):
        add()
    for _ in range(20 + num * arguments.context // 8192):
        engine.step()
    times = []

    def run() -> None:
        for _ in range(steps // 2):
            began = time.thread_time()
            events = engine.step()
            times.append(time.thread_time() - began)
            for event in events:
                if event.finish_reason is not None:
                    add()

    run()
    whole = sorted(times)  # without parts, for asking the time takes time
    parts = Parts()
    scheduler = engine._scheduler
    parts.time(scheduler, "plan")
    parts.time(scheduler, "commit")
    parts.time(executor, "launch")
    parts.time(executor, "draw")
    run()
    print(f"{num} streams, context {arguments.context}: median ms of a step's host work")
    for name, seconds in parts.seconds.items():
        print(f"{name:>10} {statistics.median(seconds) * 1e3:8.3f}")
    print(f"{'all':>10} {statistics.median(whole) * 1e3:8.3f}")
    print(f"{'p90':>10} {whole[len(whole) * 9 // 10] * 1e3:8.3f}")


def build(num: int, context: int, steps: int) -> tuple[Engine, LocalExecutor]:
    """Return an engine of a model that costs nothing."""
    length = context + 2 * steps
    batching: dict[str, Any] = {
        "block_size": BLOCK_SIZE,
        "group_windows": (None,),
        "max_model_len": length,
        "device": _HOST_DEVICE,
        "attention": AttentionKind.AUTO,
    }
    scheduler = Scheduler(
        BlockManager(num * (2 + length // BLOCK_SIZE), BLOCK_SIZE),
        max_num_seqs=num,
        max_num_batched_tokens=8192,
        max_model_len=length,
        step_target=0.0,
    )
    sampler = Sampler(VOCAB_SIZE, _HOST_DEVICE)
    draws = DeviceDraws(sampler, num, _HOST_DEVICE)
    static_batcher = StaticBatcher(
        **batching, max_tokens=8192, max_num_seqs=num, drawn_N=draws.drawn_N
    )
    executor = LocalExecutor(
        Batcher(**batching),
        FreeRunner(num),
        sampler,
        ops.kernel_context(1),
        ahead=Ahead(static_batcher, draws),
        depth=1,
    )
    return Engine(scheduler, executor, vocab_size=VOCAB_SIZE, max_model_len=length), executor


class Parts:
    """The time that functions take, by name."""

    def __init__(self) -> None:
        self.seconds: dict[str, list[float]] = defaultdict(list)

    def time(self, owner: object, name: str) -> None:
        """Measure a method from now on."""
        function: Callable[..., Any] = getattr(owner, name)

        def timed(*args: Any, **kwargs: Any) -> Any:
            began = time.thread_time()
            result = function(*args, **kwargs)
            self.seconds[name].append(time.thread_time() - began)
            return result

        setattr(owner, name, timed)


if __name__ == "__main__":
    main()
