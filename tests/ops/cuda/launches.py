"""What a launch has Triton compile, told without a compiler; and what is listed, in the same words.

A form has no sizes of a model's own: not even whether they are multiples of 16.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from typing import Any, NamedTuple

from triton.backends.compiler import GPUTarget
from triton.backends.nvidia.compiler import CUDABackend
from triton.runtime import jit
from triton.runtime.interpreter import InterpretedFunction

from inferno.ops.cuda.chips import Chip
from inferno.ops.cuda.shipped import shipped_variants
from inferno.ops.cuda.variants import Variant

_DEFAULTS = {"num_warps": 4, "num_stages": 3, "enable_fp_fusion": True}


class Form(NamedTuple):
    """A kernel, its arguments' types, or values where they are constants, and Triton's options."""

    kernel: str
    arguments: tuple[tuple[str, object], ...]
    options: tuple[tuple[str, object], ...]


class Bound(NamedTuple):
    """A launch's arguments by name; each one's type and its mark, or its value; and options."""

    arguments: Mapping[str, Any]
    specialization: tuple[tuple[Any, ...], ...]
    options: Mapping[str, Any]


def bind(kernel: Any, args: Any, kwargs: Any) -> Bound:
    """Return what a launch with such arguments is compiled for."""
    bound, specialization, options = _binder(kernel)(*args, **kwargs)
    return Bound(bound, tuple(map(tuple, specialization)), options)


@cache
def _binder(kernel: Any) -> Callable[..., Any]:
    """Return Triton's function from a launch's arguments to what they are compiled for."""
    signature = inspect.signature(kernel.fn)
    numbers, arrays = (
        kernel.kwargs.get(name) or ()
        for name in ("do_not_specialize", "do_not_specialize_on_alignment")
    )
    parameters = [
        jit.KernelParam(i, each, each.name in numbers, each.name in arrays)
        for i, each in enumerate(signature.parameters.values())
    ]
    backend = CUDABackend(GPUTarget("cuda", 90, 32))
    binder: Callable[..., Any] = jit.create_function_from_signature(signature, parameters, backend)
    return binder


def launched_form(kernel: Any, args: Any, kwargs: Any) -> Form:
    """Return the form of a launch."""
    bound = bind(kernel, args, kwargs)
    constants = {
        name for name, kind in kernel.fn.__annotations__.items() if "constexpr" in str(kind)
    }
    arguments: dict[str, object] = {}
    for (name, value), (type_name, *_) in zip(
        bound.arguments.items(), bound.specialization, strict=True
    ):
        is_constant = name in constants or value is None
        # A number that is 1 is a constant for Triton, and a number like any other here.
        arguments[name] = value if is_constant else type_name.replace("constexpr", "i32")
    return _form(kernel, arguments, {name: kwargs.get(name, _DEFAULTS[name]) for name in _DEFAULTS})


def listed_form(variant: Variant) -> Form:
    """Return the form of what is listed."""
    types = {name: kind.split(":")[0] for name, kind in variant.signature.items()}
    options = {
        "num_warps": variant.num_warps,
        "num_stages": variant.num_stages,
        "enable_fp_fusion": variant.has_fused_multiply_add,
    }
    return _form(variant.kernel, {**types, **variant.constants}, options)


def _form(kernel: Any, arguments: Mapping[str, object], options: Mapping[str, object]) -> Form:
    return Form(kernel.fn.__name__, tuple(sorted(arguments.items())), tuple(options.items()))


@contextmanager
def noted_launches(*, are_run: bool = True) -> Iterator[set[Form]]:
    """Yield the forms of the kernels that are launched meanwhile; are_run: interpreted as well."""
    launched: set[Form] = set()
    run = InterpretedFunction.run

    def noted(kernel: Any, *args: Any, grid: Any, warmup: bool, **kwargs: Any) -> None:
        launched.add(launched_form(kernel, args, kwargs))
        if are_run:
            run(kernel, *args, grid=grid, warmup=warmup, **kwargs)

    InterpretedFunction.run = noted
    try:
        yield launched
    finally:
        InterpretedFunction.run = run


@cache
def listed_forms(chip: Chip) -> frozenset[Form]:
    """Return the forms of all kernels that are listed for a chip."""
    return frozenset(map(listed_form, shipped_variants(chip)))
