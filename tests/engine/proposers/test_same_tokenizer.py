"""Two tokenizers are compared by what their tokens mean, and the first difference is named."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer, models

from inferno.demo import MODEL_FOLDERS
from inferno.engine.proposers.load_draft import open_draft
from inferno.engine.proposers.same_tokenizer import check_same_tokenizer
from inferno.errors import ConfigError, TokenizerError
from inferno.options import EngineOptions
from tests.data import data_path

Spec = dict[str, Any]
DEMO = MODEL_FOLDERS["demo"]


@pytest.fixture
def draft(tmp_path: Path) -> Path:
    """A folder with demo's tokenizer, to be changed."""
    folder = tmp_path / "draft"
    folder.mkdir()
    for name in ("config.json", "tokenizer.json", "tokenizer_config.json"):
        shutil.copy(DEMO / name, folder)
    return folder


def rewrite(folder: Path, change: Callable[[Spec], None], name: str = "tokenizer.json") -> None:
    path = folder / name
    spec = json.loads(path.read_text())
    change(spec)
    path.write_text(json.dumps(spec, indent=3))


def merges_as_texts(spec: Spec) -> None:
    spec["model"]["merges"] = [" ".join(pair) for pair in spec["model"]["merges"]]


def vocab_backwards(spec: Spec) -> None:
    spec["model"]["vocab"] = dict(reversed(spec["model"]["vocab"].items()))


def another_version(spec: Spec) -> None:
    spec["version"] = "2.0"


@pytest.mark.parametrize(
    "change", [merges_as_texts, vocab_backwards, another_version, lambda spec: None]
)
def test_files_that_say_the_same_in_other_words_are_the_same(
    draft: Path, change: Callable[[Spec], None]
) -> None:
    rewrite(draft, change)
    assert (draft / "tokenizer.json").read_bytes() != (DEMO / "tokenizer.json").read_bytes()
    check_same_tokenizer(draft, DEMO)
    check_same_tokenizer(DEMO, draft)


def test_what_the_library_writes_is_the_same(draft: Path) -> None:
    library = Tokenizer.from_file(str(DEMO / "tokenizer.json"))
    library.save(str(draft / "tokenizer.json"), pretty=False)
    check_same_tokenizer(draft, DEMO)


def test_a_gguf_file_has_the_tokenizer_of_the_folder_it_was_made_of() -> None:
    gguf = data_path("stories260K-gguf") / "stories260K-f32-v3.gguf"
    check_same_tokenizer(data_path("stories-draft39K"), gguf)
    check_same_tokenizer(gguf, data_path("stories-draft39K"))


def swap_tokens(spec: Spec) -> None:
    vocab = spec["model"]["vocab"]
    tokens = {token_id: token for token, token_id in vocab.items()}
    vocab[tokens[700]], vocab[tokens[900]] = 900, 700


def swap_merges(spec: Spec) -> None:
    merges = spec["model"]["merges"]
    merges[11], merges[13] = merges[13], merges[11]


def drop_merge(spec: Spec) -> None:
    del spec["model"]["merges"][-1]


def drop_added(spec: Spec) -> None:
    del spec["added_tokens"][-1]


def add_token(spec: Spec) -> None:
    spec["model"]["vocab"]["<more>"] = 2048


def be_words(spec: Spec) -> None:
    spec["model"] = {"type": "WordLevel", "vocab": spec["model"]["vocab"], "unk_token": "x"}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (swap_tokens, "token 700 is "),
        (swap_merges, "merge 11 is "),
        (drop_merge, " is nothing, not "),
        (drop_added, "the added token "),
        (add_token, "token 2048 is '<more>', not nothing"),
        (be_words, "its kind is WordLevel, not BPE"),
    ],
)
def test_the_first_difference_is_named(
    draft: Path, change: Callable[[Spec], None], words: str
) -> None:
    rewrite(draft, change)
    if change is drop_added:
        rewrite(draft, lambda spec: spec.pop("added_tokens_decoder", None), "tokenizer_config.json")
    with pytest.raises(TokenizerError) as refused:
        check_same_tokenizer(draft, DEMO)
    message = str(refused.value)
    assert f"{draft} has another tokenizer than {DEMO}: " in message
    assert words in message
    assert "choose a smaller model of the same family" in message


