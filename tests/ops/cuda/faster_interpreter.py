"""Have Triton's interpreter do the same in less time: most of it went into what has no effect.

What the interpreter patches and checks is left as it was where Triton's names are others.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

from triton.language import core
from triton.runtime import interpreter


def install() -> None:
    """Replace what is slow, for all kernels of this process."""
    if hasattr(interpreter, "_patch_builtin") and hasattr(interpreter, "_LangPatchScope"):
        interpreter._patch_builtin = _patch_builtins
        if hasattr(interpreter, "_patch_lang"):
            interpreter._patch_lang = _once_per_launch(interpreter._patch_lang)
    if hasattr(interpreter, "_get_np_dtype"):
        interpreter._get_np_dtype = _by_name(interpreter._get_np_dtype)
    _remember(core.tensor, ("handle", "type"), lambda handle, type: type.name)
    _remember(core.block_type, ("element_ty",), lambda element, shape: (element.name, *shape))
    builder = getattr(interpreter, "interpreter_builder", None)
    options = getattr(builder, "options", None)
    # Without `debug`, sums of integers are checked for overflow and what is found is thrown away.
    if builder and options and hasattr(options, "sanitize_overflow") and not options.debug:
        builder.options = replace(options, sanitize_overflow=False)


@cache
def _names_of_builtins(package: Any) -> tuple[str, ...]:
    return tuple(name for name, one in inspect.getmembers(package) if core.is_builtin(one))


def _patch_builtins(package: Any, builder: Any, scope: Any) -> None:
    """Patch what the interpreter patches, by names that are looked up once.

    The interpreter looks through all names of its language for each launch.
    """
    for name in _names_of_builtins(package):
        member = getattr(package, name)
        if core.is_builtin(member):  # one that is patched already is none
            interpreter._patch_attr(package, name, member, builder, scope)


def _once_per_launch(patch: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Patch nothing again whenever one function calls another: its launch has patched it."""

    @cache
    def languages(fn: Any) -> tuple[Any, ...]:
        modules = filter(inspect.ismodule, fn.__globals__.values())
        return tuple(module for module in modules if module in (interpreter.tl, core))

    def patch_once(fn: Any) -> Any:
        some = (core.tensor.__add__, *(language.load for language in languages(fn)))
        if any(map(core.is_builtin, some)):
            return patch(fn)
        return interpreter._LangPatchScope()

    return patch_once


def _by_name(find: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Keep what is found for a type of that name."""
    found: dict[str, Any] = {}

    def look_up(dtype: Any) -> Any:
        kept = found.get(dtype.name)
        if kept is None:
            kept = found[dtype.name] = find(dtype)
        return kept

    return look_up


def _remember(kind: Any, same: tuple[str, ...], key: Callable[..., Any]) -> None:
    """Give an object what one of the same key was given, except its first arguments themselves.

    Every result of an operation is a tensor with a type, and each has its shape in several objects.
    """
    make = kind.__init__
    known: dict[Any, dict[str, Any]] = {}

    def __init__(self: Any, *given: Any, **named: Any) -> None:
        if named:
            make(self, *given, **named)
            return
        kept = known.get(key(*given))
        if kept is None:
            make(self, *given)
            known[key(*given)] = {name: x for name, x in vars(self).items() if name not in same}
        else:
            vars(self).update(kept, **dict(zip(same, given, strict=False)))

    kind.__init__ = __init__
