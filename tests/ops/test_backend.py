"""Every backend has every function of the contract, as `ops` offers it."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import pytest

from inferno import ops
from inferno.ops.backend import (
    Backend,
    CollectiveOps,
    ForwardOps,
    Memory,
    TokenOps,
    functions_of,
)

PARTS = (ForwardOps, TokenOps, CollectiveOps, Memory)
FUNCTIONS = [(part, name) for part in PARTS for name in functions_of(part)]
EVERY_FUNCTION = pytest.mark.parametrize(
    ("part", "name"), FUNCTIONS, ids=[name for _, name in FUNCTIONS]
)
BACKENDS = {backend.__name__: backend for backend in ops.BACKENDS.values()}

Parameter = tuple[str, Any, Any]


def parameters(function: Callable[..., Any]) -> list[Parameter]:
    """Names, kinds and defaults; types are the type checker's."""
    found = inspect.signature(function).parameters.values()
    return [(each.name, each.kind, each.default) for each in found if each.name != "self"]


def test_the_parts_are_apart_and_make_up_the_backend() -> None:
    names = [name for _, name in FUNCTIONS]
    assert len(set(names)) == len(names)
    assert set(names) == {name for name in dir(Backend) if not name.startswith("_")}


@EVERY_FUNCTION
@pytest.mark.parametrize("backend", BACKENDS.values(), ids=BACKENDS)
def test_a_backend_takes_what_the_contract_says(backend: Backend, part: type, name: str) -> None:
    assert parameters(getattr(backend, name)) == parameters(getattr(part, name))


@EVERY_FUNCTION
def test_callers_give_the_same_and_a_device_where_no_tensor_tells_it(part: type, name: str) -> None:
    offered = parameters(getattr(ops, name))
    kept = parameters(getattr(part, name))
    assert kept in (offered, [each for each in offered if each[0] != "device"])


@EVERY_FUNCTION
def test_every_function_is_explained_where_it_is_offered(part: type, name: str) -> None:
    assert inspect.getdoc(getattr(ops, name))
    assert name in ops.__all__
