"""Identify a file, so that it is told from other files and from its own state before a change.

Users can set the time of the last modification back, not that of the last change: a file that was
replaced or written in place is another.
"""

from __future__ import annotations

import os
from typing import NamedTuple

_SECOND = 10**9
# Clocks of file systems tick, every 2 s at worst. As in git's index, what was changed so shortly
# before it was opened may have been changed once more without another time.
_SETTLED = 2 * _SECOND


class FileIdentity(NamedTuple):
    """The numbers that identify a file and change when the file does; times in nanoseconds."""

    device: int
    inode: int
    size: int
    modified: int
    changed: int

    @classmethod
    def of(cls, status: os.stat_result) -> FileIdentity:
        return cls(
            device=status.st_dev,
            inode=status.st_ino,
            size=status.st_size,
            modified=status.st_mtime_ns,
            changed=status.st_ctime_ns,
        )

    def is_settled(self, now: int) -> bool:
        """Return whether any change after `now` would show, as far as this file system tells.

        A file system that counts whole seconds may not keep the time of change at all.
        """
        last = max(self.modified, self.changed)
        return last + _SETTLED <= now and self.changed % _SECOND != 0
