"""Borrow PyTorch's own number of threads, which an engine changes and its user wants back."""

from __future__ import annotations

import os
import threading
import weakref

import torch


class _Borrowed:
    """The count of who borrows PyTorch's threads, and their number before the first did."""

    def __init__(self) -> None:
        # Reentrant, for the collector may end a borrower in the middle of anything.
        self._lock = threading.RLock()
        self._num_borrowers = 0
        self._num_threads = 0

    def begin(self) -> None:
        with self._lock:
            if not self._num_borrowers:
                self._num_threads = torch.get_num_threads()
            self._num_borrowers += 1

    def end(self) -> None:
        with self._lock:
            self._num_borrowers -= 1
            if not self._num_borrowers:
                torch.set_num_threads(self._num_threads)

    def forget_holder(self) -> None:
        """Make a new lock in a forked child: whoever held the old one stayed with the parent."""
        self._lock = threading.RLock()


_borrowed = _Borrowed()  # there is one such number in a process
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_borrowed.forget_holder)


class BorrowedThreads:
    """A loan of PyTorch's number of threads; when the last loan ends, it is restored."""

    def __init__(self) -> None:
        _borrowed.begin()
        self._end = weakref.finalize(self, _borrowed.end)

    def give_back(self) -> None:
        """Give the number of threads back; a second call does nothing."""
        self._end()
