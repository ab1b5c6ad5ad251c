"""A GPU that can't be used is refused in one line: what was asked, what was found, what to do."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from inferno.engine.execution import gpu
from inferno.engine.execution.device import find_device
from inferno.errors import DeviceUnavailable
from inferno.plan.devices import CONTEXT_BYTES
from tests.engine.execution.gpus import GIB, FakeGpus, fake_gpus

TOO_OLD = (
    "The NVIDIA driver on your system is too old (found version 11040). Please update your GPU "
    "driver by downloading and installing a new version from the URL: http://www.nvidia.com/"
)
NO_DRIVER = (
    "Found no NVIDIA driver on your system. Please check that you have an NVIDIA GPU and installed "
    "a driver from http://www.nvidia.com/Download/index.aspx"
)
NONE = "No CUDA GPUs are available"


@pytest.fixture
def gpus(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> FakeGpus:
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "triton"))
    return fake_gpus(monkeypatch)


def refusal(name: str = "cuda:0") -> str:
    """Why a device is refused; one line that begins with its name and ends with a way out."""
    with pytest.raises(DeviceUnavailable) as refused:
        find_device(name)
    words = str(refused.value)
    assert words.startswith(f"{name} was asked for, but ")
    assert words.endswith(", or use --device cpu.")
    assert "\n" not in words
    return words


@pytest.mark.parametrize(("name", "index"), [("cuda", 0), ("cuda:0", 0), ("cuda:1", 1)])
def test_a_gpu_that_is_there_is_taken(gpus: FakeGpus, name: str, index: int) -> None:
    gpus.capabilities = [(8, 0), (10, 0)]
    assert find_device(name) == torch.device("cuda", index)


def test_a_pytorch_without_cuda_says_what_installs_one(
    gpus: FakeGpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.version, "cuda", None)
    words = refusal("cuda")
    assert f"this PyTorch, {torch.__version__}, has no CUDA" in words
    assert "pip install --force-reinstall torch" in words


def test_an_old_driver_is_told_with_both_versions(gpus: FakeGpus) -> None:
    gpus.problem = RuntimeError(TOO_OLD)
    words = refusal()
    assert "driver is too old for this PyTorch, which has CUDA 12.8" in words
    assert "the driver knows CUDA up to 11.4" in words
    assert "update the driver" in words


def test_an_absent_driver_is_told(gpus: FakeGpus) -> None:
    gpus.problem = RuntimeError(NO_DRIVER)
    assert "there is no NVIDIA driver: install it" in refusal()


@pytest.mark.parametrize(
    ("shown", "found"),
    [
        ("", "CUDA_VISIBLE_DEVICES is empty, which hides every GPU"),
        (" ", "CUDA_VISIBLE_DEVICES is empty"),
        ("-1", "CUDA_VISIBLE_DEVICES is '-1', which hides every GPU"),
        ("7", "CUDA_VISIBLE_DEVICES is '7', which names no GPU of this machine"),
        ("GPU-none", "CUDA_VISIBLE_DEVICES is 'GPU-none', which names no GPU"),
        ("9" * 5000, "which names no GPU"),
    ],
)
def test_hidden_gpus_are_told_by_the_variable_that_hides_them(
    gpus: FakeGpus, monkeypatch: pytest.MonkeyPatch, shown: str, found: str
) -> None:
    gpus.problem = RuntimeError(NONE)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", shown)
    words = refusal()
    assert found in words
    assert "unset it, or set it to a number that `nvidia-smi -L` lists" in words
    assert len(words) < 400


@pytest.mark.parametrize("shown", [None, "0"])
@pytest.mark.parametrize(
    "words",
    [
        "Cannot re-initialize CUDA in forked subprocess",
        "Unexpected error from cudaGetDeviceCount(). Error 802: system not yet initialized",
        "CUDA unknown error - this may be due to an incorrectly set up environment",
    ],
)
def test_a_fault_of_cuda_is_quoted_whatever_the_variable_says(
    gpus: FakeGpus, monkeypatch: pytest.MonkeyPatch, shown: str | None, words: str
) -> None:
    if shown is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", shown)
    gpus.problem = RuntimeError(f"{words}\nTo use it")
    found = refusal()
    assert f"CUDA does not start ({words})" in found
    assert "names no GPU" not in found


@pytest.mark.parametrize(
    ("count", "shown", "found"),
    [
        (1, None, "there is 1 CUDA device: choose cuda:0"),
        (2, None, "there are 2 CUDA devices: choose cuda:0 to cuda:1"),
        (1, "3", "there is 1 CUDA device that CUDA_VISIBLE_DEVICES='3' leaves: choose cuda:0"),
    ],
)
def test_a_number_too_high_names_those_that_are_there(
    gpus: FakeGpus, monkeypatch: pytest.MonkeyPatch, count: int, shown: str | None, found: str
) -> None:
    gpus.capabilities = [(9, 0)] * count
    if shown is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", shown)
    assert found in refusal("cuda:2")


@pytest.mark.parametrize("capability", [(7, 5), (6, 1), (7, 9)])
def test_an_old_chip_is_refused_by_name_and_capability(
    gpus: FakeGpus, capability: tuple[int, int]
) -> None:
    gpus.capabilities = [capability]
    shown = ".".join(map(str, capability))
    assert f"it is a Fake H100 of compute capability {shown}, and the kernels need 8.0" in refusal()


@pytest.mark.parametrize(
    "words", ["CUDA error: all CUDA-capable devices are busy or unavailable", "out of memory"]
)
def test_a_gpu_that_does_not_answer_is_refused(gpus: FakeGpus, words: str) -> None:
    gpus.problem_of_one = RuntimeError(f"{words}\nCUDA kernel errors might be reported later")
    assert f"it does not answer ({words}): see in nvidia-smi who uses it" in refusal()


def test_without_triton_nothing_runs_on_a_gpu(
    gpus: FakeGpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gpu, "has_triton", lambda: False)
    assert "Triton, which compiles its kernels, is not installed: pip install triton" in refusal()


@pytest.mark.parametrize("place", ["/proc/triton", "{}/file", "{}/file/cache"])
def test_a_folder_for_kernels_that_cannot_be_written_is_refused(
    gpus: FakeGpus, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, place: str
) -> None:
    (tmp_path / "file").touch()
    folder = place.format(tmp_path)
    monkeypatch.setenv("TRITON_CACHE_DIR", folder)
    words = refusal()
    assert f"Triton keeps compiled kernels in {folder}, where no file can be made (" in words
    assert "set TRITON_CACHE_DIR to a folder that can be written" in words


def test_tritons_folder_is_found_as_triton_finds_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    knobs = pytest.importorskip("triton.knobs")
    for name, value in (("TRITON_HOME", tmp_path / "home"), ("TRITON_CACHE_DIR", tmp_path / "c")):
        assert gpu.triton_folder() == Path(knobs.cache_knobs().dir)
        monkeypatch.setenv(name, str(value))
        assert gpu.triton_folder() != Path("~/.triton/cache").expanduser()
    assert gpu.triton_folder() == tmp_path / "c"


@pytest.mark.parametrize(
    "problem",
    [
        RuntimeError("CUDA error: device-side assert triggered\nCUDA kernel errors might be"),
        RuntimeError("CUDA error: unspecified launch failure"),
        RuntimeError("CUDA error: an illegal memory access was encountered"),
        RuntimeError("CUDA error: uncorrectable ECC error encountered"),
        RuntimeError("CUDA error: the launch timed out and was terminated"),
        RuntimeError("Triton Error [CUDA]: an illegal memory access was encountered"),
        RuntimeError("CUDA error: CUBLAS_STATUS_EXECUTION_FAILED when calling `cublasGemmEx`"),
        torch.AcceleratorError("unspecified launch failure"),
    ],
    ids=str,
)
def test_a_lost_gpu_is_known_by_its_words(problem: Exception) -> None:
    assert gpu.is_device_lost(problem)
    outer = ValueError("a step failed")
    outer.__cause__ = problem
    assert gpu.is_device_lost(outer)


@pytest.mark.parametrize(
    "problem",
    [
        None,
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 MiB"),
        RuntimeError("CUDA error: invalid configuration argument"),
        RuntimeError("CUDA error: operation not permitted when stream is capturing"),
        RuntimeError("CUDA error: out of memory"),
        RuntimeError("mat1 and mat2 shapes cannot be multiplied"),
        RuntimeError("unspecified launch failure of a rocket"),
        ValueError("CUDA error: unspecified launch failure"),
    ],
    ids=str,
)
def test_other_errors_leave_the_gpu_usable(problem: Exception | None) -> None:
    assert not gpu.is_device_lost(problem)


def test_what_others_hold_is_what_neither_we_nor_nobody_has(gpus: FakeGpus) -> None:
    gpus.total, gpus.free, gpus.reserved = 80 * GIB, 10 * GIB, 5 * GIB
    found = gpu.gpu_memory(torch.device("cuda", 0))
    assert found.own == CONTEXT_BYTES + 5 * GIB
    assert found.others == 65 * GIB - CONTEXT_BYTES
    gpus.free = 79 * GIB
    assert gpu.gpu_memory(torch.device("cuda", 0)).others == 0


class _Taken:
    """Kernels that another thread has."""

    def __enter__(self) -> object:
        raise RuntimeError("these kernels are in use elsewhere")

    def __exit__(self, *problem: object) -> None:
        raise AssertionError("they were never entered")

    def release_memory(self) -> None:
        """Do nothing."""


def test_a_thread_that_can_not_enter_kernels_keeps_its_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = [3]
    monkeypatch.setattr(torch.cuda, "current_device", lambda: chosen[-1])
    monkeypatch.setattr(torch.cuda, "set_device", chosen.append)
    kernels = gpu.OnGpu(torch.device("cuda", 1), _Taken())
    with pytest.raises(RuntimeError, match="in use"), kernels:
        pass
    assert chosen[-1] == 3
    assert kernels._before == []
