"""Refuse texts that hold half of a surrogate pair, which is no character."""

from __future__ import annotations

import re

from inferno.errors import InvalidRequest

SURROGATE = re.compile("[\ud800-\udfff]")


def check_whole(text: str, name: str, *, param: str) -> None:
    """Raise InvalidRequest for a text with half of a surrogate pair, which UTF-8 can't encode.

    name    of the text, for the message.
    """
    if (found := SURROGATE.search(text)) is not None:
        raise InvalidRequest(
            f"{name} holds half of a surrogate pair, at character {found.start()}: give whole "
            "characters",
            param=param,
        )
