"""Tokens that only a model's other files name: the same ids and texts as transformers makes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from transformers import PreTrainedTokenizerFast

from inferno.errors import TokenizerError
from inferno.model_files import FolderFiles
from inferno.text.tokenizer import Tokenizer, load_tokenizer
from tests.text.loaded import added_token, write_tokenizer
from tests.text.made import made_spec

SIZE = 261
THE = 259  # no added token, but in the vocabulary
TEXTS = [
    "the end",
    "a the<end> b",
    "a <end>\nthe <pic>the",
    "<end><end> <pic> <s>an</s> then",
    "<END> Then",
]


def typed(content: str, **flags: bool) -> dict[str, Any]:
    return {"__type": "AddedToken", "content": content, "special": True, **flags}


def folder_with(
    folder: Path,
    config: dict[str, Any],
    added: tuple[dict[str, Any], ...] = (),
    older: dict[str, Any] | None = None,
) -> Path:
    spec = made_spec()
    spec["added_tokens"] += added
    if older is not None:
        (folder / "special_tokens_map.json").write_text(json.dumps(older))
    return write_tokenizer(folder, spec, **config)


def assert_agree(tokenizer: Tokenizer, folder: Path) -> None:
    expected = PreTrainedTokenizerFast.from_pretrained(folder)
    for text in TEXTS:
        assert tokenizer.encode(text) == expected.encode(text), text
    assert tokenizer.vocab_size == len(expected)
    for skip in (True, False):
        for token_id in range(tokenizer.vocab_size):
            decoded = expected.decode([token_id], skip_special_tokens=skip)
            assert tokenizer.decode([token_id], skip_special_tokens=skip) == decoded


END = added_token(SIZE, "<end>", special=False)
PIC = added_token(SIZE + 1, "<pic>", special=True)
CASES: dict[str, dict[str, Any]] = {
    "a name": {"config": {"eos_token": "the"}},
    "a name with flags": {"config": {"eos_token": typed("the", lstrip=True)}},
    "a name for an added token": {"config": {"eos_token": "<end>"}, "added": (END,)},
    "a name with flags for an added token": {
        "config": {"eos_token": typed("<pic>", lstrip=True)},
        "added": (END, PIC),
    },
    "a name of the model's own": {"config": {"image_token": "the"}},
    "a list": {"config": {"additional_special_tokens": ["the", "an"]}},
    "a newer list": {"config": {"extra_special_tokens": ["the"]}},
    "a newer list before the older": {
        "config": {"extra_special_tokens": ["the"], "additional_special_tokens": ["an"]}
    },
    "names in an object": {"config": {"extra_special_tokens": {"image": "the"}}},
    "an object beside the older list": {
        "config": {"extra_special_tokens": {"i": "the"}, "additional_special_tokens": ["an"]}
    },
    "flags of listed tokens": {
        "config": {"additional_special_tokens": [typed("the", rstrip=True), typed("an")]}
    },
    "an id that tokenizer.json has": {
        "config": {"added_tokens_decoder": {str(THE): {"content": "the", "special": True}}}
    },
    "an id of a token that isn't special": {
        "config": {"added_tokens_decoder": {str(THE): {"content": "the", "special": False}}}
    },
    "an id with other flags": {
        "config": {"added_tokens_decoder": {str(SIZE + 1): {"content": "<pic>", "lstrip": True}}},
        "added": (END, {**PIC, "special": False}),
    },
    "an id and a name": {
        "config": {
            "added_tokens_decoder": {str(THE): {"content": "the", "special": False}},
            "eos_token": "the",
        }
    },
    "new ids, in order": {
        "config": {
            "added_tokens_decoder": {
                str(SIZE + 1): {"content": "<pic>", "special": False},
                str(SIZE): {"content": "<end>", "special": True},
            },
            "eos_token": "<end>",
        }
    },
    "a new id after those of tokenizer.json": {
        "config": {"added_tokens_decoder": {str(SIZE + 1): {"content": "<pic>", "special": True}}},
        "added": (END,),
    },
    "an older list": {"config": {}, "older": {"additional_special_tokens": ["the"]}},
    "an older name with flags": {
        "config": {},
        "older": {"eos_token": {"content": "the", "lstrip": True, "normalized": False}},
    },
    "an older name of the model's own": {"config": {}, "older": {"image_token": "the"}},
    "a list in both files": {
        "config": {"additional_special_tokens": ["the"]},
        "older": {"additional_special_tokens": ["an"]},
    },
    "an older file that doesn't count": {
        "config": {"added_tokens_decoder": {}},
        "older": {"eos_token": "the"},
    },
}


@pytest.mark.parametrize("case", CASES)
def test_tokens_named_outside_of_tokenizer_json_are_those_of_transformers(
    tmp_path: Path, case: str
) -> None:
    folder = folder_with(tmp_path, **CASES[case])
    assert_agree(load_tokenizer(FolderFiles(folder)), folder)


@pytest.mark.parametrize(
    "config",
    [
        {"additional_special_tokens": ["<end>"]},
        {"extra_special_tokens": {"image": "<end>"}},
        {"pad_token": "<end>"},
        {"added_tokens_decoder": {"9999": {"content": "<end>", "special": True}}},
        {"added_tokens_decoder": {"5": {"content": "<end>", "special": True}}},
    ],
)
def test_a_token_that_the_vocabulary_lacks_stays_text(
    tmp_path: Path, config: dict[str, Any]
) -> None:
    # transformers gives it an id past the end, which no embedding has.
    tokenizer = load_tokenizer(FolderFiles(folder_with(tmp_path, config)))
    assert tokenizer.vocab_size == SIZE
    plain = tokenizer.encode("<end>", add_special_tokens=False)
    assert len(plain) == len("<end>")
    assert tokenizer.decode(plain) == "<end>"


def test_what_one_file_calls_special_stays_special(tmp_path: Path) -> None:
    config = {"added_tokens_decoder": {str(SIZE): {"content": "<pic>", "special": False}}}
    pic = added_token(SIZE, "<pic>", special=True)
    tokenizer = load_tokenizer(FolderFiles(folder_with(tmp_path, config, (pic,))))
    assert tokenizer.decode([SIZE]) == ""
    assert tokenizer.special_tokens[SIZE] == "<pic>"


@pytest.mark.parametrize(
    ("config", "named"),
    [
        ({"additional_special_tokens": "the"}, "additional_special_tokens"),
        ({"additional_special_tokens": {"a": "the"}}, "additional_special_tokens"),
        ({"additional_special_tokens": [1]}, "additional_special_tokens"),
        ({"additional_special_tokens": [["the"]]}, "additional_special_tokens"),
        ({"extra_special_tokens": ["the", None]}, "extra_special_tokens"),
        ({"extra_special_tokens": {"a": ["the"]}}, "extra_special_tokens"),
        ({"extra_special_tokens": 7}, "extra_special_tokens"),
        ({"extra_special_tokens": ["x" * 1001]}, "extra_special_tokens"),
        ({"extra_special_tokens": ["\ud800"]}, "extra_special_tokens"),
        ({"eos_token": {"content": "the", "lstrip": "yes"}}, "eos_token"),
        ({"image_token": {"content": 3}}, "image_token"),
        ({"added_tokens_decoder": ["the"]}, "added_tokens_decoder"),
        ({"added_tokens_decoder": None}, "added_tokens_decoder"),
        ({"added_tokens_decoder": {"the": {"content": "the"}}}, "added_tokens_decoder"),
        ({"added_tokens_decoder": {"-1": {"content": "the"}}}, "added_tokens_decoder"),
        ({"added_tokens_decoder": {"9" * 5000: {"content": "the"}}}, "added_tokens_decoder"),
        ({"added_tokens_decoder": {"5": {"content": "x" * 1001}}}, "added_tokens_decoder"),
        ({"added_tokens_decoder": {"5": {"contents": "the"}}}, "added_tokens_decoder"),
        ({"added_tokens_decoder": {"5": {"content": "the", "special": 1}}}, "added_tokens_decoder"),
    ],
)
def test_what_is_no_token_is_refused_by_name(
    tmp_path: Path, config: dict[str, Any], named: str
) -> None:
    with pytest.raises(TokenizerError, match=rf"{named}.*tokenizer_config\.json") as refusal:
        load_tokenizer(FolderFiles(folder_with(tmp_path, config)))
    assert len(str(refusal.value)) < 400 + len(str(tmp_path))


def test_many_named_tokens_are_no_burden(tmp_path: Path) -> None:
    tokens = {str(SIZE + i): {"content": f"<{i}>", "special": True} for i in range(20_000)}
    tokenizer = load_tokenizer(FolderFiles(folder_with(tmp_path, {"added_tokens_decoder": tokens})))
    assert tokenizer.encode("<19999>", add_special_tokens=False) == [SIZE + 19_999]
