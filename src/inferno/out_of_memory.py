"""Tell a lack of memory from other problems, and say what to do about it.

Python raises MemoryError; PyTorch, the loader of libraries and the system have words of their own.
"""

from __future__ import annotations

import errno
import re

from inferno import machine
from inferno.errors import NotEnoughMemory

# With less of an address space not even the smallest model is loaded (it takes 780 MiB); and where
# memory runs out in libraries, some crash, some wait for ever: seen from 614 to 645 MiB. Measured
# with PyTorch for the CPU, on two cores.
LEAST_ADDRESS_SPACE = 700 << 20
EXIT_CODE = 71  # of an engine's process that lacks the memory to start; EX_OSERR of sysexits.h
RESERVE_BYTES = 4 << 20  # kept by a process to say something with, once all else is taken
_KINDS = (ImportError, RuntimeError, OSError, SystemError)
_WORDS = re.compile(
    r"failed to map segment|(?:can't|cannot|could not|unable to) (?:allocate|reserve)"
    r"|not enough memory|out[ _]of[ _]memory|STATUS_ALLOC_FAILED|bad_alloc"
    r"|can't start (?:new|a) thread",
    re.IGNORECASE,
)
_MOST_WORDS = 200


def is_out_of_memory(problem: BaseException | None) -> bool:
    """Return whether an error, or one of its causes, means that memory ran out."""
    while problem is not None:
        if isinstance(problem, MemoryError) or getattr(problem, "errno", None) == errno.ENOMEM:
            return True
        if isinstance(problem, _KINDS) and _WORDS.search(str(problem)):
            return True
        # CPython's own words where memory ran out in C code that forgot to say so.
        is_silent = isinstance(problem, SystemError) and "without exception set" in str(problem)
        if is_silent and machine.address_space_limit() is not None:
            return True
        problem = problem.__cause__ or problem.__context__
    return False


def out_of_memory(problem: BaseException | None = None) -> NotEnoughMemory:
    """Return an error that says how much memory there is, and what to do."""
    return NotEnoughMemory(
        f"memory ran out{_detail(problem)}: {_what_there_is()}; raise that, end other programs, or "
        "choose a smaller model"
    )


def in_a_step(problem: BaseException) -> str:
    """Return the advice for requests of a step in which memory ran out."""
    is_gpu = "CUDA" in str(problem)
    last = " or --gpu-memory-utilization" if is_gpu else ""
    return (
        f"memory ran out{_detail(problem)}; try again, or start with a lower "
        f"--max-num-batched-tokens{last}"
    )


def check_address_space() -> None:
    """Raise NotEnoughMemory where this process may not take the memory that PyTorch needs."""
    limit = machine.address_space_limit()
    if limit is not None and limit < LEAST_ADDRESS_SPACE:
        raise out_of_memory()


def _detail(problem: BaseException | None) -> str:
    words = " ".join(str(problem or "").split())[:_MOST_WORDS].rstrip(".")
    return f" ({words})" if words else ""


def _what_there_is() -> str:
    address_space, group = machine.address_space_limit(), machine.memory_limit()
    if address_space is not None:
        return f"this process may take {_gib(address_space)} (`ulimit -v`)"
    if group is not None:
        return f"its control group may take {_gib(group)}"
    return f"the machine has {_gib(machine.total_memory())}"


def _gib(num_bytes: int | None) -> str:
    return "an unknown amount" if num_bytes is None else f"{num_bytes / 2**30:.2f} GiB"
