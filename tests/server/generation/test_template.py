"""TextTemplate: an event with any text is what its maker would make of it."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from inferno.server.generation.streams import TextTemplate

ANY_TEXT = st.text(st.characters(exclude_categories=["Cs"]))


@given(st.lists(ANY_TEXT, min_size=1), ANY_TEXT)
def test_only_the_text_changes(texts: list[str], name: str) -> None:
    def make(text: str) -> bytes:
        return json.dumps({"name": name, "text": text, "again": [text]}).encode()

    template = TextTemplate(make)
    for text in texts:
        told = json.loads(template.fill(text))
        assert told == {"name": name, "text": text, "again": [text]}
