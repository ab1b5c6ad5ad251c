"""Find out whether inferno's compiled kernels run here, and why not."""

from __future__ import annotations

import logging
import os
from functools import cache
from importlib.util import find_spec

from inferno.machine import has_bfloat16

_logger = logging.getLogger("inferno")
SWITCH = "INFERNO_KERNELS"  # "reference" leaves them out; `ops` reads it once, when imported


def why_not() -> str | None:
    """Return why the compiled kernels don't run here, or None if they do."""
    if os.environ.get(SWITCH) == "reference":
        return f"{SWITCH}=reference is set"
    if find_spec("inferno._native") is None:
        return "they were not built, for no C++ compiler was found when inferno was installed"
    return None


def computes_bfloat16() -> bool:
    """Return whether this CPU computes in bfloat16 as fast as in float32, or faster.

    Kernels widen it where no instruction multiplies it, and read half of float32's bytes; PyTorch
    alone is then several times slower.
    """
    return has_bfloat16() or why_not() is None


@cache
def warn_if_missing() -> None:
    """Warn, once a process, that models are slow without kernels, unless they were switched off."""
    reason = why_not()
    if reason is not None and not reason.startswith(SWITCH):
        _logger.warning(
            "inferno's compiled kernels don't run, as %s: models are many times slower; install a "
            "C++17 compiler, then inferno again",
            reason,
        )
