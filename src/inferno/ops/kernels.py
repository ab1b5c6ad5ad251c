"""Find out whether inferno's compiled kernels run here, and why not."""

from __future__ import annotations

import logging
import os
from functools import cache
from importlib.util import find_spec

_logger = logging.getLogger("inferno")
SWITCH = "INFERNO_KERNELS"  # "reference" leaves them out; read once, when `ops` is imported


def why_not() -> str | None:
    """Return why the compiled kernels don't run here, or None if they do."""
    if os.environ.get(SWITCH) == "reference":
        return f"{SWITCH}=reference is set"
    if find_spec("inferno._native") is None:
        return "they were not built, for no C++ compiler was found when inferno was installed"
    return None


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
