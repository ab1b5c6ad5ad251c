"""A GPU made of the CPU, for PyTorch's own device `cuda`: kernels are interpreted, tensors say
where they are, and whoever mixes those of both devices is told so, as PyTorch would.

What other fakes can't see is found here: numbers that were made on the CPU by mistake. Its memory
is the CPU's, so all bits are those of the interpreter. Copies and graphs are made at once.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from triton.runtime.interpreter import InterpretedFunction

from inferno import ops
from tests.engine.execution.gpus import fake_gpus
from tests.engine.fake_device import Device, FakeCapture, WaitedFor

CPU, CUDA = torch.device("cpu"), torch.device("cuda", 0)


class CudaTensor(Tensor):
    """A tensor that says it is a GPU's."""

    device = property(lambda self: CUDA)
    is_cuda = property(lambda self: True)
    is_cpu = property(lambda self: False)

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _call(func, args, kwargs or {})


def on_cuda(x: Any) -> bool:
    return isinstance(x, CudaTensor)


# Which take tensors of both, for they copy.
_KINDS = ("cuda", "cpu")
_COPIES = ("copy_", "to", "type_as", "set_", "__setitem__")


def _call(func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    """Call a function of PyTorch with the CPU's memory, and say where its result is."""
    name = getattr(func, "__name__", str(func))
    asked = kwargs.get("device")
    if name == "to":
        asked = next((x for x in args[1:] if _is_device(x)), asked)
        asked = next((x.device for x in args[1:] if isinstance(x, Tensor)), asked)
    target = {"cuda": CUDA, "cpu": CPU}.get(name, None if asked is None else torch.device(asked))
    tensors = list(_tensors((args, kwargs)))
    are_cuda = [on_cuda(x) for x in tensors]
    if name in ("numpy", "__array__") and are_cuda[0]:
        raise TypeError("can't convert cuda:0 device type tensor to numpy.")
    if name == "pin_memory":
        return args[0].clone()
    # A place in a GPU's tensor may be told by numbers of the CPU, which are copied.
    may_mix = name in _COPIES or name == "__getitem__" or all(are_cuda) or not any(are_cuda)
    if not may_mix and any(Tensor.dim(x) for x in tensors if not on_cuda(x)):
        raise RuntimeError(
            "Expected all tensors to be on the same device, but found at least two devices, cuda:0 "
            f"and cpu! (in {name})"
        )
    if target is not None and target.type == "cuda":
        args = tuple(CPU if _is_device(x) else x for x in args)
        kwargs = {**kwargs, **({"device": CPU} if "device" in kwargs else {})}
    is_cuda = any(are_cuda) if target is None else target.type == "cuda"
    if kwargs.pop("pin_memory", False) and is_cuda:
        raise RuntimeError("Only dense CPU tensors can be pinned")
    with torch._C.DisableTorchFunctionSubclass():
        if "out_dtype" in kwargs:  # which CPUs lack
            wide = kwargs.pop("out_dtype")
            args = tuple(x.to(wide) for x in args)
        if name in ("to", "cpu", "cuda") and are_cuda[0] != is_cuda:
            made = func(*args, **kwargs).clone()
        else:
            made = func(*args, **kwargs)
    return _seen(made, is_cuda)


def _is_device(x: Any) -> bool:
    return isinstance(x, torch.device) or (isinstance(x, str) and x.partition(":")[0] in _KINDS)


def _tensors(x: Any) -> Iterator[Tensor]:
    if isinstance(x, Tensor):
        yield x
    elif isinstance(x, dict):
        for each in x.values():
            yield from _tensors(each)
    elif isinstance(x, list | tuple):
        for each in x:
            yield from _tensors(each)


def _seen(x: Any, is_cuda: bool) -> Any:
    if isinstance(x, Tensor):
        if isinstance(x, CudaTensor) == is_cuda:
            return x
        with torch._C.DisableTorchFunctionSubclass():
            return x.as_subclass(CudaTensor if is_cuda else Tensor)
    if isinstance(x, tuple) and hasattr(x, "_fields"):
        return type(x)(*(_seen(each, is_cuda) for each in x))
    if isinstance(x, torch.Size):
        return x
    if isinstance(x, tuple) and type(x).__module__ == "torch.return_types":
        return type(x)([_seen(each, is_cuda) for each in x])
    if isinstance(x, list | tuple):
        return type(x)(_seen(each, is_cuda) for each in x)
    return x


# These need a GPU's numbers on the host before they can go on; so does a choice of rows by bools.
_WAITING = (
    *("item", "tolist", "cpu", "numpy", "__array__", "__bool__", "__int__", "__float__"),
    *("__index__", "__contains__", "equal", "allclose", "nonzero", "argwhere", "masked_select"),
    *("unique", "bincount", "repeat_interleave", "is_nonzero"),
)
_CHOOSING = ("__getitem__", "__setitem__", "index_put_", "index_put")


class Emulation(TorchFunctionMode):
    """Makes what is asked for on a GPU, and looks at all that is done with tensors.

    Notes what makes the host wait for the GPU: reads of its numbers, and copies that aren't begun
    without a wait, or whose memory on the host isn't page-locked.
    """

    def __init__(self, counts: Device) -> None:
        super().__init__()
        self._counts = counts
        self._locked: dict[int, Tensor] = {}  # by the address of their storage, which they keep

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name, asked = getattr(func, "__name__", str(func)), dict(kwargs or {})
        made = _call(func, args, kwargs or {})
        if name == "pin_memory" or asked.get("pin_memory"):
            self._locked[made.untyped_storage().data_ptr()] = made
        elif self._waits(name, args, asked, made):
            self._counts.hidden_waits.append(name)
        if self._counts.is_capturing and isinstance(made, Tensor):
            are_cuda = {on_cuda(x) for x in (made, *_tensors((args, kwargs or {})))}
            if len(are_cuda) > 1 or getattr(func, "__name__", "") == "tensor":
                raise WaitedFor(
                    "Cannot copy between CPU and CUDA tensors during CUDA graph capture unless the "
                    f"CPU tensor is pinned, in {func}"
                )
        return made

    def _waits(self, name: str, args: Any, asked: dict[str, Any], made: Any) -> bool:
        tensors = list(_tensors((args, asked)))
        if tensors and on_cuda(tensors[0]) and name in _WAITING:
            return True
        if name in _CHOOSING and on_cuda(tensors[0]):
            return any(x.dtype is torch.bool or not on_cuda(x) for x in tensors[1:])
        if name in ("tensor", "as_tensor"):
            return on_cuda(made)
        ends = {"to": (made, *tensors[:1]), "cuda": (made, *tensors), "copy_": tensors}.get(name)
        if ends is None or len({on_cuda(x) for x in ends}) < 2:
            return False
        host = next(x for x in ends if not on_cuda(x))
        is_locked = host.untyped_storage().data_ptr() in self._locked
        return not (is_locked and asked.get("non_blocking"))


class _Event:
    """An event, which has come when it is asked for: copies are made at once."""

    def __init__(self, **_: object) -> None:
        pass

    def record(self, *_: object) -> None:
        pass

    def synchronize(self) -> None:
        pass


@contextmanager
def emulated_gpu() -> Iterator[Device]:
    """Have PyTorch's device `cuda` emulated; yields what counts its graphs."""
    counts = Device()
    with pytest.MonkeyPatch.context() as patch, Emulation(counts):
        gpus = fake_gpus(patch)
        gpus.total, gpus.free = 2**30, 2**30
        fakes: dict[str, object] = {
            "is_initialized": lambda: True,
            "set_device": lambda _: None,
            "current_device": lambda: 0,
            "get_device_capability": lambda *_: (9, 0),
            "get_device_name": lambda *_: "Emulated",
            **dict.fromkeys(
                ("synchronize", "empty_cache", "reset_peak_memory_stats"), lambda *_: None
            ),
            **dict.fromkeys(
                ("memory_reserved", "max_memory_reserved", "memory_allocated"), lambda *_: 0
            ),
            "max_memory_allocated": lambda *_: 0,
            "Event": _Event,
            "device": lambda _: nullcontext(),
            "is_current_stream_capturing": lambda: counts.is_capturing,
        }
        for name, fake in fakes.items():
            patch.setattr(torch.cuda, name, fake)
        backend = ops.BACKENDS["cuda"]
        patch.setattr(backend, "graph_capture", lambda _: FakeCapture(counts), raising=False)
        run = InterpretedFunction.run

        def checked(kernel: Any, *args: Any, **kwargs: Any) -> Any:
            for i, x in enumerate(args):
                if isinstance(x, Tensor) and not on_cuda(x):
                    raise ValueError(f"Pointer argument (at {i}) cannot be accessed from Triton")
            with torch._C.DisableTorchFunction():  # the interpreter has a CPU's tensors
                return run(kernel, *args, **kwargs)

        patch.setattr(InterpretedFunction, "run", checked)
        yield counts
