"""Keep what preempted sequences have computed in host memory, as blocks that are copied.

A host block is reserved for each block of a preempted sequence that its next token can see. What
the prefix cache can still find isn't copied: its block goes to the host when it is evicted, and if
that never happens, the sequence shares it again. Blocks under one key have one host block, however
many sequences want it. Where the host lacks room, or copying would take longer than computing, the
sequence computes its tokens again.

Copies travel in plans, and devices run plans in order, so bytes are there for every later plan. But
a plan may fail, and nobody knows then which of its copies were made. So what is copied to the host
is taken back only by the same plan, or when its plan has ended well; and a failure makes all that
lies there void.
"""

from __future__ import annotations

import math
from collections import Counter, deque
from dataclasses import dataclass

from inferno.engine.kv.block_manager import SCRATCH, BlockManager, BlockTables, Prefix
from inferno.engine.kv.block_pool import Key
from inferno.engine.step_plan import BlockCopies


@dataclass(slots=True, eq=False)
class OffloadedTokens:
    """The leading tokens of a sequence whose keys and values are kept in host memory.

    groups      per group of layers and entry that the next token sees: the host block.
    back        the host blocks to copy back, and the blocks to copy them to, once the sequence has
                blocks.
    """

    num_tokens: int
    groups: tuple[tuple[int, ...], ...]
    back: tuple[tuple[int, int], ...] = ()


