"""From documents to batches: encode, pack several into a row, keep them from seeing each other."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import torch
from demo_corpus import Document
from tokenizers import Tokenizer
from torch import Tensor

BATCH_TOKENS = 2048  # small: tensors of a few megabytes, which the allocator reuses
ROW_LENGTHS = (256, 512)  # most documents fit the first, all fit the second
_IGNORED = -100  # the label that cross-entropy leaves out
_FULL_ENOUGH = 12  # no document is shorter
_MAX_OPEN_ROWS = 64


@dataclass(frozen=True)
class Batch:
    """Rows of packed documents: `ids` and `labels` [B,T]; `mask` [B,1,T,T], true where to look."""

    ids: Tensor
    labels: Tensor
    mask: Tensor


@dataclass(frozen=True)
class _Encoded:
    ids: list[int]
    is_learned: list[bool]


@dataclass
class _Row:
    length: int
    documents: list[_Encoded] = field(default_factory=list)

    @property
    def room(self) -> int:
        return self.length - sum(len(document.ids) for document in self.documents)


def make_batches(
    documents: Iterator[Document], tokenizer: Tokenizer, num_batches: int, rng: random.Random
) -> list[Batch]:
    """Draw as many documents as it takes to fill `num_batches` batches, in random order."""
    encoded = _draw(documents, tokenizer, num_tokens=num_batches * BATCH_TOKENS)
    rows = _pack(encoded)
    rng.shuffle(rows)
    batches = []
    for length in ROW_LENGTHS:
        same = [row for row in rows if row.length == length]
        size = BATCH_TOKENS // length
        batches += [_collate(same[i : i + size]) for i in range(0, len(same) - size + 1, size)]
    rng.shuffle(batches)
    return batches[:num_batches]


def _draw(
    documents: Iterator[Document], tokenizer: Tokenizer, num_tokens: int
) -> Iterator[_Encoded]:
    """Encode documents until they have `num_tokens` and a little more, for rows that stay open."""
    drawn = 0
    while drawn < num_tokens * 1.01 + 8 * BATCH_TOKENS:
        encoded = _encode(next(documents), tokenizer)
        drawn += len(encoded.ids)
        yield encoded


def _encode(document: Document, tokenizer: Tokenizer) -> _Encoded:
    ids: list[int] = []
    is_learned: list[bool] = []
    for piece in document:
        piece_ids = tokenizer.encode(piece.text, add_special_tokens=False).ids
        ids += piece_ids
        is_learned += [piece.is_learned] * len(piece_ids)
    return _Encoded(ids, is_learned)


def _pack(documents: Iterator[_Encoded]) -> list[_Row]:
    """First fit: each document goes whole into the first open row that has room for it."""
    done: list[_Row] = []
    open_rows: list[_Row] = []
    for document in documents:
        row = next((row for row in open_rows if row.room >= len(document.ids)), None)
        if row is None:
            row = _Row(next(n for n in ROW_LENGTHS if n >= len(document.ids)))
            open_rows.append(row)
        row.documents.append(document)
        if row.room < _FULL_ENOUGH or len(open_rows) > _MAX_OPEN_ROWS:
            fullest = min(open_rows, key=lambda row: row.room)
            open_rows.remove(fullest)
            done.append(fullest)
    return done + open_rows


def _collate(rows: Sequence[_Row]) -> Batch:
    """One tensor row per row; a label is the next token of the same document, if it is learned."""
    shape = (len(rows), rows[0].length)
    ids = torch.zeros(shape, dtype=torch.long)
    labels = torch.full(shape, _IGNORED)
    owner = torch.full(shape, -1)
    for i, row in enumerate(rows):
        start = 0
        for number, document in enumerate(row.documents):
            end = start + len(document.ids)
            tokens = torch.tensor(document.ids)
            learned = torch.tensor(document.is_learned)
            ids[i, start:end] = tokens
            labels[i, start : end - 1] = tokens[1:].masked_fill(~learned[1:], _IGNORED)
            owner[i, start:end] = number
            start = end
    same_document = owner[:, :, None] == owner[:, None, :]
    causal = torch.ones(shape[1], shape[1], dtype=torch.bool).tril()
    return Batch(ids, labels, (same_document & causal)[:, None])
