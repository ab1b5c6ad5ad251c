"""Whether inferno's compiled kernels run here."""

from __future__ import annotations

import os
from importlib.util import find_spec

SWITCH = "INFERNO_KERNELS"  # "reference" leaves them out; read once, when `ops` is imported


def why_not() -> str | None:
    """Why the kernels don't run here, or None if they do."""
    if os.environ.get(SWITCH) == "reference":
        return f"{SWITCH}=reference is set"
    if find_spec("inferno._native") is None:
        return "they were not built, for no C++ compiler was found when inferno was installed"
    return None
