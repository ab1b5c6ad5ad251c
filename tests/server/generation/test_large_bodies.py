"""BodyReader of some MiB: whatever their strings hold, they are read, or 413 names the limit."""

from __future__ import annotations

import pytest

from tests.server.hosting import Host

FIVE_MIB = 5 << 20
JSON = {"Content-Type": "application/json"}


def body(text: str) -> bytes:
    """A request that says this much in JSON's own spelling, and hardly anything to the model."""
    return f'{{"prompt": [5, 6], "max_tokens": 1, "metadata": {{"a": "{text}"}}}}'.encode()


@pytest.mark.parametrize("unit", ["\\n", '\\"', "\\\\", "\\u00e9", "\\u4e2d", "中", "a"])
def test_a_large_body_may_hold_escapes_and_other_scripts(echo: Host, unit: str) -> None:
    content = body(unit * (FIVE_MIB // len(unit.encode())))
    answer = echo.http.post("/v1/completions", content=content, headers=JSON)
    assert answer.status_code == 200, answer.text


@pytest.mark.parametrize("emoji", ["\U0001f600", "\\ud83d\\ude00"])
def test_one_that_would_be_wide_in_memory_is_413(echo: Host, emoji: str) -> None:
    for size, status in ((FIVE_MIB - (2 << 20), 200), (FIVE_MIB, 413)):
        content = body("a" * size + emoji)
        answer = echo.http.post("/v1/completions", content=content, headers=JSON)
        assert answer.status_code == status, answer.text
    error = answer.json()["error"]
    assert error["code"] == "body_too_large"
    assert "at most 4194304 bytes" in error["message"]
    assert "emoji" in error["message"]
