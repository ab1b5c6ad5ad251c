"""Replace a file, all or nothing: the new file gets its name when it is whole."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO


@contextmanager
def whole_file(path: Path, *, prefix: str) -> Iterator[BinaryIO]:
    """Yield a file to write to, private to its user, which becomes `path` when the block ends.

    prefix  the beginning of the file's name, beside `path`, until then. The file is removed if
            anything goes wrong.
    """
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=prefix)
    try:
        with os.fdopen(handle, "wb") as file:
            yield file
        os.replace(temporary, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(temporary)
        raise
