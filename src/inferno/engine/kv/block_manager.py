"""Keep where each sequence's keys and values lie, and which prefixes of sequences are cached.

Layers with equal windows form a group. A sequence has one table per group, and all tables draw from
one pool: a block belongs to one group at a time. Block 0 is scratch and never handed out.

A full block whose tokens are computed is cached under its group and a SHA-256 digest, chained over
its parent's digest and its tokens: equal keys mean equal tokens, from the first one on. Full blocks
are shared through the cache alone and never written again; others have one holder. So nothing is
copied but what preempted sequences keep in host memory (offload.py).

The device runs steps in order: a block may be given back, and handed to another sequence, while the
step that writes to it is still in flight.
"""

from __future__ import annotations

import hashlib
import itertools
import struct
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from inferno.engine.kv.block_pool import BlockPool
from inferno.errors import InvalidRequest

SCRATCH = 0


@dataclass(slots=True, eq=False)
class BlockTables:
    """One sequence's blocks; BlockManager changes them, others only read.

    root            the parent of the first digest: sequences share blocks only if they share it.
    groups          per group: block ids by position // block_size, 0 where the window has left.
    num_left        per group: how many leading entries are 0.
    num_committed   leading blocks that are full, computed and offered to the cache.
    digests         of leading full blocks, as far as anybody asked for them; a preemption keeps
                    them.
    """

    root: bytes
    groups: tuple[list[int], ...]
    num_left: tuple[int, ...]
    num_committed: int
    digests: list[bytes]

    @property
    def num_held(self) -> int:
        """Return the number of blocks held, over all groups."""
        return sum(map(len, self.groups)) - sum(self.num_left)


@dataclass(frozen=True, slots=True)
class Prefix:
    """Leading tokens whose keys and values are cached, and the block tables that find them.

    Entries of the tables are 0 where the window has moved on, and where the cache lacks a block of
    a restored prefix.
    """

    num_tokens: int
    groups: tuple[list[int], ...]


