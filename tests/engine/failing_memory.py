"""Steps from which memory is withheld: in a process of its own.

    python -m tests.engine.failing_memory DENSE MIXTURE

Runs under a preloaded library that refuses one allocation of the kernels' module at a time. Each of
them, or some that are spread evenly over all, must end the requests with an error, and leave an
engine that gives what it gave before. Prints by case what the requests ended with.
"""

from __future__ import annotations

import ctypes
import json
import sys
from pathlib import Path

from inferno import _native
from inferno.engine.build import build_engine
from inferno.engine.engine import Engine
from inferno.options import EngineOptions
from inferno.requests import FinishReason, Request, SamplingParams
from tests.engine.local import executor_of

refuser = ctypes.CDLL(None)
refuser.refuse_after.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_long)
refuser.refuse_after.restype = None
refuser.stop_refusing.restype = ctypes.c_bool
refuser.num_still_granted.restype = ctypes.c_long
_MANY = 1 << 40

Outcome = tuple[list[int], list[object], str | None]


def code_of(module: str) -> tuple[int, int]:
    """Where the instructions of a loaded library lie."""
    for line in Path("/proc/self/maps").read_text().splitlines():
        places, permissions, *_, name = line.split()
        if name == module and "x" in permissions:
            begin, end = (int(place, 16) for place in places.split("-"))
            return begin, end
    raise AssertionError(f"{module} is not loaded")


def build(folder: Path, quantize: str) -> Engine:
    return build_engine(
        EngineOptions(model=folder, threads=2, num_blocks=40, quantize=quantize, prefix_cache=False)
    )


def run(engine: Engine) -> Outcome:
    """The tokens of a prompt of many and of a few, and the error, if there is one."""
    params = SamplingParams(seed=3, max_tokens=3, logprobs=2, top_p=0.9, ignore_eos=True)
    prompts = {"long": tuple(range(3, 93)), "short": (5, 6, 7)}
    for name, prompt in prompts.items():
        engine.add_request(Request(request_id=name, prompt_token_ids=prompt, params=params))
    tokens: list[int] = []
    logprobs: list[object] = []
    error: str | None = None
    while engine.has_work:
        for event in engine.step():
            tokens += event.token_ids
            logprobs += event.logprobs or ()
            if event.finish_reason is FinishReason.ERROR:
                error = event.error
    return tokens, logprobs, error


def refuse_memory(folder: Path, quantize: str, most: int) -> list[str | None]:
    """Return what requests ended with, for each allocation that was refused."""
    begin, end = code_of(_native.__file__)
    expected = run(build(folder, quantize))
    assert expected[2] is None
    engine = build(folder, quantize)
    refuser.refuse_after(begin, end, _MANY)
    run(engine)
    num_allocations = _MANY - refuser.num_still_granted()
    refuser.stop_refusing()
    errors: list[str | None] = []
    for index in range(0, num_allocations, -(-num_allocations // most)):
        engine = build(folder, quantize)
        refuser.refuse_after(begin, end, index)
        outcome = run(engine)
        if refuser.stop_refusing():
            errors.append(outcome[2])
        assert outcome == expected or outcome[2] is not None, outcome
        assert run(engine) == expected, index
    return errors


def refuse_threads(folder: Path) -> list[str | None]:
    """Have a thread refused, which fails the step and no later one; return the error."""
    expected = run(build(folder, "none"))
    context = _native.KernelContext(3)  # one more than the pool has
    engine = build(folder, "none")
    executor_of(engine)._kernels = context
    refuser.refuse_threads(True)
    error = run(engine)[2]
    refuser.refuse_threads(False)
    assert run(engine) == expected
    return [error]


def main(dense: Path, mixture: Path) -> None:
    errors = {
        "none": refuse_memory(dense, "none", 40),
        "int4": refuse_memory(dense, "int4", 40),
        "mixture": refuse_memory(mixture, "none", 40),
        "threads": refuse_threads(dense),
    }
    _native.set_isa("scalar")  # for all engines that come after
    errors["int8, scalar"] = refuse_memory(dense, "int8", 5)
    print(json.dumps(errors))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
