"""The text that is verified: long enough, whatever the tokenizer makes of it."""

from __future__ import annotations

from pathlib import Path

import pytest
import tokenizers
from tokenizers import models, normalizers, pre_tokenizers, processors

from inferno.model_files import FolderFiles
from inferno.text.tokenizer import load_tokenizer
from inferno.verify.case import Prompt, choose_prompt
from inferno.verify.oracles.reference import ReferenceOracle
from tests.tiny import save_tiny, save_tiny_model, save_tokenizer
from tests.verify.tiny_models import verified

LENGTH = 48  # where no window asks for more


def prompt_of(backend: tokenizers.Tokenizer, folder: Path) -> Prompt:
    backend.save(str(folder / "tokenizer.json"))
    return choose_prompt(
        None, load_tokenizer(FolderFiles(folder)), windows=[None], vocab_size=96, max_model_len=256
    )


def knows_nothing() -> tokenizers.Tokenizer:
    return tokenizers.Tokenizer(models.BPE(vocab={"☃": 0, "☂": 1}, merges=[]))


def knows_it_begins() -> tokenizers.Tokenizer:
    tokenizer = knows_nothing()
    tokenizer.add_special_tokens(["<s>"])
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A", special_tokens=[("<s>", 2)]
    )
    return tokenizer


def one_for_all() -> tokenizers.Tokenizer:
    model = models.BPE(vocab={"<unk>": 0}, merges=[], unk_token="<unk>", fuse_unk=True)
    return tokenizers.Tokenizer(model)


def drops_all() -> tokenizers.Tokenizer:
    tokenizer = knows_nothing()
    tokenizer.normalizer = normalizers.Replace(tokenizers.Regex("[^☃]"), "")
    return tokenizer


@pytest.mark.parametrize("make", [knows_nothing, knows_it_begins, one_for_all, drops_all])
def test_ids_are_made_up_where_the_tokenizer_knows_no_character(
    tmp_path: Path, make: object
) -> None:
    assert callable(make)
    prompt = prompt_of(make(), tmp_path)
    assert prompt.text is None
    assert len(prompt.token_ids) == LENGTH
    assert len(set(prompt.token_ids)) > LENGTH // 4


def test_a_tokenizer_of_long_tokens_gets_more_copies(tmp_path: Path) -> None:
    tokenizer = tokenizers.Tokenizer(
        models.WordLevel(vocab={"<unk>": 0, "Max": 1}, unk_token="<unk>")
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Split(tokenizers.Regex("Max"), "isolated")
    prompt = prompt_of(tokenizer, tmp_path)
    assert prompt.text is not None
    assert prompt.text.count("Once upon a time") > 1
    assert len(prompt.token_ids) == LENGTH
    assert set(prompt.token_ids) == {0, 1}


def test_a_usual_tokenizer_reads_the_text(tmp_path: Path) -> None:
    save_tokenizer(tmp_path)
    tokenizer = load_tokenizer(FolderFiles(tmp_path))
    prompt = choose_prompt(None, tokenizer, windows=[None], vocab_size=300, max_model_len=256)
    assert tokenizer.decode(list(prompt.token_ids)).startswith("Once upon a time")


def test_a_model_with_such_a_tokenizer_is_verified(tmp_path: Path) -> None:
    save_tiny(tmp_path, "llama")
    knows_nothing().save(str(tmp_path / "tokenizer.json"))
    report = verified(tmp_path)
    assert report.passed, report.verdict


def test_the_whole_of_a_given_prompt_is_compared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save_tiny_model(tmp_path)
    text, right = "The sun is up.", ReferenceOracle.encode

    def longer(self: ReferenceOracle, of: str) -> list[int] | None:
        ids = right(self, of)
        return [*ids, 5] if ids is not None and of == text else ids

    assert verified(tmp_path, prompt=text).passed
    monkeypatch.setattr(ReferenceOracle, "encode", longer)
    failed = verified(tmp_path, prompt=text).first_failure
    assert failed is not None
    assert failed.what.startswith("the tokenizer gives of the prompt ")
