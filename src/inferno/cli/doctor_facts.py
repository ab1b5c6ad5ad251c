"""The facts of `inferno doctor`: one JSON object, in which null means unknown or absent."""

from __future__ import annotations

import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from importlib import metadata
from pathlib import Path
from typing import Any

from huggingface_hub import constants

import inferno
from inferno import machine
from inferno.demo import MODEL_FOLDERS
from inferno.home import home_folder

Facts = dict[str, Any]

REQUIRED = (
    *("torch", "numpy", "tokenizers", "huggingface_hub", "jinja2", "typer", "rich"),
    *("httpx", "prompt_toolkit", "markdown-it-py"),
)
_OPTIONAL = ("triton", "transformers")
_X86_FEATURES = ("avx2", "fma", "avx_vnni", "avx512f", "avx512_vnni", "avx512_bf16", "amx")
_ARM_FEATURES = ("neon", "dotprod", "i8mm", "bf16", "sve")
# Linux's own words, where they differ from the usual ones.
_KERNEL_NAMES = {"amx": "amx_tile", "neon": "asimd", "dotprod": "asimddp"}
_THREAD_VARIABLES = re.compile(r"(OMP|GOMP|KMP|MKL|OPENBLAS)_\w+")
_PROBE_SECONDS = 120
_OF_CUDA = ("why_not", "why_no_kernels", "triton_cache", "visible_devices")


def gather_facts(root: Path = machine.ROOT, *, measures_all: bool = False) -> Facts:
    """Gather all that can be found out; `root` is where proc/ and sys/ are.

    measures_all    whether GPUs that others use are to copy something too, for their bandwidth.
    """
    command = [sys.executable, "-P", "-m", "inferno.engine.execution.probe"]
    probed = probe_torch([*command, "--measure"] if measures_all else command)
    return {
        "versions": _versions(probed),
        "system": _system(root),
        "cpu": {**_cpu(root), "vector_code": probed.get("vector_code")},
        "threads": {
            "inferno": machine.num_usable_cores(root),
            "torch": probed.get("threads"),
            "environment": _thread_variables(),
        },
        "memory": {
            "total_bytes": machine.total_memory(root),
            "available_bytes": machine.available_memory(root),
            "limit_bytes": machine.memory_limit(root),
        },
        "torch_error": probed.get("error"),
        "cuda_build": probed.get("cuda_build"),
        "cuda": {name: probed.get("cuda", {}).get(name) for name in _OF_CUDA},
        "devices": probed.get("devices", []),
        "kernels": _kernels(probed.get("kernels", {})),
        "ops": probed.get("ops", {}),
        "models": _models(_store()),
        "terminal": _terminal(),
    }


def probe_torch(command: list[str], seconds: float = _PROBE_SECONDS) -> Facts:
    """Run the probe, and return what it prints, or {"error": why it printed nothing}."""
    try:
        done = subprocess.run(command, capture_output=True, timeout=seconds, check=False)
        found = json.loads(done.stdout.strip().rpartition(b"\n")[2])  # imports may print as well
    except subprocess.TimeoutExpired:
        return {"error": f"no answer within {seconds:g} seconds"}
    except OSError as problem:
        return {"error": f"the probe could not be started: {problem}"}
    except ValueError:
        last = done.stderr.decode(errors="replace").strip().rpartition("\n")[2]
        return {"error": last[:300] or f"the probe ended with exit code {done.returncode}"}
    return found if isinstance(found, dict) else {"error": "the probe gave no sensible answer"}


def _versions(probed: Facts) -> Facts:
    packages = {name: _version(name) for name in (*REQUIRED, *_OPTIONAL)}
    if probed.get("torch"):  # PyTorch itself also says for which device it was built
        packages["torch"] = probed["torch"]
    return {"inferno": inferno.__version__, "python": platform.python_version(), **packages}


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _system(root: Path) -> Facts:
    libc = " ".join(platform.libc_ver()).strip()
    return {
        "os": platform.system() or None,
        "release": platform.release() or None,
        "machine": platform.machine() or None,
        "libc": libc or None,
        "nvidia_driver": _nvidia_driver(root / "proc/driver/nvidia/version"),
    }


def _nvidia_driver(path: Path) -> str | None:
    try:
        found = re.search(r"\s(\d+\.\d+(?:\.\d+)?)\s", path.read_text(errors="replace"))
    except OSError:
        return None
    return found[1] if found else None


def _cpu(root: Path) -> Facts:
    cpu = machine.read_cpu(root)
    allowed = machine.allowed_cpus()
    logical = os.cpu_count()
    return {
        "model": cpu.name,
        "cores": machine.count_cores(frozenset(range(logical or 1)), root),
        "hardware_threads": logical,
        "allowed_cores": machine.count_cores(allowed, root),
        "allowed_hardware_threads": len(allowed),
        "quota": machine.cpu_quota(root),
        "features": known_features(cpu.features, platform.machine()),
    }


def known_features(kernel_names: frozenset[str], kind: str) -> dict[str, bool] | None:
    """Return which features that matter here the CPU has; None where the kernel lists none."""
    if not kernel_names:
        return None
    names = _ARM_FEATURES if kind in ("aarch64", "arm64") else _X86_FEATURES
    return {name: _KERNEL_NAMES.get(name, name) in kernel_names for name in names}


def _kernels(found: Facts) -> Facts:
    """Return which compiled kernels run on the CPU, or why none do."""
    why_not = found.get("why_not")
    return {"isa": found.get("isa") if why_not is None else None, "why_not": why_not}


def _thread_variables() -> dict[str, str]:
    return {name: os.environ[name] for name in sorted(os.environ) if _THREAD_VARIABLES.match(name)}


def _store() -> Path:
    try:
        return home_folder() / "models"
    except RuntimeError:  # there is no home
        return Path("models")


def _models(cache: Path) -> Facts:
    # The folder is made by the first download, so what counts is the nearest one that is there.
    there = next((path for path in (cache, *cache.parents) if os.path.exists(path)), Path("."))
    return {
        "embedded": [
            name
            for name, folder in MODEL_FOLDERS.items()
            if os.path.exists(folder / "model.safetensors")
        ],
        "cache": str(cache),
        "cache_is_writable": _is_writable(there),
        "cache_free_bytes": _free_bytes(there),
        "is_offline": constants.HF_HUB_OFFLINE,
    }


def _is_writable(folder: Path) -> bool:
    """Return whether a file can be made there; permissions lie about /proc and the like."""
    try:
        with tempfile.TemporaryFile(dir=folder):
            return True
    except OSError:
        return False


def _free_bytes(folder: Path) -> int | None:
    try:
        return shutil.disk_usage(folder).free
    except OSError:
        return None


def _terminal() -> Facts:
    return {
        "is_terminal": sys.stdout is not None and sys.stdout.isatty(),
        "encoding": getattr(sys.stdout, "encoding", None),
        "columns": shutil.get_terminal_size().columns,
        "term": os.environ.get("TERM"),
        "has_colour": "NO_COLOR" not in os.environ and os.environ.get("TERM") not in (None, "dumb"),
    }
