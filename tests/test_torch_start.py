"""What a command's PyTorch leaves out at the start is there when it is asked for."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch

from inferno.torch_start import _TESTED_VERSIONS, defer_tracing

pytestmark = pytest.mark.skipif(
    not torch.__version__.startswith(_TESTED_VERSIONS), reason="nothing is put off of this version"
)
BEGIN = """
import sys
from inferno.torch_start import defer_tracing
defer_tracing()
import torch
assert "torch._decomp" not in sys.modules
assert torch.ones(3).sum() == 3
"""


def run(code: str) -> None:
    subprocess.run([sys.executable, "-c", BEGIN + code], check=True)


@pytest.mark.slow
def test_what_was_left_out_can_be_imported_in_any_order_and_traces() -> None:
    """Each is imported first in a child of the process that has only begun."""
    run(
        """
import os, traceback
def is_right(work):
    pid = os.fork()
    if not pid:
        try:
            work()
            os._exit(0)
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(1)
    return os.waitpid(pid, 0)[1] == 0

def imports(name):
    __import__(name)
    assert name in sys.modules

def exports():
    program = torch.export.export(torch.nn.Linear(3, 4), (torch.ones(2, 3),))
    assert "linear" in program.graph_module.code
    from torch._subclasses.fake_tensor import FakeTensorMode
    with FakeTensorMode():
        # Its shape is known by a function in Python alone.
        assert torch.nn.functional.max_unpool2d(
            torch.empty(1, 1, 2, 2), torch.zeros(1, 1, 2, 2, dtype=torch.int64), 2
        ).shape == (1, 1, 4, 4)

for name in "_refs", "_decomp", "export.unflatten", "utils._content_store":
    assert is_right(lambda: imports(f"torch.{name}")), name
assert is_right(exports)
"""
    )


@pytest.mark.slow
def test_what_trains_and_quantizes_works_once_it_is_asked_for() -> None:
    """Each is used first in a child of the process that has only begun."""
    run(
        """
import os
uses = [
    "list(torch.utils.data.DataLoader([1, 2, 3], batch_size=2))[1].item() == 3",
    "torch.distributions.Normal(2.0, 1.0).log_prob(torch.tensor(2.0)) < 0",
    "torch.distributions.von_mises.VonMises(0.0, 1.0).sample().abs() < 4",
    "torch.masked.masked_tensor(torch.ones(2), torch.tensor([True, False])).sum() == 1",
    "torch.nn.intrinsic.LinearReLU(torch.nn.Linear(2, 1), torch.nn.ReLU())(torch.ones(2)) >= 0",
    "torch.nn.qat.Linear.__module__.startswith('torch.ao')",
    "torch.quantization.QuantStub()(torch.ones(2)).sum() == 2",
    "torch.ao.quantization.get_default_qconfig() is not None",
]
assert "torch.utils.data.dataloader" not in sys.modules
for use in uses:
    pid = os.fork()
    if not pid:
        try:
            is_right = eval(use)
        finally:
            os._exit(0 if is_right else 1)
    assert os.waitpid(pid, 0)[1] == 0, use
"""
    )


def test_modules_of_what_was_left_out_can_be_imported_by_their_names() -> None:
    run(
        """
from torch.utils.data.dataset import TensorDataset
import torch.nn.intrinsic.quantized.dynamic
import torch.quantization.fake_quantize
from torch.distributions.utils import lazy_property
from torch.masked.maskedtensor.core import MaskedTensor
assert torch.utils.data.TensorDataset is TensorDataset
assert torch.masked.MaskedTensor is MaskedTensor
"""
    )


def test_random_numbers_can_be_drawn_before_and_after() -> None:
    run(
        """
first = torch.rand(3, generator=torch.Generator().manual_seed(4))
assert "torch._prims" not in sys.modules
import torch._prims.rng_prims
assert isinstance(torch.default_generator, torch.Generator)
assert torch.equal(first, torch.rand(3, generator=torch.Generator().manual_seed(4)))
"""
    )


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_libraries_are_loaded_without_an_import() -> None:
    code = """
import sys, threading
from pathlib import Path
from inferno.torch_start import loading_libraries
with loading_libraries():
    assert threading.active_count() == 2
assert threading.active_count() == 1
assert "torch" not in sys.modules
assert "/libtorch_cpu.so" in Path("/proc/self/maps").read_text()
import torch
assert torch.ones(3).sum() == 3
with loading_libraries():
    assert "inferno-libraries" not in {thread.name for thread in threading.enumerate()}
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_failure_meanwhile_is_told_of_once_libraries_are_loaded() -> None:
    code = """
import threading
from inferno.torch_start import loading_libraries
try:
    with loading_libraries():
        raise LookupError
except LookupError:
    assert threading.active_count() == 1
else:
    raise SystemExit("no error")
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_of_a_version_that_was_not_tried_nothing_is_put_off(tmp_path: Path) -> None:
    package = tmp_path / "torch"
    package.mkdir()
    (package / "version.py").write_text("__version__ = '9.1.0+cpu'\n")
    (package / "__init__.py").write_text("")
    code = (
        f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n"
        "from inferno import torch_start\n"
        "torch_start.defer_tracing()\n"
        "assert torch_start._version() == '9.1.0+cpu'\n"
        "assert not any(isinstance(f, torch_start._Finder) for f in sys.meta_path)\n"
        "import threading\n"
        "with torch_start.loading_libraries():\n"
        "    assert threading.active_count() == 1"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_pytorch_that_is_there_stays_as_it_is() -> None:
    before = list(sys.meta_path)
    assert torch.__name__ in sys.modules
    defer_tracing()
    assert sys.meta_path == before
