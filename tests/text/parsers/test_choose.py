"""Tests of inferno.text.parsers.choose on the checkpoints' own templates and tokenizers."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from inferno.model_files import FolderFiles
from inferno.text.generation_config import eos_token_ids
from inferno.text.parsers.choose import Dialect, choose_dialect, ending_ids
from tests.data import data_path
from tests.text.loaded import MODELS, real_tokenizer
from tests.text.parsers.feeding import GPT_OSS, QWEN3

EXPECTED = dict.fromkeys(MODELS, Dialect.PLAIN) | {
    GPT_OSS: Dialect.HARMONY,
    QWEN3: Dialect.THINK,
}


def template_text(folder: Path) -> str | None:
    if (folder / "chat_template.jinja").exists():
        return (folder / "chat_template.jinja").read_text("utf-8")
    config = folder / "tokenizer_config.json"
    text: str | None = None
    if config.exists():
        text = json.loads(config.read_text("utf-8")).get("chat_template")
    return text


@pytest.mark.parametrize("model", MODELS)
def test_real_models_speak_the_dialect_of_their_templates(model: str) -> None:
    template = template_text(data_path(*model.split("/")))
    assert choose_dialect(template, real_tokenizer(model)) is EXPECTED[model]


def test_marks_that_the_tokenizer_lacks_make_no_dialect() -> None:
    for template in ("<think></think>", "<|channel|>"):
        assert choose_dialect(template, real_tokenizer("stories260K")) is Dialect.PLAIN
    assert choose_dialect("<|channel|>", real_tokenizer(QWEN3)) is Dialect.PLAIN


@pytest.mark.parametrize("template", [None, "", "{{ messages }}"])
def test_a_template_without_marks_makes_no_dialect(template: str | None) -> None:
    for model in (GPT_OSS, QWEN3):
        assert choose_dialect(template, real_tokenizer(model)) is Dialect.PLAIN


def test_harmony_ends_with_a_call_which_the_files_do_not_say() -> None:
    tokenizer = real_tokenizer(GPT_OSS)
    declared = eos_token_ids(FolderFiles(data_path("hf", "gpt-oss-20b")), tokenizer)
    ends = declared | ending_ids(Dialect.HARMONY, tokenizer)
    assert {tokenizer.id_to_token(i) for i in ends} == {"<|return|>", "<|call|>", "<|endoftext|>"}


@pytest.mark.parametrize("dialect", [Dialect.THINK, Dialect.PLAIN])
def test_other_dialects_end_as_the_files_say(dialect: Dialect) -> None:
    assert ending_ids(dialect, real_tokenizer(GPT_OSS)) == frozenset()
