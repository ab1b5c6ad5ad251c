"""From documents to batches: encode them, and put documents of like length side by side."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from demo_corpus import Document
from tokenizers import Tokenizer
from torch import Tensor

BATCH_TOKENS = 2048
LONGEST_ROW = 1024
IGNORED = -100  # the label that cross-entropy leaves out
_POOL_BATCHES = 64


@dataclass(frozen=True)
class Batch:
    """Documents of like length, a row each: `ids` and `labels` [B,T], padded on the right.

    Attention is causal, so no document sees another or the padding, and no mask is needed.
    """

    ids: Tensor
    labels: Tensor


@dataclass(frozen=True)
class _Encoded:
    ids: list[int]
    is_learned: list[bool]


def draw_batches(
    documents: Iterator[Document], tokenizer: Tokenizer, rng: random.Random
) -> Iterator[Batch]:
    """Batches without end; a pool of documents is sorted by length and cut, then shuffled."""
    while True:
        pool: list[_Encoded] = []
        num_tokens = 0
        while num_tokens < _POOL_BATCHES * BATCH_TOKENS:
            pool.append(_encode(next(documents), tokenizer))
            num_tokens += len(pool[-1].ids)
        pool.sort(key=lambda document: len(document.ids))
        batches = list(_cut(pool))
        rng.shuffle(batches)
        yield from map(_collate, batches)


def _encode(document: Document, tokenizer: Tokenizer) -> _Encoded:
    """The longest beginning of a document that ends with an answer and fits the longest row."""
    ids: list[int] = []
    is_learned: list[bool] = []
    end = 0
    for piece in document:
        piece_ids = tokenizer.encode(piece.text, add_special_tokens=False).ids
        ids += piece_ids
        is_learned += [piece.is_learned] * len(piece_ids)
        if len(ids) > LONGEST_ROW:
            break
        if piece.is_learned:
            end = len(ids)
    return _Encoded(ids[:end], is_learned[:end])


def _cut(pool: Sequence[_Encoded]) -> Iterator[list[_Encoded]]:
    """Neighbours of the sorted pool, as many as fit a batch at the length of the longest."""
    rows: list[_Encoded] = []
    for document in pool:
        if rows and (len(rows) + 1) * len(document.ids) > BATCH_TOKENS:
            yield rows
            rows = []
        rows.append(document)
    if rows:
        yield rows


def _collate(rows: Sequence[_Encoded]) -> Batch:
    """One tensor row per document; a label is the next token, if it is learned."""
    shape = (len(rows), max(len(document.ids) for document in rows))
    ids = torch.zeros(shape, dtype=torch.long)
    labels = torch.full(shape, IGNORED)
    for i, document in enumerate(rows):
        end = len(document.ids)
        tokens = torch.tensor(document.ids)
        learned = torch.tensor(document.is_learned)
        ids[i, :end] = tokens
        labels[i, : end - 1] = tokens[1:].masked_fill(~learned[1:], IGNORED)
    return Batch(ids, labels)
