"""The ledger of what a request writes into the KV cache, and of whether steps read just that."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

import torch
from torch import Tensor

from inferno.ops import Batch, LayerKV
from inferno.ops.batch import first_visible
from inferno.verify.taps import Taps, at

Rows = dict[int, tuple[Tensor, Tensor]]  # position -> key [K, D], value [K, D]


@dataclass(slots=True)
class KVLedger:
    """A ledger, by layer, of what was written and what was read last; `changes`: differences.

    A write is read back from its slot at once, a read goes through the block table, as attention
    does. Memory must not round, so they must agree bit for bit on every device.
    """

    changes: dict[int, list[str]] = field(default_factory=lambda: defaultdict(list))
    num_reads: dict[int, int] = field(default_factory=lambda: defaultdict(int))
    _written: dict[int, Rows] = field(default_factory=lambda: defaultdict(dict))
    _read: dict[int, Rows] = field(default_factory=lambda: defaultdict(dict))

    def write(self, layer: int, batch: Batch, kv: LayerKV) -> Tensor:
        """Note what a step has put into its tokens' slots; returns the keys [T, K, D]."""
        slots, block_size = batch.groups[kv.group].slots_T, kv.keys_NSKD.shape[1]
        where = (slots // block_size, slots % block_size)
        keys, values = (cache[where].contiguous().cpu() for cache in (kv.keys_NSKD, kv.values_NSKD))
        start = batch.context_lens[0] - batch.query_lens[0]
        for offset, row in enumerate(zip(keys, values, strict=True)):
            self._written[layer][start + offset] = row
        return keys

    def read(self, layer: int, batch: Batch, kv: LayerKV) -> tuple[int, Tensor]:
        """Read what a step's queries see: the first position, and the keys from there on."""
        tables = batch.groups[kv.group]
        length, block_size = batch.context_lens[0], kv.keys_NSKD.shape[1]
        first = first_visible(length - batch.query_lens[0], tables.window)
        blocks = tables.block_tables_RB[0].cpu()[first // block_size : -(-length // block_size)]
        skipped = first % block_size
        keys, values = (
            cache[blocks.to(cache.device)].flatten(0, 1)[skipped:][: length - first].cpu()
            for cache in (kv.keys_NSKD, kv.values_NSKD)
        )
        keys, values = keys.contiguous(), values.contiguous()
        self._compare(layer, first, keys, values, block_size)
        return first, keys

    def taps(self) -> Taps:
        """Return the keys and values of every position, as they were read last."""
        result = {}
        for layer, rows in self._read.items():
            keys, values = zip(*(rows[position] for position in sorted(rows)), strict=True)
            result[at(layer, "keys")] = torch.stack(keys)
            result[at(layer, "values")] = torch.stack(values)
        return result

    def _compare(
        self, layer: int, first: int, keys: Tensor, values: Tensor, block_size: int
    ) -> None:
        bad: dict[int, list[int]] = defaultdict(list)
        for offset, row in enumerate(zip(keys, values, strict=True)):
            position = first + offset
            self._read[layer][position] = row
            written = self._written[layer].get(position)
            if written is None:
                continue  # by another op than we watch; that it lacks is told elsewhere
            self.num_reads[layer] += 1
            if not all(map(_same_bits, row, written)):
                bad[position // block_size].append(position)
        for block, positions in bad.items():
            self.changes[layer].append(
                f"block {block} of the request is stale: when position {first + len(keys) - 1} "
                f"reads positions {positions[0]} to {positions[-1]}, they are not as written"
            )


def _same_bits(found: Tensor, expected: Tensor) -> bool:
    return torch.equal(found.view(torch.uint8), expected.view(torch.uint8))
