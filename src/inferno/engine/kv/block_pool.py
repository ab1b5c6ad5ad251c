"""A pool of blocks: which are free, how often each other one is held, and what it caches."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable

Key = tuple[int, bytes]  # group of layers, digest of all tokens up to the block's last


class BlockPool:
    """A pool of the blocks 1 to num_blocks; every operation takes constant time.

    A block is free, or in use (held at least once), or idle: held by nobody, but cached, so that
    it can still be found. Idle blocks are evicted when no free one is left, the least recently
    used first.

    on_evict    is told of each block that is evicted, and its key, before anybody writes to it.
    """

    def __init__(self, num_blocks: int) -> None:
        self.num_blocks = num_blocks
        self.on_evict: Callable[[int, Key], None] | None = None
        self.reset()

    def reset(self) -> None:
        """Make all blocks free, whoever holds them."""
        self._ref_counts = [0] * (self.num_blocks + 1)
        self._free = deque(range(1, self.num_blocks + 1))
        self._idle: OrderedDict[int, None] = OrderedDict()  # least recently used first
        self._cached: dict[Key, int] = {}
        self._keys: dict[int, Key] = {}  # the other way round

    @property
    def num_available(self) -> int:
        """Return the number of blocks that `take` can give."""
        return len(self._free) + len(self._idle)

    @property
    def num_idle(self) -> int:
        """Return the number of available blocks whose content is still cached."""
        return len(self._idle)

    def is_in_use(self, block: int) -> bool:
        return self._ref_counts[block] > 0

    def take(self) -> int:
        """Take a block to write to, held once; `num_available` must not be 0."""
        block = self._free.popleft() if self._free else self._evict()
        self._ref_counts[block] = 1
        return block

    def _evict(self) -> int:
        block, _ = self._idle.popitem(last=False)
        key = self._keys.pop(block)
        del self._cached[key]
        if self.on_evict is not None:
            self.on_evict(block, key)
        return block

    def hold(self, block: int) -> None:
        """Hold a cached block once more; from now on the block is only read."""
        assert block in self._keys, f"block {block} is not cached, so it can't be shared"
        if not self._ref_counts[block]:
            del self._idle[block]
        self._ref_counts[block] += 1

    def give_back(self, block: int) -> None:
        """Hold a block once less; without holders it is idle, or free if not cached."""
        assert self._ref_counts[block] > 0, f"block {block} is given back more often than held"
        self._ref_counts[block] -= 1
        if self._ref_counts[block]:
            return
        if block in self._keys:
            self._idle[block] = None
        else:
            self._free.append(block)

    def find(self, key: Key) -> int | None:
        """Return the block that is cached under a key, or None."""
        return self._cached.get(key)

    def register(self, block: int, key: Key) -> None:
        """Cache a block that is held under a key, unless another block has that key."""
        if key not in self._cached:
            self._cached[key] = block
            self._keys[block] = key
