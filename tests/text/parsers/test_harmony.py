"""Tests of inferno.text.parsers.harmony with gpt-oss's tokenizer, on outputs good and bad."""

from __future__ import annotations

import pytest

from inferno.text.parsers.answer import Answer, ToolCall, join_pieces
from inferno.text.parsers.choose import Dialect
from inferno.text.parsers.harmony import MAX_HEADER_TOKENS
from inferno.text.parsers.parser import Call, Part, Piece
from tests.text.loaded import real_tokenizer
from tests.text.parsers.feeding import GPT_OSS, answer_of, fed

TURN = "<|start|>assistant"
ANALYSIS = "<|channel|>analysis<|message|>"
FINAL = "<|channel|>final<|message|>"


def parsed(output: str, prompt: str = TURN) -> Answer:
    return answer_of(Dialect.HARMONY, GPT_OSS, output, prompt)


@pytest.mark.parametrize("end", ["<|return|>", ""])
def test_analysis_is_reasoning_and_final_is_content(end: str) -> None:
    output = f"{ANALYSIS}Simple: é 世😀\n<|end|><|start|>assistant{FINAL}2 + 2 = 4.\n{end}"
    assert parsed(output) == Answer("Simple: é 世😀\n", "2 + 2 = 4.\n")


@pytest.mark.parametrize(
    "header",
    [
        "<|channel|>commentary to=functions.get_weather <|constrain|>json",
        "<|channel|>commentary to=functions.get_weather<|constrain|>json",
        "<|channel|>commentary to=functions.get_weather json",
        "<|channel|>commentary to=functions.get_weather",
        " to=functions.get_weather<|channel|>commentary json",
        " to=functions.get_weather<|channel|>commentary <|constrain|>json",
        "<|channel|>analysis to=functions.get_weather code",
        "<|channel|>commentary functions.get_weather",
        " to=functions.get_weather",
    ],
)
def test_a_recipient_anywhere_in_the_header_makes_a_call(header: str) -> None:
    output = f'{ANALYSIS}Call it.<|end|><|start|>assistant{header}<|message|>{{"a": 1}}<|call|>'
    expected = Answer("Call it.", "", (ToolCall("get_weather", '{"a": 1}'),))
    assert parsed(output) == expected


def test_a_built_in_tool_keeps_its_name() -> None:
    output = "<|channel|>analysis to=python code<|message|>1 + 1<|call|>"
    assert parsed(output) == Answer("", "", (ToolCall("python", "1 + 1"),))


def test_a_call_is_announced_and_each_piece_names_it() -> None:
    tokenizer = real_tokenizer(GPT_OSS)
    output = (
        "<|channel|>commentary to=functions.f<|message|><|call|>"
        "<|start|>assistant<|channel|>commentary to=functions.g<|message|>{}<|call|>"
    )
    assert fed(Dialect.HARMONY, tokenizer, [tokenizer.encode(output)]) == [
        Piece(Part.TOOL_CALL, "", Call(0, "f")),
        Piece(Part.TOOL_CALL, "", Call(1, "g")),
        Piece(Part.TOOL_CALL, "{}", Call(1, "g")),
    ]


def test_a_plan_in_the_commentary_is_content_apart_from_the_answer() -> None:
    commentary = "<|channel|>commentary<|message|>First, a plan.<|end|><|start|>assistant"
    again = f"{ANALYSIS}a<|end|><|start|>assistant"
    output = f"{again}{commentary}{again}{FINAL}Done.<|return|>"
    assert parsed(output) == Answer("a\n\na", "First, a plan.\n\nDone.")


@pytest.mark.parametrize(
    ("prompt", "output", "expected"),
    [
        (f"{TURN}{FINAL}Well,", " yes.<|return|>", Answer("", " yes.")),
        (f"{TURN}{ANALYSIS}Hm", f"m<|end|>{TURN}{FINAL}a", Answer("m", "a")),
        (f"{TURN}{ANALYSIS}Hm<|end|>{TURN}<|channel|>", "final<|message|>a", Answer("", "a")),
        (
            f"{TURN}{FINAL}a<|end|><|start|>user<|message|>b<|end|>{TURN}",
            FINAL + "c",
            Answer("", "c"),
        ),
        (f"{TURN}{FINAL}a", f"<|end|>{TURN}{FINAL}b", Answer("", "b")),
        ("", f"{ANALYSIS}a<|end|>{TURN}{FINAL}b", Answer("a", "b")),
    ],
)
def test_an_output_continues_its_prompt(prompt: str, output: str, expected: Answer) -> None:
    assert parsed(output, prompt) == expected