class BlockManager:
    """The tables of all sequences, over one pool of blocks.

    windows             per group: a token sees itself and the window - 1 tokens before it; None
                        sees all.
    enable_prefix_cache False keeps requests apart; the sequences of one still share its prompt.
    """

    def __init__(
        self,
        num_blocks: int,
        block_size: int,
        windows: tuple[int | None, ...] = (None,),
        enable_prefix_cache: bool = True,
    ) -> None:
        for name, value in (("num_blocks", num_blocks), ("block_size", block_size)):
            if value < 1:
                raise InvalidRequest(f"{name} must be at least 1, not {value}", param=name)
        self.pool = BlockPool(num_blocks)
        self.block_size = block_size
        self._windows = windows
        self._windowed = [group for group, window in enumerate(windows) if window is not None]
        self._unwindowed = [group for group, window in enumerate(windows) if window is None]
        self._enable_prefix_cache = enable_prefix_cache
        self._serials = itertools.count()
        self._pack = struct.Struct(f"<{block_size}I").pack

    def reset(self) -> None:
        """Forget who holds which blocks, and what is cached; earlier tables are void."""
        self.pool.reset()

    @property
    def has_windows(self) -> bool:
        """Return whether some layers see only a window of the last tokens."""
        return bool(self._windowed)

    @property
    def longest_window(self) -> int | None:
        """Return how many tokens the farthest-seeing layer sees; None for all."""
        windows = [window for window in self._windows if window is not None]
        return max(windows) if len(windows) == len(self._windows) else None

    def new_root(self, salt: str) -> bytes:
        """Return where a request's digests start, the same for all its sequences."""
        seed = salt if self._enable_prefix_cache else str(next(self._serials))
        return hashlib.sha256(seed.encode("utf-8", "surrogatepass")).digest()

    def new_tables(self, root: bytes) -> BlockTables:
        """Return empty tables for one sequence."""
        return BlockTables(root, tuple([] for _ in self._windows), (0,) * len(self._windows), 0, [])

    # How many blocks

    def num_full_blocks(self, num_tokens: int) -> int:
        return num_tokens // self.block_size

    def num_blocks(self, num_tokens: int) -> int:
        return -(-num_tokens // self.block_size)

    def num_peak_blocks(self, num_tokens: int, max_chunk: int) -> int:
        """Count the blocks that a sequence of num_tokens holds at most.

        A step computes at most max_chunk of the tokens.
        """
        return sum(self._peak(window, num_tokens, max_chunk) for window in self._windows)

    def _peak(self, window: int | None, num_tokens: int, max_chunk: int) -> int:
        num_blocks = self.num_blocks(num_tokens)
        if window is None:
            return num_blocks
        span = window - 1 + min(max_chunk, num_tokens)  # what a chunk sees, wherever it starts
        return min(num_blocks, 1 + self.num_blocks(span - 1))

    def num_new_blocks(self, tables: BlockTables, num_tokens: int) -> int:
        """Count the blocks that `allocate` would take."""
        num_entries = len(tables.groups[0])
        return max(0, self.num_blocks(num_tokens) - num_entries) * len(self._windows)

    def num_promised(self, tables: BlockTables, num_tokens: int, max_chunk: int) -> int:
        """Count the blocks that a sequence of num_tokens lacks of those that it holds at most."""
        if not self._windowed:  # the same, in fewer words
            return self.num_new_blocks(tables, num_tokens)
        return max(0, self.num_peak_blocks(num_tokens, max_chunk) - tables.num_held)

    def num_in_use(self, prefix: Prefix) -> int:
        """Count the prefix's blocks in use; sharing them takes none from the pool."""
        return sum(self.pool.is_in_use(block) for table in prefix.groups for block in table)

    # A sequence's life: share a prefix, then per step slide, allocate and commit; at last release

    def share(self, tables: BlockTables, prefix: Prefix) -> None:
        """Start empty tables with a cached prefix, just found: later an eviction may undo it."""
        groups = range(len(self._windows))
        tables.num_left = tuple(self._num_left(group, prefix.num_tokens) for group in groups)
        for table, cached, num_left in zip(
            tables.groups, prefix.groups, tables.num_left, strict=True
        ):
            assert not table, "only empty tables can start with a prefix"
            for block in cached[num_left:]:
                self.pool.hold(block)
            table.extend(cached)
        tables.num_committed = self.num_full_blocks(prefix.num_tokens)

    def restore(self, tables: BlockTables, prefix: Prefix) -> None:
        """Start empty tables with a prefix of which some blocks must be filled from elsewhere.

        The blocks to be filled are taken from the pool, which must have as many.
        """
        visible = self.visible_entries(prefix.num_tokens)
        for found, entries in zip(prefix.groups, visible, strict=True):
            for index in entries:  # all before any is taken, which may evict them
                if found[index] != SCRATCH:
                    self.pool.hold(found[index])
        tables.num_left = tuple(entries.start for entries in visible)
        for table, found, entries in zip(tables.groups, prefix.groups, visible, strict=True):
            assert not table, "only empty tables can start with a prefix"
            table += [SCRATCH] * entries.start
            table += [found[index] or self.pool.take() for index in entries]
        # What is to be filled is offered to the cache when the next step has been computed.
        tables.num_committed = 0

    def slide(self, tables: BlockTables, position: int) -> None:
        """Give back the blocks that no token from `position` on can see."""
        for group in self._windowed:
            table, before = tables.groups[group], tables.num_left[group]
            num_left = self._num_left(group, position)
            if num_left == before:
                continue
            for index in range(before, num_left):
                self.pool.give_back(table[index])
                table[index] = SCRATCH
            others = tables.num_left
            tables.num_left = (*others[:group], num_left, *others[group + 1 :])

    def changes_at(self, position_R: npt.NDArray[np.int64]) -> list[int]:
        """Return which positions begin a block, or are the first that don't see one any more.

        Where tables are slid and allocated for each position in turn, the others change nothing.
        """
        is_change_R = position_R % self.block_size == 0
        for window in filter(None, self._windows):
            is_change_R |= (position_R - window + 1) % self.block_size == 0
        found: list[int] = np.flatnonzero(is_change_R).tolist()
        return found

    def allocate(self, tables: BlockTables, num_tokens: int) -> None:
        """Make the tables reach so many tokens; the pool must have num_new_blocks."""
        for _ in range(len(tables.groups[0]), self.num_blocks(num_tokens)):
            for table in tables.groups:
                table.append(self.pool.take())

    def trim(self, tables: BlockTables, num_tokens: int) -> bool:
        """Give back blocks that so many tokens don't reach; return whether there were any."""
        num_blocks = self.num_blocks(num_tokens)
        if len(tables.groups[0]) <= num_blocks:
            return False
        for table in tables.groups:
            for block in table[num_blocks:]:
                self.pool.give_back(block)
            del table[num_blocks:]
        return True

    def commit(self, tables: BlockTables, token_ids: Sequence[int], num_computed: int) -> None:
        """Cache the blocks that so many computed tokens fill.

        From now on `find_prefix` finds them, for any sequence with the same root.
        """
        num_full = self.num_full_blocks(num_computed)
        if num_full == tables.num_committed:
            return
        self._extend_digests(tables, token_ids, num_full)
        for index in range(tables.num_committed, num_full):
            for group, table in enumerate(tables.groups):
                if table[index] != SCRATCH:
                    self.pool.register(table[index], (group, tables.digests[index]))
        tables.num_committed = num_full

    def release(self, tables: BlockTables) -> None:
        """Give all blocks back, the last first: without its first a chain is of no use."""
        for column in reversed(list(zip(*tables.groups, strict=True))):
            for block in column:
                if block != SCRATCH:
                    self.pool.give_back(block)
        for table in tables.groups:
            table.clear()
        tables.num_left = (0,) * len(self._windows)
        tables.num_committed = 0

    def visible_entries(self, num_tokens: int) -> tuple[range, ...]:
        """Return, per group, which table entries the tokens after so many can see."""
        num_blocks = self.num_blocks(num_tokens)
        return tuple(
            range(self._num_left(group, num_tokens), num_blocks)
            for group in range(len(self._windows))
        )

    def _num_left(self, group: int, position: int) -> int:
        """Count the leading blocks that no token from `position` on can see."""
        window = self._windows[group]
        return 0 if window is None else max(0, position - window + 1) // self.block_size

    # The prefix cache

    def find_prefix(self, tables: BlockTables, token_ids: Sequence[int], limit: int) -> Prefix:
        """Return the longest cached prefix of at most `limit` of these tokens."""
        most = self.num_full_blocks(limit)
        num_blocks = self._fit_windows(tables, self._longest_chain(tables, token_ids, most))
        digests = tables.digests[:num_blocks]
        groups = tuple(self._cached_table(group, digests) for group in range(len(self._windows)))
        return Prefix(num_blocks * self.block_size, groups)

    def find_blocks(self, tables: BlockTables, token_ids: Sequence[int], num_tokens: int) -> Prefix:
        """Return the cached blocks of these tokens that the tokens after them can see.

        A block that isn't cached is 0 in the result.
        """
        num_full = self.num_full_blocks(num_tokens)
        self._extend_digests(tables, token_ids, num_full)
        groups = []
        for group, entries in enumerate(self.visible_entries(num_tokens)):
            keys = [(group, digest) for digest in tables.digests[entries.start : num_full]]
            found = [SCRATCH if block is None else block for block in map(self.pool.find, keys)]
            num_partial = len(entries) - len(found)
            groups.append([SCRATCH] * entries.start + found + [SCRATCH] * num_partial)
        return Prefix(num_tokens, tuple(groups))

    def _cached_table(self, group: int, digests: list[bytes]) -> list[int]:
        num_left = self._num_left(group, len(digests) * self.block_size)
        found = (self.pool.find((group, digest)) for digest in digests[num_left:])
        return [SCRATCH] * num_left + [block for block in found if block is not None]

    def _longest_chain(self, tables: BlockTables, token_ids: Sequence[int], most: int) -> int:
        """Count the leading blocks that every group without a window has."""
        if not self._unwindowed:
            self._extend_digests(tables, token_ids, most)
            return most
        for index in range(most):
            self._extend_digests(tables, token_ids, index + 1)
            if any(not self._has(group, tables.digests[index]) for group in self._unwindowed):
                return index
        return most

    def _fit_windows(self, tables: BlockTables, num_blocks: int) -> int:
        """Shorten a prefix until its last block, and all that the next token sees, is cached."""
        while num_blocks and (missing := self._last_missing(tables, num_blocks)) is not None:
            num_blocks = missing  # all longer prefixes have the missing block in their window too
        return num_blocks

    def _last_missing(self, tables: BlockTables, num_blocks: int) -> int | None:
        for group in self._windowed:
            num_left = self._num_left(group, num_blocks * self.block_size)
            # A window of 1 shows nothing of the prefix; its last block proves that it was computed.
            for index in reversed(range(min(num_left, num_blocks - 1), num_blocks)):
                if not self._has(group, tables.digests[index]):
                    return index
        return None

    def full_digests(
        self, tables: BlockTables, token_ids: Sequence[int], num_blocks: int | None = None
    ) -> Sequence[bytes]:
        """Return the digests of these tokens' full blocks, of the first ones or of all.

        The list is empty where requests don't share the cache.
        """
        if not self._enable_prefix_cache:
            return ()
        num_full = self.num_full_blocks(len(token_ids)) if num_blocks is None else num_blocks
        self._extend_digests(tables, token_ids, num_full)
        return tables.digests[:num_full]

    def _has(self, group: int, digest: bytes) -> bool:
        return self.pool.find((group, digest)) is not None

    def _extend_digests(self, tables: BlockTables, token_ids: Sequence[int], num: int) -> None:
        digests = tables.digests
        while len(digests) < num:
            start = len(digests) * self.block_size
            parent = digests[-1] if digests else tables.root
            tokens = self._pack(*token_ids[start : start + self.block_size])
            digests.append(hashlib.sha256(parent + tokens).digest())
