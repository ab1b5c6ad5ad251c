"""NVIDIA's GPUs: which can be used, what memory they have, and whether one was lost.

A GPU that can't be used is refused in one line, before anything is loaded. It is never replaced by
another device: a model that runs on the CPU by surprise is a hundred times slower.
"""

from __future__ import annotations

import math
import os
import re
import tempfile
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch

from inferno.errors import DeviceUnavailable
from inferno.ops import KernelContext
from inferno.ops.dispatch import has_triton
from inferno.plan.devices import CONTEXT_BYTES

# Tensor cores that multiply bfloat16, and copies to shared memory that go on beside arithmetic.
LEAST_CAPABILITY = (8, 0)
_VISIBLE = "CUDA_VISIBLE_DEVICES"
# What PyTorch, and why_no_cuda, say where CUDA works and has no GPU. Other words are of faults.
_NO_GPU = "no GPU is found"
_NONE_FOUND = ("No CUDA GPUs are available", "no CUDA-capable device is detected", _NO_GPU)
_CACHE = "TRITON_CACHE_DIR"
_MOST_WORDS = 300
_COPY_BYTES, _COPIES = 1 << 30, 10  # far more than any cache of a GPU; the first ones are slow
# The words of errors after which each further call of this process fails, as CUDA's runtime and
# driver, and libraries above them, write them.
_LOST = re.compile(
    r"device-side assert|illegal (?:memory access|instruction|address)|launch failure|misaligned"
    r"|uncorrectable (?:ECC|NVLink)|hardware (?:stack )?error|invalid program counter"
    r"|address space|launch timed out|fallen off|context is destroyed|device is lost"
    r"|invalid device context|driver shutting down|system not (?:yet )?(?:ready|initialized)"
    r"|unknown error|EXECUTION_FAILED",
    re.IGNORECASE,
)
_OF_CUDA = re.compile(r"\bCUDA\b|\bcu(?:BLAS|DNN)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class GpuMemory:
    """The bytes of a GPU's memory: all, the free ones, and those that this process holds."""

    total: int
    free: int
    own: int

    @property
    def others(self) -> int:
        """Return about how many bytes other processes hold; CUDA's own part isn't known."""
        return max(0, self.total - self.free - self.own)


def find_gpu(name: str) -> torch.device:
    """Return the GPU of that name, such as cuda:1; DeviceUnavailable says why there is none."""
    index = torch.device(name).index or 0
    problem = why_no_cuda() or _why_not_that(index) or _why_not_this_chip(index) or why_no_kernels()
    if problem is not None:
        raise DeviceUnavailable(f"{name} was asked for, but {problem}, or use --device cpu.")
    return torch.device("cuda", index)


def why_no_cuda() -> str | None:
    """Return why no GPU can be used, and what to do; None where one can."""
    if torch.version.cuda is None:
        return (
            f"this PyTorch, {torch.__version__}, has no CUDA: install one that has, with `pip "
            "install --force-reinstall torch` (https://pytorch.org/get-started/locally has others)"
        )
    try:
        torch.cuda.init()  # type: ignore[no-untyped-call]
        if torch.cuda.device_count():
            return None
        words = _NO_GPU
    except (RuntimeError, AssertionError) as problem:
        words = _first_words(problem)
    if "too old" in words:
        return (
            f"the NVIDIA driver is too old for this PyTorch, which has CUDA {torch.version.cuda} "
            f"({_found_version(words)}): update the driver, or install a PyTorch for an older CUDA"
        )
    if "no NVIDIA driver" in words:
        return "there is no NVIDIA driver: install it, or give the container its GPUs (--gpus all)"
    hidden = _why_hidden() if any(some in words for some in _NONE_FOUND) else None
    return hidden or f"CUDA does not start ({words}): see what nvidia-smi says"


def why_no_kernels() -> str | None:
    """Return why kernels can't be compiled for a GPU, and what to do; None where it works."""
    if not has_triton():
        return "Triton, which compiles its kernels, is not installed: pip install triton"
    folder = triton_folder()
    # Triton makes the folder, so what counts is the nearest one that is there.
    there = next((path for path in (folder, *folder.parents) if os.path.exists(path)), Path("."))
    try:
        with tempfile.TemporaryFile(dir=there):  # permissions lie about /proc and the like
            return None
    except OSError as problem:
        return (
            f"Triton keeps compiled kernels in {folder}, where no file can be made "
            f"({problem.strerror}): set {_CACHE} to a folder that can be written"
        )


def triton_folder() -> Path:
    """Return the folder in which Triton keeps compiled kernels, by its own rules."""
    if named := os.environ.get(_CACHE):
        return Path(named)
    return Path(os.environ.get("TRITON_HOME") or os.path.expanduser("~")) / ".triton" / "cache"


def gpu_memory(device: torch.device) -> GpuMemory:
    """Return a GPU's memory as it is now."""
    free, total = torch.cuda.mem_get_info(device)
    return GpuMemory(total, free, CONTEXT_BYTES + torch.cuda.memory_reserved(device))


class OnGpu:
    """A kernel context that also selects the GPU on which the thread launches its kernels.

    Kernels in Triton, streams and graphs go to the GPU that a thread has selected, wherever their
    tensors lie.
    """

    def __init__(self, device: torch.device, inner: KernelContext) -> None:
        self._device = device
        self._inner = inner
        self._before: list[int] = []

    def __enter__(self) -> object:
        before = torch.cuda.current_device()
        torch.cuda.set_device(self._device)
        try:
            entered = self._inner.__enter__()
        except BaseException:  # another thread has it, or memory ran out
            torch.cuda.set_device(before)
            raise
        self._before.append(before)
        return entered

    def __exit__(self, *problem: object) -> None:
        self._inner.__exit__(*problem)
        torch.cuda.set_device(self._before.pop())

    def release_memory(self) -> None:
        """Give free memory of the host back to the system; a GPU's memory stays with the engine."""
        self._inner.release_memory()


def copy_bandwidth(device: torch.device) -> float:
    """Measure how many bytes a second a GPU copies within its memory, reads and writes counted."""
    free, _ = torch.cuda.mem_get_info(device)
    num_bytes = min(_COPY_BYTES, free // 8)
    with torch.cuda.device(device):
        source = torch.zeros(num_bytes, dtype=torch.uint8, device=device)
        target = torch.empty_like(source)
        start, end = (
            torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
            for _ in range(2)
        )
        best = math.inf
        for _ in range(_COPIES):
            start.record()
            target.copy_(source)
            end.record()
            end.synchronize()
            best = min(best, start.elapsed_time(end))
    return 2 * num_bytes / (best / 1000)


def peak_of(device: torch.device, function: Callable[[], object]) -> int:
    """Return by how much the memory that a GPU had reserved grew at most while a function ran."""
    torch.cuda.synchronize(device)
    torch.cuda.empty_cache()
    before = torch.cuda.memory_reserved(device)
    torch.cuda.reset_peak_memory_stats(device)
    function()
    torch.cuda.synchronize(device)
    return max(0, torch.cuda.max_memory_reserved(device) - before)


def is_device_lost(problem: BaseException | None) -> bool:
    """Return whether an error means that this process can't use its GPU any more.

    After such an error CUDA gives the same error to each call, until the process ends.
    """
    while problem is not None:
        words = str(problem)
        is_of_cuda = isinstance(problem, torch.AcceleratorError) or _OF_CUDA.search(words)
        if isinstance(problem, RuntimeError) and is_of_cuda and _LOST.search(words):
            return True
        problem = problem.__cause__ or problem.__context__
    return False


def free_after(problem: BaseException) -> None:
    """Free the memory that a failed step has left: the frames of its error keep tensors alive."""
    traceback.clear_frames(problem.__traceback__)
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        torch.cuda.empty_cache()


def _why_hidden() -> str | None:
    """Return how the environment hides all GPUs, if it does."""
    shown = os.environ.get(_VISIBLE)
    if shown is None:
        return None
    if not shown.strip():
        found = f"{_VISIBLE} is empty, which hides every GPU"
    elif shown.strip().startswith("-"):
        found = f"{_VISIBLE} is {_quoted(shown)}, which hides every GPU"
    else:
        found = f"{_VISIBLE} is {_quoted(shown)}, which names no GPU of this machine"
    return f"{found}: unset it, or set it to a number that `nvidia-smi -L` lists"


def _why_not_that(index: int) -> str | None:
    count = torch.cuda.device_count()
    if index < count:
        return None
    shown = os.environ.get(_VISIBLE)
    of_those = "" if shown is None else f" that {_VISIBLE}={_quoted(shown)} leaves"
    there = "is 1 CUDA device" if count == 1 else f"are {count} CUDA devices"
    names = "cuda:0" if count == 1 else f"cuda:0 to cuda:{count - 1}"
    return f"there {there}{of_those}: choose {names}"


def _why_not_this_chip(index: int) -> str | None:
    try:
        found = torch.cuda.get_device_properties(index)
        torch.cuda.mem_get_info(index)  # which makes CUDA's context, so a GPU in use says so
    except (RuntimeError, AssertionError) as problem:
        return (
            f"it does not answer ({_first_words(problem)}): see in nvidia-smi who uses it, and "
            "choose another"
        )
    if (found.major, found.minor) >= LEAST_CAPABILITY:
        return None
    least = ".".join(map(str, LEAST_CAPABILITY))
    return (
        f"it is a {found.name} of compute capability {found.major}.{found.minor}, and the kernels "
        f"need {least} (Ampere, such as an A100) or newer: choose another GPU"
    )


def _found_version(words: str) -> str:
    """Return what PyTorch says of the driver, whose version it gives as a number such as 11040."""
    found = re.search(r"found version (\d+)", words)
    if found is None:
        return words
    version = int(found[1])
    return f"the driver knows CUDA up to {version // 1000}.{version % 1000 // 10}"


def _first_words(problem: BaseException) -> str:
    return " ".join(str(problem).split("\n")[0].split())[:_MOST_WORDS].rstrip(".")


def _quoted(value: str) -> str:
    return repr(value[:64])