@pytest.mark.parametrize(
    ("output", "reasoning", "content"),
    [
        # No marks at all, or only some: as models answer that were tuned without channels.
        ("Hello there", "", "Hello there"),
        ("Hello<|return|>", "", "Hello"),
        ("<|message|>Hello<|return|>", "", "Hello"),
        (
            "Call it as f(to=1), functions.g or user(2)",
            "",
            "Call it as f(to=1), functions.g or user(2)",
        ),
        ("functions.f and all that<|return|>", "", "functions.f and all that"),
        # `<|message|>` was forgotten.
        ("<|channel|>analysis We need<|end|><|start|>assistant" + FINAL + "Yo", "We need", "Yo"),
        ("<|channel|>final Yo<|return|>", "", "Yo"),
        ("<|channel|>commentary to=functions.f {}<|call|>", "to=functions.f {}", ""),
        # A channel that doesn't exist, then the real ones.
        (f"<|channel|>??<|end|>{TURN}{ANALYSIS}a<|end|>{TURN}{FINAL}b", "??\n\na", "b"),
        ("<|channel|>thoughts<|message|>a<|end|>", "a", ""),
        ("<|channel|>commentary to=assistant<|channel|>commentary?<|message|>a", "a", ""),
        ("<|channel|>analysis<|channel|>final<|message|>b", "", "b"),
        # No `<|end|>`, or no `<|start|>`.
        (f"{ANALYSIS}a{TURN}{FINAL}b", "a", "b"),
        (f"{ANALYSIS}a{FINAL}b", "a", "b"),
        (f"{ANALYSIS}a<|end|>{FINAL}b", "a", "b"),
        (f"{ANALYSIS}a<|end|>assistant{FINAL}b", "a", "b"),
        # Marks of no meaning where they stand.
        (f"{FINAL}a<|message|>b<|constrain|>c<|return|><|return|>", "", "abc"),
        (f"{FINAL}a<|endoftext|>", "", "a"),
        # It goes on in another's name.
        (f"{FINAL}a<|end|><|start|>user<|message|>b<|end|>", "b", "a"),
        ("<|start|>functions.f to=assistant<|channel|>commentary<|message|>1", "1", ""),
        ("<|start|>python to=assistant<|channel|>final<|message|>1", "1", ""),
        # To the user by name.
        ("<|channel|>final to=user<|message|>a", "", "a"),
        # Cut off within a header.
        ("<|channel|>final", "", ""),
        (f"{ANALYSIS}a<|end|><|start|>", "a", ""),
        (f"{ANALYSIS}a<|end|><|start|>assistant<|channel|>", "a", ""),
    ],
)
def test_malformed_outputs_are_read_as_they_were_meant(
    output: str, reasoning: str, content: str
) -> None:
    assert parsed(output) == Answer(reasoning, content)


def test_a_call_that_was_cut_off_in_its_header_is_none() -> None:
    assert parsed("<|channel|>commentary to=functions.get_").tool_calls == ()


def test_a_header_without_end_is_shown_while_it_comes() -> None:
    tokenizer = real_tokenizer(GPT_OSS)
    ids = tokenizer.encode(" and on" * MAX_HEADER_TOKENS)
    pieces = fed(Dialect.HARMONY, tokenizer, [[token_id] for token_id in ids])
    assert join_pieces(pieces) == Answer("", tokenizer.decode(ids))
    assert len(pieces) > MAX_HEADER_TOKENS // 2


def test_marks_spelled_in_other_tokens_are_text() -> None:
    tokenizer = real_tokenizer(GPT_OSS)
    spelled = [
        tokenizer.encode(text) for text in ("a<|end", "|><|sta", "rt|>assistant<|chan", "nel|>")
    ]
    assert not tokenizer.special_tokens.keys() & {i for ids in spelled for i in ids}
    pieces = fed(Dialect.HARMONY, tokenizer, [tokenizer.encode(FINAL), *spelled])
    assert join_pieces(pieces) == Answer("", "a<|end|><|start|>assistant<|channel|>")


def test_no_piece_holds_half_a_character() -> None:
    tokenizer = real_tokenizer(GPT_OSS)
    ids = tokenizer.encode(f"{ANALYSIS}👩‍👩‍👧 世<|end|>{TURN}{FINAL}👩‍👩‍👧 𝔘")
    pieces = fed(Dialect.HARMONY, tokenizer, [[token_id] for token_id in ids])
    assert len(pieces) > 4
    assert not any("\ufffd" in piece.text for piece in pieces)
