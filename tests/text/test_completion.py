"""Results by their former names."""

from __future__ import annotations

import pytest

from inferno.text.completion import Chunk


def test_the_former_name_of_an_index_works_and_warns() -> None:
    chunk = Chunk(sequence_index=2, pieces=(), token_ids=())
    with pytest.warns(DeprecationWarning, match="called sequence_index now"):
        assert chunk.sample_index == 2
