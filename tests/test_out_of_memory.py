"""A want of memory is told from other problems, and said as what it is."""

from __future__ import annotations

import errno
import resource
import signal
import subprocess
import sys

import pytest
import torch

from inferno import machine
from inferno.errors import NotEnoughMemory
from inferno.out_of_memory import check_address_space, is_out_of_memory, out_of_memory

GIB = 2**30


def caused(outer: Exception, inner: Exception) -> Exception:
    outer.__context__ = inner
    return outer


@pytest.mark.parametrize(
    "problem",
    [
        MemoryError(),
        OSError(errno.ENOMEM, "Cannot allocate memory"),
        ImportError("libtorch_cpu.so: failed to map segment from shared object"),
        ImportError("libfoo.so: cannot allocate memory in static TLS block"),
        RuntimeError("[enforce fail at alloc_cpu.cpp:117] . DefaultCPUAllocator: can't allocate"),
        RuntimeError("std::bad_alloc"),
        RuntimeError("can't start new thread"),
        RuntimeError("can't start a thread: Resource temporarily unavailable"),
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 MiB. GPU 0 has a"),
        torch.AcceleratorError("CUDA error: out of memory"),
        RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
        RuntimeError("Triton Error [CUDA]: CUDA_ERROR_OUT_OF_MEMORY"),
        caused(KeyError("x"), MemoryError()),
    ],
    ids=repr,
)
def test_a_want_of_memory_is_known_by_its_words(problem: Exception) -> None:
    assert is_out_of_memory(problem)


def test_a_system_error_without_words_is_one_where_memory_has_a_limit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    problem = SystemError("error return without exception set")
    monkeypatch.setattr(machine, "address_space_limit", lambda: None)
    assert not is_out_of_memory(problem)
    monkeypatch.setattr(machine, "address_space_limit", lambda: 600 << 20)
    assert is_out_of_memory(problem)


@pytest.mark.parametrize(
    "problem",
    [
        None,
        ImportError("No module named 'foo'"),
        OSError(errno.EMFILE, "Too many open files"),
        RuntimeError("mat1 and mat2 shapes cannot be multiplied"),
        ValueError("out of memory"),  # the words of somebody who speaks of something else
    ],
    ids=repr,
)
def test_other_problems_are_not_taken_for_it(problem: Exception | None) -> None:
    assert not is_out_of_memory(problem)


def test_the_error_says_what_lacked_and_what_to_do() -> None:
    words = str(out_of_memory(ImportError("libtorch_cpu.so: failed to map segment")))
    assert "libtorch_cpu.so: failed to map segment" in words
    assert "GiB" in words
    assert "smaller model" in words
    assert "()" not in str(out_of_memory(MemoryError()))


def test_without_a_limit_nothing_is_refused_beforehand() -> None:
    if resource.getrlimit(resource.RLIMIT_AS)[0] == resource.RLIM_INFINITY:
        check_address_space()


def limited(gib: float, *arguments: str) -> subprocess.CompletedProcess[str]:
    """The command line with so much of an address space.

    A server whose engines end without a word of memory, for a library ended them, would go on
    trying: it is ended once it has said so.
    """
    most = int(gib * GIB)
    program = (
        "import resource, sys; from inferno.cli import main;"
        f"resource.setrlimit(resource.RLIMIT_AS, ({most}, {most})); main()"
    )
    command = [sys.executable, "-c", program, *arguments]
    with subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr is not None
        said = []
        for line in process.stderr:
            said.append(line)
            if "times in a row" in line:
                process.send_signal(signal.SIGTERM)
    return subprocess.CompletedProcess(command, process.returncode, "", "".join(said))


GENERATE = ("generate", "-m", "demo", "-p", "hello", "--max-tokens", "1", "--threads", "1")
# A cache that no machine has room for, so that a server with memory enough for the rest ends too.
SERVE = ("serve", "demo", "--port", "0", "--num-blocks", str(2**24), "--block-size", "1024")


@pytest.mark.parametrize("arguments", [GENERATE, SERVE], ids=["generate", "serve"])
@pytest.mark.parametrize(
    "gib", [0.3, *(pytest.param(gib, marks=pytest.mark.slow) for gib in (0.7, 0.75, 0.8))]
)
def test_a_command_with_little_memory_says_so(arguments: tuple[str, ...], gib: float) -> None:
    done = limited(gib, *arguments)
    assert "internal error" not in done.stderr
    if done.returncode:
        words = ("memory", "could not be allocated", "bad_alloc")
        assert any(word in done.stderr.lower() for word in words)
        assert "Traceback" not in done.stderr
    # Between some limits a library ends the process itself, or the C library does: 127, -6.
    if done.returncode == 1:
        said = [line for line in done.stderr.splitlines() if not line.startswith("{")]
        assert any(line.startswith(("error: ", "OpenBLAS error: ")) for line in said)


@pytest.mark.parametrize("gib", [0.5, 0.6, 0.63])  # where libraries have crashed, or waited
def test_what_is_too_little_for_anything_is_refused_at_once(gib: float) -> None:
    done = limited(gib, *GENERATE)
    assert done.returncode == 1
    [said] = done.stderr.splitlines()
    assert said.startswith(f"error: memory ran out: this process may take {gib:.2f} GiB")
    with pytest.raises(NotEnoughMemory):
        raise out_of_memory()
