"""The process that is measured; `run` starts it and writes a Job to its standard input.

It prints JSON objects, one a line: that the first token is there, what it does next, and at the
end what it found or why it can't. It ends when its standard input does, as when its parent dies.
"""

from __future__ import annotations

import gc
import json
import logging
import os
import random
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

import inferno
from inferno import machine, ops
from inferno.bench.measurement import Job, Run, Subject
from inferno.bench.roofline import measure_limits, model_costs
from inferno.errors import EngineError, InfernoError, InvalidRequest
from inferno.options import EngineOptions
from inferno.quantization import FORMATS, InputRounding
from inferno.requests import SamplingParams

_WARM_UP_TOKENS = 4


def main() -> None:
    """Read a job, do it, report."""
    job = Job(**json.loads(sys.stdin.readline()))
    logging.getLogger("inferno").addHandler(_Warnings(logging.WARNING))
    threading.Thread(target=_leave_with_parent, daemon=True).start()
    try:
        for message in measure(job):
            _print(message)
    except InfernoError as problem:
        _print({"error": str(problem), "kind": type(problem).__name__, "param": _param(problem)})


class _Warnings(logging.Handler):
    """A handler that gives warnings to the parent's terminal; errors are raised as well."""

    def emit(self, record: logging.LogRecord) -> None:
        if record.levelno == logging.WARNING:
            _print({"warning": record.getMessage()})


def _param(problem: InfernoError) -> str | None:
    return problem.param if isinstance(problem, InvalidRequest) else None


def measure(job: Job) -> Iterator[dict[str, Any]]:
    """Yield messages on the way, and last {"found": ...}: Findings without `cold_start`."""
    options = EngineOptions(model=Path(job.model), **job.options)
    llm = inferno.LLM(job.model, **job.options)
    requests = _Requests(job, llm)
    requests.run(num_requests=1, max_tokens=1)
    yield {"first_token": True}
    yield {"doing": "warming up"}
    requests.run(max_tokens=min(job.max_tokens, _WARM_UP_TOKENS))
    runs = []
    for number in range(1, job.num_runs + 1):
        yield {"doing": f"run {number} of {job.num_runs}"}
        runs.append(requests.run())
    there = llm.footprint
    device, dtype = torch.device(there.device), getattr(torch, there.dtype)
    llm.close()
    del llm, requests
    gc.collect()  # the weights make room
    yield {"doing": "measuring memory and arithmetic"}
    threads = options.threads or machine.num_usable_cores()
    costs = model_costs(options, dtype, getattr(torch, there.kv_dtype))
    limits = measure_limits(threads, _arithmetic(options, dtype, device), device)
    subject = Subject(
        num_parameters=costs.num_parameters,
        weights=(_name(dtype) if options.quantize == "none" else options.quantize)
        + (f", experts in {costs.expert_format}" if costs.expert_format else ""),
        weights_bytes=there.weights_bytes,
        dtype=_name(dtype),
        quantize=options.quantize,
        kv_dtype=there.kv_dtype,
        kernels=ops.isa(device, dtype),
        num_threads=threads,
        cpu=machine.read_cpu().name,
        device=there.device,
        gpu=torch.cuda.get_device_name(device) if device.type == "cuda" else None,
    )
    work = costs.work(
        num_requests=job.num_requests,
        at_once=min(job.num_requests, options.max_num_seqs),
        prompt_tokens=job.prompt_tokens,
        max_tokens=job.max_tokens,
    )
    yield {
        "found": {
            "runs": [asdict(run) for run in runs],
            "subject": asdict(subject),
            "work": asdict(work),
            "limits": asdict(limits),
        }
    }


def _arithmetic(options: EngineOptions, dtype: torch.dtype, device: torch.device) -> str:
    """Return the type in which kernels multiply, by the format of the weights."""
    if device.type != "cpu":  # where weights become what activations are
        return _name(dtype)
    format = FORMATS.get(options.quantize, ops.float_format(dtype))
    return _name(dtype) if format.inputs is InputRounding.NOTHING else options.activations


class _Requests:
    """Requests of random tokens, never the same again: the prefix cache must not help."""

    def __init__(self, job: Job, llm: inferno.LLM) -> None:
        if job.prompt_tokens + job.max_tokens > llm.max_model_len:
            raise InvalidRequest(
                f"--prompt-tokens {job.prompt_tokens} and --max-tokens {job.max_tokens} don't fit "
                f"into the model's context of {llm.max_model_len} tokens; lower one of them",
                param="max_tokens",
            )
        self._job = job
        self._llm = llm
        self._random = random.Random(job.seed)

    def run(self, *, num_requests: int | None = None, max_tokens: int | None = None) -> Run:
        """Run all requests at once; fewer of them, or shorter, where asked for."""
        job, ids = self._job, range(self._llm.vocab_size)
        prompts = [
            self._random.choices(ids, k=job.prompt_tokens)
            for _ in range(num_requests or job.num_requests)
        ]
        params = SamplingParams(
            temperature=0.0, max_tokens=max_tokens or job.max_tokens, ignore_eos=True, seed=job.seed
        )
        begun = time.perf_counter()
        completions = self._llm.generate(prompts, params)
        total = time.perf_counter() - begun
        for done in completions:
            if done.error is not None:
                raise EngineError(done.error)
        first = min(done.timings.time_to_first_token or total for done in completions)
        proposals = [each for done in completions for each in done.timings.proposals]
        return Run(
            first_token=first,
            total=total,
            num_proposed=sum(each.num_proposed for each in proposals),
            num_accepted=sum(each.num_stood for each in proposals),
        )


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _print(message: dict[str, Any]) -> None:
    print(json.dumps(message), flush=True)


def _leave_with_parent() -> None:
    # Not sys.stdin.read(): a thread that waits in there keeps the interpreter from ending.
    while os.read(sys.stdin.fileno(), 1):
        pass
    os._exit(1)


if __name__ == "__main__":
    main()
