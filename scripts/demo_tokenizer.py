"""The tokenizer that both embedded models share, trained on their corpus."""

from __future__ import annotations

import random
import re
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path

from demo_corpus import BOS, SPECIAL_TOKENS, Document, documents
from tokenizers import Tokenizer, decoders, pre_tokenizers, processors
from tokenizers.models import BPE
from tokenizers.trainers import BpeTrainer

VOCABULARY = 2048
_NUM_DOCUMENTS = 20_000
_SPECIAL_TOKEN = re.compile(r"<\|\w+\|>")


def train_tokenizer(seed: int) -> Tokenizer:
    """A byte-level BPE that spells every text without loss and sees each digit by itself."""
    tokenizer = Tokenizer(BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=list(SPECIAL_TOKENS),
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    drawn = islice(documents(random.Random(f"tokenizer {seed}")), _NUM_DOCUMENTS)
    tokenizer.train_from_iterator(_without_special_tokens(drawn), trainer)
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{BOS} $A",
        pair=f"{BOS} $A $B",
        special_tokens=[(BOS, SPECIAL_TOKENS.index(BOS))],
    )
    return tokenizer


def load_tokenizer(folder: Path) -> Tokenizer:
    """The tokenizer of a model's folder."""
    return Tokenizer.from_file(str(folder / "tokenizer.json"))


def _without_special_tokens(drawn: Iterable[Document]) -> Iterator[str]:
    for document in drawn:
        for piece in document:
            yield from filter(None, _SPECIAL_TOKEN.split(piece.text))
