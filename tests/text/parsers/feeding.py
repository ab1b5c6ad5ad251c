"""Feed a parser ids in parts, and look at what comes out."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from hypothesis import strategies as st

from inferno.text.detokenize import IncrementalDecoder
from inferno.text.parsers.answer import Answer, join_pieces
from inferno.text.parsers.choose import Dialect, make_parser
from inferno.text.parsers.parser import Call, Part, Piece
from inferno.text.tokenizer import Tokenizer
from tests.text.loaded import real_tokenizer

GPT_OSS = "hf/gpt-oss-20b"
QWEN3 = "hf/Qwen3-0.6B"


def fed(
    dialect: Dialect,
    tokenizer: Tokenizer,
    parts: Sequence[Sequence[int]],
    prompt_token_ids: Sequence[int] = (),
) -> list[Piece]:
    decoder = IncrementalDecoder(tokenizer)
    parser = make_parser(dialect, tokenizer, decoder, prompt_token_ids)
    pieces = [piece for part in parts for piece in parser.feed(part)]
    return pieces + parser.finish()


def answer_of(dialect: Dialect, model: str, output: str, prompt: str = "") -> Answer:
    """The answer that an output makes; marks that the texts spell are marks."""
    tokenizer = real_tokenizer(model)
    ids, prompt_ids = (
        tokenizer.encode(text, add_special_tokens=False) for text in (output, prompt)
    )
    return join_pieces(fed(dialect, tokenizer, [[token_id] for token_id in ids], prompt_ids))


def runs(pieces: Sequence[Piece]) -> list[tuple[tuple[Part, Call | None], str]]:
    """Pieces of the same part in a row as one."""
    grouped = groupby(pieces, key=lambda piece: (piece.part, piece.call))
    return [(key, "".join(piece.text for piece in group)) for key, group in grouped]


def parts_of_ids(tokenizer: Tokenizer, marks: Sequence[str]) -> st.SearchStrategy[list[list[int]]]:
    """Ids in parts: marks, words that headers are made of, newlines, bytes, anything."""
    words = ["assistant", "analysis", "final", "comment", "ary", " to", "=", "functions", ".f"]
    known = [tokenizer.encode(word, add_special_tokens=False) for word in [*words, "\n", "\n\n"]]
    token_id = st.one_of(
        st.sampled_from([i for i in map(tokenizer.token_to_id, marks) if i is not None]),
        st.sampled_from([token_id for ids in known for token_id in ids]),
        st.integers(0, 300),
        st.integers(0, tokenizer.vocab_size + 100),
    )
    return st.lists(st.lists(token_id, max_size=8), max_size=16)