class Offload:
    """The manager of host blocks: what each of them keeps for whom, and which copies are due.

    num_host_blocks     0 where preempted sequences compute their tokens again.
    seconds_per_block   of a copy, measured; with 0 copying always counts as cheaper.
    """

    def __init__(
        self, blocks: BlockManager, num_host_blocks: int = 0, seconds_per_block: float = 0.0
    ) -> None:
        self.num_host_blocks = num_host_blocks
        self._blocks = blocks
        self._seconds_per_block = seconds_per_block
        self._unsettled: Counter[int] = Counter()  # host blocks that plans in flight copy to
        self.num_saved = 0
        self.forget()
        blocks.pool.on_evict = self._note_eviction

    def forget(self) -> None:
        """Make all host blocks free, whoever keeps something there."""
        self._free = deque(range(self.num_host_blocks))
        self._ref_counts = [0] * self.num_host_blocks
        self._by_key: dict[Key, int] = {}
        self._keys: dict[int, Key] = {}  # the other way round
        self._filled: set[int] = set()  # by a copy that was made or is due
        self._due: dict[int, int] = {}  # host block to the block that is copied there
        self._taken_back: list[OffloadedTokens] = []  # by the plan that is being made

    def settle(self, copies: BlockCopies) -> None:
        """Note that the plan with these copies is in flight no more."""
        if copies.out:
            self._unsettled.subtract(host for _, host in copies.out)
            self._unsettled = +self._unsettled

    def settle_all(self) -> None:
        """Note that no plan is in flight any more."""
        self._unsettled.clear()

    @property
    def num_used(self) -> int:
        """Return how many host blocks are kept for somebody."""
        return self.num_host_blocks - len(self._free)

    @property
    def has_due(self) -> bool:
        """Return whether the next plan must copy blocks out before they are written to."""
        return bool(self._due)

    # A sequence is preempted

    def save(
        self, tables: BlockTables, num_tokens: int, recompute_seconds: float | None
    ) -> OffloadedTokens | None:
        """Keep the first so many tokens of block tables that are about to be released.

        recompute_seconds   the time it would take to compute the tokens again; None if unknown.

        Returns None where the tokens are to be computed again, as that is cheaper or the host is
        full.
        """
        visible = self._blocks.visible_entries(num_tokens)
        num_entries = sum(map(len, visible))
        if not num_tokens or not self._is_cheaper(num_entries, recompute_seconds):
            return None
        keys = [
            (group, tables.digests[index]) if index < tables.num_committed else None
            for group, entries in enumerate(visible)
            for index in entries
        ]
        num_known = sum(key in self._by_key for key in keys)
        if num_entries - num_known > len(self._free):
            return None
        each_key = iter(keys)
        groups = tuple(
            tuple(self._reserve(table[index], next(each_key)) for index in entries)
            for table, entries in zip(tables.groups, visible, strict=True)
        )
        self.num_saved += 1
        return OffloadedTokens(num_tokens, groups)

    def _is_cheaper(self, num_blocks: int, recompute_seconds: float | None) -> bool:
        copy_seconds = 2 * num_blocks * self._seconds_per_block  # there and back
        if recompute_seconds is None:
            recompute_seconds = 0.0 if copy_seconds else math.inf
        return copy_seconds < recompute_seconds

    def _reserve(self, block: int, key: Key | None) -> int:
        """Return a host block for what a block holds, and have it copied unless it may wait."""
        assert block != SCRATCH, "what the next token sees has a block"
        host = None if key is None else self._by_key.get(key)
        if host is None:
            host = self._free.popleft()
            if key is not None:
                self._by_key[key] = host
                self._keys[host] = key
            if key is None or self._blocks.pool.find(key) is None:
                self._copy_out(block, host)
        self._ref_counts[host] += 1
        return host

    def _note_eviction(self, block: int, key: Key) -> None:
        host = self._by_key.get(key)
        if host is not None and host not in self._filled:
            self._copy_out(block, host)

    def _copy_out(self, block: int, host: int) -> None:
        self._due[host] = block
        self._filled.add(host)

    # It comes back

    def find(
        self, tables: BlockTables, token_ids: list[int], kept: OffloadedTokens, prefix: Prefix
    ) -> Prefix:
        """Return the prefix with which a sequence starts: the kept one, or a longer cached one."""
        if prefix.num_tokens > kept.num_tokens:
            return prefix
        return self._blocks.find_blocks(tables, token_ids, kept.num_tokens)

    def start(
        self, tables: BlockTables, prefix: Prefix, kept: OffloadedTokens | None
    ) -> OffloadedTokens | None:
        """Start empty tables with a prefix that was just found.

        Returns what the sequence's first step is to copy back; None where nothing is.
        """
        if kept is None or prefix.num_tokens != kept.num_tokens:
            self.release(kept)
            self._blocks.share(tables, prefix)
            return None
        self._blocks.restore(tables, prefix)
        kept.back = tuple(
            (host, tables.groups[group][index])
            for group, entries in enumerate(self._blocks.visible_entries(kept.num_tokens))
            for host, index in zip(kept.groups[group], entries, strict=True)
            if index >= len(prefix.groups[group]) or prefix.groups[group][index] == SCRATCH
        )
        return kept

    def can_take_back(self, kept: OffloadedTokens) -> bool:
        """Return whether no plan in flight still has blocks to copy that are to come back."""
        return not self._unsettled or not any(host in self._unsettled for host, _ in kept.back)

    def take_back(self, kept: OffloadedTokens) -> None:
        """Have the plan being made copy back all blocks that a sequence lacks."""
        assert all(host in self._filled for host, _ in kept.back), "a host block holds nothing"
        self._taken_back.append(kept)

    def release(self, kept: OffloadedTokens | None) -> None:
        """Free the host blocks of a sequence that no other sequence wants."""
        if kept is None:
            return
        for host in (host for group in kept.groups for host in group):
            self._ref_counts[host] -= 1
            if self._ref_counts[host]:
                continue
            self._free.append(host)
            self._filled.discard(host)
            self._due.pop(host, None)
            if host in self._keys:
                del self._by_key[self._keys.pop(host)]

    def copies(self) -> BlockCopies:
        """Return the copies of the plan that is sent now; afterwards they are due no more."""
        if not self._due and not self._taken_back:
            return BlockCopies()
        out = tuple((block, host) for host, block in self._due.items())
        back = tuple(pair for kept in self._taken_back for pair in kept.back)
        self._unsettled.update(self._due.keys())
        self._due.clear()
        for kept in self._taken_back:  # not before, for their blocks may be among those of `out`
            self.release(kept)
        self._taken_back.clear()
        return BlockCopies(out, back)
