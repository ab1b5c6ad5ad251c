"""Find prompts that begin like others under way: they wait for those blocks, and share them.

A sequence claims the blocks of its prompt when it begins to run. Another one that would compute the
same next block waits until the first has, and finds it in the prefix cache.
"""

from __future__ import annotations

from itertools import takewhile

from inferno.engine.kv.block_manager import BlockManager, Prefix
from inferno.engine.scheduling.sequence import SequenceState, Status


class SharedPrompts:
    """Knows which running sequence is about to compute which full blocks, by their digests."""

    def __init__(self, blocks: BlockManager) -> None:
        self._blocks = blocks
        self._computing: dict[bytes, SequenceState] = {}

    @property
    def claimed(self) -> set[bytes]:
        """Return the digests of all blocks that somebody is about to compute."""
        return set(self._computing)

    def clear(self) -> None:
        """Forget all claims."""
        self._computing.clear()

    def claim(self, sequence: SequenceState) -> None:
        """Note that a sequence computes the blocks of its tokens, but for what others claimed."""
        sequence.claimed = self._blocks.full_digests(sequence.tables, sequence.token_ids)
        for digest in sequence.claimed:
            self._computing.setdefault(digest, sequence)

    def release(self, sequence: SequenceState) -> None:
        """Forget which blocks a sequence was about to compute: it has, or never will."""
        for digest in sequence.claimed:
            if self._computing.get(digest) is sequence:
                del self._computing[digest]
        sequence.claimed = ()

    def is_computed(self, sequence: SequenceState, first: SequenceState) -> bool:
        """Return whether a sequence need not wait for blocks of its prompt that others compute.

        first   of its request's sequences, which computes the prompt; the others find it in the
                cache.
        """
        if self._is_waiting(sequence):
            return False
        if sequence is first or first.status is Status.FINISHED:
            return True
        num_shared = self._blocks.num_full_blocks(first.num_prompt_tokens - 1)
        return first.tables.num_committed >= num_shared

    def _is_waiting(self, sequence: SequenceState) -> bool:
        """Return whether the blocks that a sequence was found to wait for are still to come."""
        if sequence.awaited is None:
            return False
        other, num_blocks = sequence.awaited
        return bool(other.claimed) and other.tables.num_committed < num_blocks

    def find_awaited(
        self, sequence: SequenceState, prefix: Prefix, most_cached: int
    ) -> tuple[SequenceState, int] | None:
        """Find the sequence that is about to compute more blocks of the same prompt, and how many.

        most_cached     tokens that the sequence may find in the prefix cache.
        """
        num_cached = self._blocks.num_full_blocks(prefix.num_tokens)
        most = self._blocks.num_full_blocks(most_cached)
        if num_cached >= most:
            return None
        digests = self._blocks.full_digests(sequence.tables, sequence.token_ids, num_cached + 1)
        other = self._computing.get(digests[-1]) if digests else None
        if other is None or other.rank > sequence.rank or other.tables.num_committed > num_cached:
            return None
        if other.request.priority < sequence.request.priority:
            return None  # its turn may be far off
        digests = self._blocks.full_digests(sequence.tables, sequence.token_ids, most)
        pairs = zip(digests, other.claimed, strict=False)
        return other, sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
