"""The problems that inferno has on this machine, and the cure of each."""

from __future__ import annotations

import codecs
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from inferno.cli.doctor_facts import REQUIRED, Facts
from inferno.compiled_kernels import SWITCH

_GB = 10**9
_LITTLE_MEMORY = 1 * _GB
_LITTLE_DISK = 5 * _GB
_LITTLE_SHARE = 0.5  # of a GPU's memory
_LEAST_CAPABILITY = 8.0


@dataclass(frozen=True, slots=True)
class Problem:
    """A problem and its cure; one that `is_fatal` keeps inferno from running any model."""

    what: str
    cure: str
    is_fatal: bool = False


def find_problems(facts: Facts) -> list[Problem]:
    """Return all problems, the fatal ones first."""
    found = [problem for check in _CHECKS for problem in check(facts)]
    return sorted(found, key=lambda problem: not problem.is_fatal)


def _packages(facts: Facts) -> Iterator[Problem]:
    missing = [name for name in REQUIRED if facts["versions"][name] is None]
    if missing:
        yield Problem(
            f"missing packages: {', '.join(missing)}",
            f"pip install {' '.join(missing)}",
            is_fatal=True,
        )
    if facts["torch_error"] is not None and "torch" not in missing:
        yield Problem(
            f"PyTorch does not work: {facts['torch_error']}",
            "reinstall it: pip install --force-reinstall torch",
            is_fatal=True,
        )
    if not facts["models"]["embedded"]:
        yield Problem("the embedded model's files are missing", "reinstall inferno")


def _devices(facts: Facts) -> Iterator[Problem]:
    driver, has_cuda = facts["system"]["nvidia_driver"], facts["cuda_build"] is not None
    is_found = any(device["name"].startswith("cuda") for device in facts["devices"])
    if driver and facts["torch_error"] is None and not has_cuda:
        yield Problem(
            f"there is an NVIDIA driver ({driver}), but this PyTorch has no CUDA",
            "install a CUDA build: https://pytorch.org/get-started/locally",
        )
    why_not, why_no_kernels = facts["cuda"]["why_not"], facts["cuda"]["why_no_kernels"]
    if driver and has_cuda and not is_found:
        found, _, cure = (why_not or "").partition(": ")
        yield Problem(
            f"PyTorch with CUDA {facts['cuda_build']} finds no GPU under the driver {driver}"
            + (f": {found}" if found else ""),
            cure or "update the driver, and look at CUDA_VISIBLE_DEVICES",
        )
    if is_found and why_no_kernels is not None:
        found, _, cure = why_no_kernels.partition(": ")
        yield Problem(f"GPUs can't be used: {found}", cure)
    for device in facts["devices"]:
        if device["error"]:
            yield Problem(
                f"{device['name']} does not answer: {device['error']}",
                "see nvidia-smi, or choose another with --device",
            )
            continue
        yield from _of_gpu(device)


def _of_gpu(device: Facts) -> Iterator[Problem]:
    name, total, free = (device[key] for key in ("name", "total_bytes", "available_bytes"))
    if device["capability"] is not None and float(device["capability"]) < _LEAST_CAPABILITY:
        yield Problem(
            f"{name}, {device['model']}, has compute capability {device['capability']}, and the "
            f"kernels need {_LEAST_CAPABILITY} or newer",
            "choose another with --device",
        )
    if total and free is not None and free < total * _LITTLE_SHARE:
        yield Problem(
            f"{name} has {free / _GB:.1f} of its {total / _GB:.1f} GB free: others use it",
            "end those processes, which nvidia-smi lists, or choose another with --device",
        )


def _cpu(facts: Facts) -> Iterator[Problem]:
    features = facts["cpu"]["features"]
    if features is not None and features.get("avx2") is False:
        yield Problem("the CPU has no AVX2: PyTorch is several times slower", "use another CPU")


def _kernels(facts: Facts) -> Iterator[Problem]:
    why_not = facts["kernels"]["why_not"]
    if why_not is not None:
        is_asked_for = why_not.startswith(SWITCH)
        yield Problem(
            f"inferno's compiled kernels don't run, as {why_not}: models are several times slower",
            f"unset {SWITCH}" if is_asked_for else "install a C++17 compiler, then inferno again",
        )


def _threads(facts: Facts) -> Iterator[Problem]:
    usable, environment = facts["threads"]["inferno"], facts["threads"]["environment"]
    limit = environment.get("OMP_THREAD_LIMIT", "")
    if limit.isdecimal() and int(limit[:9]) < usable:
        yield Problem(f"OMP_THREAD_LIMIT={limit} leaves cores idle", "unset OMP_THREAD_LIMIT")
    for name in ("OMP_PROC_BIND", "GOMP_CPU_AFFINITY", "KMP_AFFINITY"):
        if environment.get(name, "false").lower() not in ("", "false", "disabled", "none"):
            yield Problem(
                f"{name} pins threads to cores: two such processes share some, and leave others",
                f"unset {name}, unless one process has the machine for itself",
            )


def _memory(facts: Facts) -> Iterator[Problem]:
    memory = facts["memory"]
    total, limit, available = (memory[f"{name}_bytes"] for name in ("total", "limit", "available"))
    if total is not None and limit is not None and limit < total:
        yield Problem(
            f"a control group grants {limit / _GB:.1f} of the machine's {total / _GB:.1f} GB",
            "inferno keeps to it; for larger models raise the container's or job's memory limit",
        )
    if available is not None and available < _LITTLE_MEMORY:
        yield Problem(
            f"only {available / _GB:.1f} GB of memory can be allocated",
            "end other programs, or choose a small model",
        )


def _cache(facts: Facts) -> Iterator[Problem]:
    models = facts["models"]
    free = models["cache_free_bytes"]
    if not models["cache_is_writable"]:
        yield Problem(
            f"downloads can't be stored: {models['cache']} is not writable",
            "set INFERNO_HOME to a folder that is, or give --model a folder",
        )
    elif free is not None and free < _LITTLE_DISK:
        yield Problem(
            f"{models['cache']} has {free / _GB:.1f} GB left for downloads",
            "remove models with `inferno rm`, or set INFERNO_HOME to a folder on a larger disk",
        )


def _terminal(facts: Facts) -> Iterator[Problem]:
    encoding = facts["terminal"]["encoding"]
    if encoding is not None and not _is_utf8(encoding):
        yield Problem(
            f"output is encoded in {encoding}, which lacks most characters: they print as ?",
            "set LANG to a UTF-8 locale such as C.UTF-8, or PYTHONUTF8=1",
        )


def _is_utf8(encoding: str) -> bool:
    try:
        return codecs.lookup(encoding).name == "utf-8"
    except LookupError:
        return False


_CHECKS: tuple[Callable[[Facts], Iterator[Problem]], ...] = (
    _packages,
    _devices,
    _cpu,
    _kernels,
    _threads,
    _memory,
    _cache,
    _terminal,
)
