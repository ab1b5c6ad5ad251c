"""Whole models on a GPU: one request alone, many at once, and `transformers` beside them."""

from __future__ import annotations

import gc
import json
import random
import statistics
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import torch
from gpu_timing import Bench, Figure
from peer_shapes import CONFIGS, Config
from torch._C._autograd import DeviceType

from inferno.bench.roofline import model_costs
from inferno.engine.build import build_engine
from inferno.engine.engine import Engine
from inferno.engine.execution.gpu import is_device_lost
from inferno.options import EngineOptions
from inferno.requests import Request, SamplingParams

_CONTEXT = 512
_STEPS = 128
_THROUGHPUT_REQUESTS, _SHORTEST, _LONGEST = 256, 100, 1024
_TRIED_TOKENS = 32  # of `transformers`, to find its best batch
_PEER_BATCHES = (64, 128, 256)
_ENGINES_SHARE = 0.6  # of the GPU's memory
# Of each model how it is quantized, and the least fraction of what a copy would take for its bytes.
_MODELS: dict[str, tuple[tuple[str, float | None], ...]] = {
    "Qwen3-0.6B": (("none", 0.40),),
    "Llama-3.1-8B": (("none", 0.75), ("int4", None)),
    "gpt-oss-20b": (("none", 0.45),),
}
_TINY_MODELS = {"Qwen3-0.6B": "tiny-qwen3", "gpt-oss-20b": "tiny-gpt-oss"}
_INT4_BAR = 2.2
_INVARIANT_MODEL = "Qwen3-0.6B"
_PROMPTS = 5
_HOST_STEPS, _HOST_BAR = 48, 4.0  # the host's part is at most a quarter of a step