def test_tokens_of_another_file_count(draft: Path) -> None:
    rewrite(
        draft,
        lambda spec: spec.update(added_tokens_decoder={"2048": {"content": "<more>"}}),
        "tokenizer_config.json",
    )
    with pytest.raises(TokenizerError, match="token 2048 is '<more>', not nothing"):
        check_same_tokenizer(draft, DEMO)


def test_scores_of_pieces_count(tmp_path: Path) -> None:
    pieces = [("<unk>", 0.0), ("a", -1.0), ("b", -2.5)]
    for name, last in (("one", -2.5), ("same", -2.5), ("other", -2.0)):
        (tmp_path / name).mkdir()
        library = Tokenizer(models.Unigram([*pieces[:2], ("b", last)], 0, False))
        library.save(str(tmp_path / name / "tokenizer.json"), pretty=name == "same")
    check_same_tokenizer(tmp_path / "same", tmp_path / "one")
    with pytest.raises(TokenizerError, match=r"score 2 is -2\.0, not -2\.5"):
        check_same_tokenizer(tmp_path / "other", tmp_path / "one")


def test_one_without_a_tokenizer_is_refused_and_two_are_alike(draft: Path, tmp_path: Path) -> None:
    (draft / "tokenizer.json").unlink()
    with pytest.raises(TokenizerError, match=r"tokenizer\.json is missing"):
        check_same_tokenizer(draft, DEMO)
    check_same_tokenizer(draft, tmp_path)


@pytest.mark.parametrize(
    "content",
    [
        b"[" * 100_000,
        b"{",
        b"\xff",
        b"[]",
        b'{"model": 1}',
        b'{"model": {"vocab": {"a": "0"}}}',
        b'{"model": {"vocab": {"a": 0}, "merges": [["a"]]}}',
        b'{"model": {"vocab": {"a": 0}, "merges": 3}}',
        b'{"model": {"vocab": [1]}}',
        b'{"model": {"vocab": {"a": 0}}, "added_tokens": [{"id": 1}]}',
        b'{"model": {"vocab": {"a": 0}}, "added_tokens": [1]}',
        b"[" + b"0," * 10_000_001,
    ],
    ids=range(12),
)
def test_damaged_files_are_refused(draft: Path, content: bytes) -> None:
    (draft / "tokenizer.json").write_bytes(content)
    with pytest.raises(TokenizerError, match=r"tokenizer\.json can't be compared"):
        check_same_tokenizer(draft, DEMO)


@pytest.mark.parametrize("listed", [[1], 3, {"x": "<a>"}, {"-1": "<a>"}, {"1": {"text": 1}}])
def test_damaged_lists_of_tokens_are_refused(draft: Path, listed: Any) -> None:
    rewrite(draft, lambda spec: spec.update(added_tokens_decoder=listed), "tokenizer_config.json")
    with pytest.raises(TokenizerError):
        check_same_tokenizer(draft, DEMO)


def test_a_draft_that_can_not_be_run_is_named(draft: Path) -> None:
    options = EngineOptions(model=DEMO)
    assert open_draft(draft, options).config.vocab_size == 2048
    rewrite(draft, lambda spec: spec.update(hidden_act="tanh"), "config.json")
    with pytest.raises(ConfigError, match=f"the draft model {draft}: .*hidden_act"):
        open_draft(draft, options)
    with pytest.raises(ConfigError, match=f"the draft model {draft / 'nothing'}: .*missing"):
        open_draft(draft / "nothing", options)
