"""Tests of inferno.text.parsers.think with Qwen3's tokenizer and template."""

from __future__ import annotations

from itertools import chain
from pathlib import Path

import pytest

from inferno.model_files import FolderFiles
from inferno.text.chat import load_chat_template
from inferno.text.parsers.answer import Answer, join_pieces
from inferno.text.parsers.choose import Dialect
from inferno.text.parsers.parser import Part
from inferno.text.tokenizer import load_tokenizer
from tests.data import data_path
from tests.text.loaded import added_token, real_tokenizer, small_spec, write_tokenizer
from tests.text.parsers.feeding import QWEN3, answer_of, fed

TURN = "<|im_start|>assistant\n"


def parsed(output: str, prompt: str = TURN) -> tuple[str, str]:
    answer = answer_of(Dialect.THINK, QWEN3, output, prompt)
    assert answer.tool_calls == ()
    return answer.reasoning, answer.content


@pytest.mark.parametrize(
    ("output", "reasoning", "content"),
    [
        ("<think>\nHm, 2 + 2.\n</think>\n\nFour.", "Hm, 2 + 2.", "Four."),
        ("<think>Hm</think>Four", "Hm", "Four"),
        ("\n\n <think>\n\n</think>\n\nFour.\n", "", "Four.\n"),
        ("Four.", "", "Four."),
        ("\n\nFour.", "", "\n\nFour."),
        ("", "", ""),
        ("<think>\nHm,\n\nwell", "Hm,\n\nwell", ""),
        ("<think>\nHm\n\n", "Hm\n\n", ""),
        ("<think>\nHm\n</think>", "Hm", ""),
        ("<think>\n  indented\n  more \n</think>\n\n  x", "  indented\n  more ", "  x"),
        ("<think>a</think>b</think>c<think>d", "a", "b</think>c<think>d"),
        ("<think>a<think>b</think>c", "a<think>b", "c"),
        ("Say <think>a</think>", "", "Say <think>a</think>"),
        ("</think>\n\nFour", "", "Four"),
        ("<think>é 世😀</think>😀", "é 世😀", "😀"),
        ("<think>a</think>b<|im_end|>", "a", "b"),
    ],
)
def test_reasoning_comes_first_and_the_rest_is_content(
    output: str, reasoning: str, content: str
) -> None:
    assert parsed(output) == (reasoning, content)


@pytest.mark.parametrize(
    ("prompt", "output", "reasoning", "content"),
    [
        (TURN + "<think>\n", "Hm\n</think>\n\nFour", "Hm", "Four"),
        (TURN + "<think>\n", "<think>\nHm\n</think>\n\nFour", "Hm", "Four"),
        (TURN + "<think>\nHm,", "\nwell</think>Four", "\nwell", "Four"),
        (TURN + "<think>\nHm\n", "well", "well", ""),
        (TURN + "<think>\n\n</think>\n\n", "Four</think>", "", "Four</think>"),
        (TURN + "<think>\nHm\n</think>\n\nFo", "ur", "", "ur"),
        ("<|im_start|>user\nWhat is <think>?<|im_end|>\n" + TURN, "A tag.", "", "A tag."),
    ],
)
def test_an_output_continues_its_prompt(
    prompt: str, output: str, reasoning: str, content: str
) -> None:
    assert parsed(output, prompt) == (reasoning, content)


@pytest.mark.parametrize("turn", ["<｜Assistant｜>", "</s>"])
def test_what_a_user_wrote_opens_nothing_whatever_kind_of_token_ends_a_turn(
    turn: str, tmp_path: Path
) -> None:
    spec = small_spec()
    marks = ["<think>", "</think>", "<｜Assistant｜>"]
    spec["added_tokens"] += [
        added_token(token_id, mark, special=False) for token_id, mark in enumerate(marks, start=512)
    ]
    tokenizer = load_tokenizer(FolderFiles(write_tokenizer(tmp_path, spec)))
    output = tokenizer.encode("one", add_special_tokens=False)
    for opened, part in (("", Part.CONTENT), ("<think>", Part.REASONING)):
        prompt = tokenizer.encode(f"What is <think>?{turn}{opened}")
        pieces = fed(Dialect.THINK, tokenizer, [output], prompt)
        assert {piece.part for piece in pieces} == {part}


@pytest.mark.parametrize("thinks", [True, False])
def test_the_models_own_template_begins_the_output(thinks: bool) -> None:
    tokenizer = real_tokenizer(QWEN3)
    template = load_chat_template(FolderFiles(data_path("hf", "Qwen3-0.6B")), tokenizer)
    assert template is not None
    user = {"role": "user", "content": "Is <think> a tag?"}
    prompt = template.encode([user], kwargs={"enable_thinking": thinks})
    template.close()
    output = "<think>\nHm\n</think>\n\nYes" if thinks else "Yes"
    ids = tokenizer.encode(output, add_special_tokens=False)
    expected = Answer("Hm" if thinks else "", "Yes")
    assert join_pieces(fed(Dialect.THINK, tokenizer, [ids], prompt)) == expected


def test_marks_spelled_in_other_tokens_are_text() -> None:
    tokenizer = real_tokenizer(QWEN3)
    spelled = [tokenizer.encode(text) for text in ("<think>", "a</", "think>b")]
    answer = join_pieces(fed(Dialect.THINK, tokenizer, spelled))
    assert answer == Answer("a</think>b", "")


def test_half_a_character_stays_on_its_side_of_a_mark() -> None:
    tokenizer = real_tokenizer(QWEN3)
    [half, *_] = tokenizer.encode("𝔘")
    [opens], [closes], [x] = map(tokenizer.encode, ("<think>", "</think>", "x"))
    pieces = fed(Dialect.THINK, tokenizer, [[opens, half, closes, x]])
    assert join_pieces(pieces) == Answer("\ufffd", "x")


def test_a_text_comes_with_its_token() -> None:
    tokenizer = real_tokenizer(QWEN3)
    ids = tokenizer.encode("<think>Well then</think>So it is")
    pieces = [fed(Dialect.THINK, tokenizer, [ids[:n]]) for n in range(len(ids) + 1)]
    lengths = [len("".join(piece.text for piece in part)) for part in pieces]
    assert len(set(lengths)) == len(ids) - 1  # all but the two marks bring text


def test_no_piece_holds_half_a_character() -> None:
    tokenizer = real_tokenizer(QWEN3)
    ids = tokenizer.encode("<think>👩‍👩‍👧 世</think>👩‍👩‍👧 𝔘")
    pieces = fed(Dialect.THINK, tokenizer, [[token_id] for token_id in ids])
    assert "\ufffd" not in "".join(chain(*(piece.text for piece in pieces)))