def model_figures(bench: Bench, name: str) -> Iterator[Figure]:
    """Yield the speed of one request alone, as a fraction of reading its bytes once a token."""
    plain: float | None = None
    model = name if bench.is_gpu else _TINY_MODELS.get(name)
    if model is None:
        yield Figure(name, "on a GPU only")
        return
    for quantize, bar in _MODELS[name]:
        options = _options(bench, model, quantize, num_blocks=_CONTEXT // 8)
        spent = _spent(bench, options)
        seconds = spent.step
        costs = model_costs(options, torch.bfloat16, torch.bfloat16)
        num_bytes = costs.weight_bytes(1) + costs.kv_bytes(_CONTEXT + _STEPS // 2)
        label = f"{model}{'' if quantize == 'none' else ', ' + quantize}, batch 1"
        yield Figure(
            label,
            f"{1 / seconds:.0f} tokens/s, {seconds * 1e3:.2f} ms; ready in {spent.start:.1f} s",
            round(num_bytes / seconds / bench.limits.copy_bandwidth, 3),
            "of a copy",
            bar,
        )
        if quantize == "none":
            plain = seconds
        elif plain is not None:
            yield Figure(label, "", round(plain / seconds, 2), "bfloat16", _INT4_BAR)


def invariant_figures(bench: Bench) -> Iterator[Figure]:
    """Yield what the same bits in any batch cost: speeds beside those without."""
    if not bench.is_gpu:
        yield Figure(_INVARIANT_MODEL, "on a GPU only")
        return
    options = _options(bench, _INVARIANT_MODEL, "none", num_blocks=_CONTEXT // 8)
    plain, spent = (_spent(bench, replace(options, batch_invariant=on)) for on in (False, True))
    for what, own, other in (
        ("decode", spent.step, plain.step),
        (f"prompt of {_CONTEXT}", spent.prompt, plain.prompt),
    ):
        yield Figure(
            f"{_INVARIANT_MODEL}, batch-invariant {what}",
            f"{own * 1e3:.2f} ms",
            round(other / own, 3),
            "of the speed without",
        )


def throughput_figures(bench: Bench) -> Iterator[Figure]:
    """Yield the tokens a second of many requests, beside `transformers` and the device's work."""
    name = "Qwen3-0.6B" if bench.is_gpu else "tiny-qwen3"
    draw = random.Random(1)
    count = _THROUGHPUT_REQUESTS if bench.is_gpu else 2
    least, most = (_SHORTEST, _LONGEST) if bench.is_gpu else (3, 6)
    lengths = [(draw.randint(least, most), draw.randint(least, most)) for _ in range(count)]
    options = replace(
        _options(bench, name, "none", num_blocks=None),
        # Else steps would be captured while they are timed. `transformers` needs memory after it.
        capture_graphs="start" if bench.is_gpu else "lazy",
        gpu_memory_utilization=_ENGINES_SHARE if bench.is_gpu else None,
        max_num_seqs=count,
    )
    begun = time.perf_counter()
    engine = build_engine(options)
    label = f"{name}, {count} requests, {least} to {most} in and out"
    yield Figure(label, f"ready, with graphs, in {time.perf_counter() - begun:.1f} s")
    _run(engine, lengths[:8])
    begun = time.perf_counter()
    num_tokens = _run(engine, lengths)
    speed = num_tokens / (time.perf_counter() - begun)
    yield Figure(label, f"{speed:.0f} tokens/s")
    if bench.is_gpu:
        try:
            busy = _busy_share(engine, lengths)
            yield Figure(label, "", round(busy, 3), "of the time is kernels'", 0.85)
        except RuntimeError as problem:
            if is_device_lost(problem):
                raise
            yield Figure(label, f"the profiler failed: {problem}")
        host, step = _host_seconds(engine, count)
        yield Figure(
            f"{name}, {count} greedy streams, the host's part of a step",
            f"{host * 1e3:.2f} ms of {step * 1e3:.2f} ms",
            round(step / max(host, 1e-9), 2),
            "times it is a step",
            _HOST_BAR,
        )
    engine.close()
    del engine
    free()
    peer = _transformers_speed(bench, options.model, lengths)
    yield Figure(label, f"{speed:.0f} tokens/s", round(speed / peer, 2), "transformers", 8.0)


def _options(bench: Bench, name: str, quantize: str, num_blocks: int | None) -> EngineOptions:
    folder = bench.folder / name
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(CONFIGS[name]))
    return EngineOptions(
        model=folder,
        device=str(bench.device),
        load_format="dummy",
        dtype="bfloat16" if bench.is_gpu else "float32",
        quantize=quantize,
        num_blocks=num_blocks,
        max_model_len=2 * _LONGEST if bench.is_gpu else 4 * _CONTEXT,
        prefix_cache=False,
        speculative="off",
    )


class _Spent(NamedTuple):
    """The median time of a step of one request, of its prompt, and until the engine was ready."""

    step: float
    prompt: float
    start: float


def _spent(bench: Bench, options: EngineOptions) -> _Spent:
    begun = time.perf_counter()
    engine = build_engine(options)
    start = time.perf_counter() - begun
    context, steps = (_CONTEXT, _STEPS) if bench.is_gpu else (8, 3)
    _add(engine, context, steps)
    engine.step()  # the prompt
    for _ in range(min(16, steps // 2)):  # compile, capture
        engine.step()
    taken = []
    while engine.has_work:
        begun = time.perf_counter()
        engine.step()
        taken.append(time.perf_counter() - begun)
    prompts = []
    for _ in range(_PROMPTS if bench.is_gpu else 1):
        begun = time.perf_counter()
        _run(engine, [(context, 1)])
        prompts.append(time.perf_counter() - begun)
    engine.close()
    del engine
    free()
    return _Spent(statistics.median(taken), statistics.median(prompts), start)


def _add(engine: Engine, num_prompt: int, num_output: int) -> None:
    ids = tuple(torch.randint(engine.vocab_size, (num_prompt,)).tolist())
    params = SamplingParams(temperature=0.0, max_tokens=num_output, ignore_eos=True)
    request = Request(request_id=str(time.perf_counter_ns()), prompt_token_ids=ids, params=params)
    engine.add_request(request)


def _run(engine: Engine, lengths: list[tuple[int, int]]) -> int:
    """Run requests of these lengths to their ends; return how many tokens they got."""
    for num_prompt, num_output in lengths:
        _add(engine, num_prompt, num_output)
    num_tokens = 0
    while engine.has_work:
        num_tokens += sum(len(event.token_ids) for event in engine.step())
    return num_tokens


def _busy_share(engine: Engine, lengths: list[tuple[int, int]]) -> float:
    """Return the share of a run's time in which kernels are at work, by CUPTI's records."""
    few = [(num_prompt, min(64, num_output)) for num_prompt, num_output in lengths]
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profiler:
        begun = time.perf_counter()
        _run(engine, few)
        seconds = time.perf_counter() - begun
    # What the host did for a kernel may have the kernel's time as well.
    of_kernels = [
        float(event.self_device_time_total)
        for event in profiler.key_averages()
        if event.device_type == DeviceType.CUDA
    ]
    return sum(of_kernels) / 1e6 / seconds


def _host_seconds(engine: Engine, num_streams: int) -> tuple[float, float]:
    """Return the median times of a step of so many streams: the host's without waits, and all."""
    waits: list[float] = []
    synchronize = torch.cuda.Event.synchronize

    def timed(event: torch.cuda.Event) -> None:
        begun = time.perf_counter()
        synchronize(event)
        waits.append(time.perf_counter() - begun)

    for _ in range(num_streams):
        _add(engine, _SHORTEST, 2 * _HOST_STEPS)
    hosts: list[float] = []
    steps: list[float] = []
    torch.cuda.Event.synchronize = timed  # type: ignore[method-assign, assignment]
    try:
        while engine.has_work:
            waits.clear()
            begun = time.perf_counter()
            num_told = len(engine.step())
            seconds = time.perf_counter() - begun
            if num_told == num_streams and len(steps) < _HOST_STEPS:
                steps.append(seconds)
                hosts.append(seconds - sum(waits))
    finally:
        torch.cuda.Event.synchronize = synchronize  # type: ignore[method-assign]
    return statistics.median(hosts), statistics.median(steps)


def _transformers_speed(bench: Bench, folder: Path, lengths: list[tuple[int, int]]) -> float:
    """Return the tokens a second of `generate` for the same work, at its best batch.

    A batch lasts until its longest output ends; what others get beyond theirs doesn't count.
    """
    from transformers import AutoConfig, AutoModelForCausalLM  # noqa: PLC0415 - slow to import

    config: Config = {**json.loads((folder / "config.json").read_text()), "model_type": "qwen3"}
    (folder / "config.json").write_text(json.dumps(config))
    dtype = torch.bfloat16 if bench.is_gpu else torch.float32
    with torch.device(bench.device):
        model = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(folder), dtype=dtype)
    model.eval()

    def seconds(batch: list[tuple[int, int]], num_output: int) -> float:
        width = max(num_prompt for num_prompt, _ in batch)
        ids = torch.randint(
            CONFIGS["tiny-qwen3"]["vocab_size"], (len(batch), width), device=bench.device
        )
        mask = torch.ones_like(ids)
        for row, (num_prompt, _) in enumerate(batch):
            mask[row, : width - num_prompt] = 0  # padded on the left
        begun = time.perf_counter()
        with torch.inference_mode():
            model.generate(
                ids,
                attention_mask=mask,
                do_sample=False,
                min_new_tokens=num_output,
                max_new_tokens=num_output,
                pad_token_id=0,
            )
        if bench.is_gpu:
            torch.cuda.synchronize(bench.device)
        return time.perf_counter() - begun

    def speed_of(size: int) -> float:
        """Return the speed of one batch, told from a short run and the outputs' lengths."""
        batch = lengths[:size]
        short = seconds(batch, 2)
        longer = seconds(batch, _TRIED_TOKENS if bench.is_gpu else 4)
        step = (longer - short) / ((_TRIED_TOKENS if bench.is_gpu else 4) - 2)
        whole = short + step * max(num_output for _, num_output in batch)
        return sum(num_output for _, num_output in batch) / whole

    seconds(lengths[:2], 2)
    speeds = []
    for size in _PEER_BATCHES if bench.is_gpu else (2,):
        try:
            speeds.append(speed_of(size))
        except torch.OutOfMemoryError:
            break
    return max(speeds)


def free() -> None:
    """Give back memory that nobody uses any more."""
    gc.collect()
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        torch.cuda.empty_cache()
