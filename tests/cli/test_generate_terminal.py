"""`inferno generate` as a person at a terminal sees it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.terminal import Terminal


def generate(
    *arguments: str, columns: int = 40, variables: dict[str, str | None] | None = None
) -> Terminal:
    asked = ["generate", *arguments, "--threads", "1", "-t", "0"]
    return Terminal(*asked, columns=columns, variables=variables)


@pytest.mark.slow
@pytest.mark.parametrize("variables", [{}, {"TERM": "dumb"}, {"NO_COLOR": "1"}], ids=str)
def test_a_prompt_is_shown_before_its_text_and_words_stay_whole(
    variables: dict[str, str | None],
) -> None:
    with generate("-p", "Once upon a time", "--max-tokens", "60", variables=variables) as terminal:
        assert terminal.wait_for_end() == 0
        lines = terminal.text.splitlines()
    assert lines[0].startswith("Once upon a time, there was")
    with generate("-p", "Once upon a time", "--max-tokens", "60", columns=400) as wide:
        assert wide.wait_for_end() == 0
        words = wide.text.split()
    assert [word for line in lines for word in line.split()] == words


@pytest.mark.slow
def test_a_message_is_answered_without_being_shown(folder: Path) -> None:
    with generate("--chat", "-p", "What is 2 + 3?", "--max-tokens", "40") as terminal:
        assert terminal.wait_for_end() == 0
        assert "What is" not in terminal.text
        assert "5" in terminal.text


@pytest.mark.slow
def test_texts_of_several_prompts_break_between_words() -> None:
    asked = ["-p", "The sun", "-p", "A little dog", "--max-tokens", "40"]
    with generate(*asked) as terminal:
        assert terminal.wait_for_end() == 0
        narrow = terminal.text
    with generate(*asked, columns=400) as terminal:
        assert terminal.wait_for_end() == 0
        wide = terminal.text
    assert narrow.partition("First")[0].split()[:60] == wide.partition("First")[0].split()[:60]
