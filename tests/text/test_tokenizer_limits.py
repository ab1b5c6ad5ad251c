"""A hostile tokenizer.json is one error: no panic on stderr, no text that grows without bound."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from inferno.errors import TokenizerError
from inferno.model_files import FolderFiles
from inferno.text.tokenizer import load_tokenizer
from inferno.text.tokenizer_limits import MAX_SPECIAL_TOKENS
from tests.text.charsmaps import charsmap, units
from tests.text.loaded import added_token, write_tokenizer
from tests.text.made import made_spec

Spec = dict[str, Any]
A = {"Sequence": {"id": "A", "type_id": 0}}
B = {"Sequence": {"id": "B", "type_id": 0}}
BOS = {"SpecialToken": {"id": "<s>", "type_id": 0}}
BYTES = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
BERT = {"type": "BertProcessing", "sep": ["</s>", 1], "cls": ["<s>", 0]}
SMALL_MAP = {"type": "Precompiled", "precompiled_charsmap": charsmap(units())}


def put(key: str, value: Any) -> Callable[[Spec], None]:
    def change(spec: Spec) -> None:
        spec[key] = value

    return change


def template(single: list[Any], ids: tuple[int, ...] = (0,)) -> Spec:
    tokens = {"<s>": {"id": "<s>", "ids": list(ids), "tokens": ["<s>"] * len(ids)}}
    return {
        "type": "TemplateProcessing",
        "single": single,
        "pair": [A, B],
        "special_tokens": tokens,
    }


def post(*stages: Spec) -> Callable[[Spec], None]:
    return put("post_processor", {"type": "Sequence", "processors": list(stages)})


def normalize(*stages: Spec) -> Callable[[Spec], None]:
    return put("normalizer", {"type": "Sequence", "normalizers": list(stages)})


def pre_tokenize(*stages: Spec) -> Callable[[Spec], None]:
    return put("pre_tokenizer", {"type": "Sequence", "pretokenizers": list(stages)})


def decode(*stages: Spec) -> Callable[[Spec], None]:
    return put("decoder", {"type": "Sequence", "decoders": list(stages)})


def replace(pattern: str, content: str, *, kind: str = "String") -> Spec:
    return {"type": "Replace", "pattern": {kind: pattern}, "content": content}


def split(pattern: str) -> Spec:
    return {
        "type": "Split",
        "pattern": {"Regex": pattern},
        "behavior": "Isolated",
        "invert": False,
    }


def strip(start: int, stop: int) -> Spec:
    return {"type": "Strip", "content": " ", "start": start, "stop": stop}


def unknown_in_template(spec: Spec) -> None:
    spec["post_processor"]["special_tokens"] = {}


def merge_prefix(spec: Spec) -> None:
    spec["model"]["continuing_subword_prefix"] = "######"


def long_merge(spec: Spec) -> None:
    spec["model"]["merges"].append(["the", "an"])


def same_ids(spec: Spec) -> None:
    spec["model"]["vocab"]["an"] = spec["model"]["vocab"]["the"]


def special_and_not(spec: Spec) -> None:
    spec["added_tokens"].append({**spec["added_tokens"][0], "special": False})


def merges_with_prefix(spec: Spec) -> None:
    spec["model"] |= {"continuing_subword_prefix": "#", "merges": [["t", "#h"]]}
    spec["model"]["vocab"]["#h"] = 261


def huge_id(spec: Spec) -> None:
    spec["model"]["vocab"]["x" * 9] = 2**31


def many_special_tokens(spec: Spec) -> None:
    spec["added_tokens"] += [added_token(300 + i, f"<|{i}|>") for i in range(MAX_SPECIAL_TOKENS)]


def huge_token(spec: Spec) -> None:
    spec["model"]["vocab"]["x" * 5000] = 300


def huge_words(spec: Spec) -> None:
    vocab = {"<s>": 0, "</s>": 1, "a": 2}
    spec["model"] = {
        "type": "WordPiece",
        "unk_token": "a",
        "continuing_subword_prefix": "##",
        "max_input_chars_per_word": 10**9,
        "vocab": vocab,
    }


def nested(depth: int) -> Spec:
    stage = BYTES
    for _ in range(depth):
        stage = {"type": "Sequence", "processors": [stage, BYTES]}
    return stage


HOSTILE: dict[str, tuple[Callable[[Spec], None], str]] = {
    # These make the library panic.
    "a map that is none": (normalize({**SMALL_MAP, "precompiled_charsmap": "AAAA"}), "charsmap"),
    "a map of the wrong type": (normalize({**SMALL_MAP, "precompiled_charsmap": 5}), "charsmap"),
    "no map": (normalize({"type": "Precompiled"}), "charsmap"),
    "no map beside one": (normalize(SMALL_MAP, {"type": "Precompiled"}), "charsmap"),
    "a merge without its prefix": (merge_prefix, "makes no token"),
    "a merge longer than any token": (long_merge, "makes no token"),
    "a token that is special and is not": (special_and_not, "is special, and is not"),
    "two tokens of one id": (same_ids, "same id"),
    "a template of unknown tokens": (unknown_in_template, "special_tokens"),
    "a template of two texts": (post(template([BOS, A, B])), r"\$A once"),
    "a template of the second text": (post(template([BOS, B])), r"\$A once"),
    "two templates": (post(template([BOS, A, BOS]), template([BOS, A])), "more than one stage"),
    "an end to strip": (decode(strip(1, 1)), "strips the end"),
    "a far end to strip": (put("decoder", strip(0, 2**40)), "strips the end"),
    "a huge id": (huge_id, "id above"),
    "a replacement where nothing was": (
        normalize(replace("(?=é)", "b", kind="Regex")),
        "where nothing was",
    ),
    "a replacement of what is repeated in many ways": (
        normalize(replace("(a+)+$", "b", kind="Regex")),
        "more than one way",
    ),
    "pieces at what is repeated in many ways": (pre_tokenize(split("(a+)+$")), "more than one way"),
    "a decoding of what is repeated in many ways": (
        decode(replace("(a|a)*b", "b", kind="Regex")),
        "more than one way",
    ),
    "pieces at what is found again": (pre_tokenize(BYTES, split(r"(a)\1")), "reference"),
    # These make much of little.
    "a repeated text": (post(template([A] * 20_000)), r"\$A once"),
    "a repeated token": (post(template([BOS] * 20_000 + [A])), "at most 32"),
    "a token of many ids": (post(template([BOS, A], (0,) * 20_000)), "at most 32"),
    "tokens of no id": (post(template([BOS] * 20_000 + [A], ())), "at most 32"),
    "a template without text": (post(template([BOS])), r"\$A once"),
    "tokens added again and again": (post(*[BERT] * 50), "more than one stage"),
    "many processors": (post(*[BYTES] * 5000), "stages"),
    "a template of many megabytes": (post(template([BOS] * 100_000 + [A])), "longer than"),
    "nested processors": (put("post_processor", nested(40)), "stages|times as long"),
    "a long replacement": (normalize(replace("a", "b" * 100)), "times as long"),
    "a replacement of nothing": (normalize(replace("", "b" * 70)), "times as long"),
    "a long replacement of a pattern": (
        normalize(replace("a+", "b" * 70, kind="Regex")),
        "times as long",
    ),
    "replacements that multiply": (normalize(*[replace("a", "aaa")] * 5), "times as long"),
    "beginnings that multiply": (normalize(*[{"type": "Prepend", "prepend": "a"}] * 9), "times"),
    "bytes of bytes": (normalize(*[{"type": "ByteLevel"}] * 4), "times as long"),
    "a map to a long text": (
        normalize({**SMALL_MAP, "precompiled_charsmap": charsmap(units(), b"b" * 70 + b"\0")}),
        "times as long",
    ),
    "many normalizers": (normalize(*[{"type": "NFC"}] * 5000), "stages"),
    "bytes of bytes, in pieces": (pre_tokenize(*[BYTES] * 4), "times as long"),
    "many pre-tokenizers": (pre_tokenize(*[{"type": "Whitespace"}] * 5000), "stages"),
    "a long decoding": (decode(replace("a", "b" * 100)), "times as long"),
    "spaces between characters": (
        decode(*[{"type": "BPEDecoder", "suffix": ""}] * 20),
        "times as long",
    ),
    "many decoders": (decode(*[{"type": "Fuse"}] * 5000), "stages"),
    "many special tokens": (many_special_tokens, "more than 32768 special tokens"),
    "a huge token": (huge_token, "token of more than"),
    "words of any length": (huge_words, "max_input_chars_per_word"),
}


@pytest.mark.parametrize("hostile", HOSTILE)
def test_a_hostile_tokenizer_is_one_error(
    tmp_path: Path, hostile: str, capfd: pytest.CaptureFixture[str]
) -> None:
    change, named = HOSTILE[hostile]
    spec = made_spec()
    change(spec)
    with pytest.raises(TokenizerError, match=named) as refusal:
        load_tokenizer(FolderFiles(write_tokenizer(tmp_path, spec)))
    assert str(tmp_path / "tokenizer.json") in str(refusal.value)
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("letter", ["P", "p", "_", "z"])
def test_letters_spelled_as_escapes_hide_nothing(
    tmp_path: Path, letter: str, capfd: pytest.CaptureFixture[str]
) -> None:
    spec = made_spec()
    normalize({**SMALL_MAP, "precompiled_charsmap": "AAAA"})(spec)
    spelled = json.dumps(spec).replace(letter, f"\\u{ord(letter):04x}")
    assert json.loads(spelled) == spec
    (tmp_path / "tokenizer.json").write_text(spelled)
    with pytest.raises(TokenizerError, match="charsmap"):
        load_tokenizer(FolderFiles(tmp_path))
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize(
    ("content", "named"),
    [
        (b'{"normalizer": {"type": "Precompiled"}, "normalizer": null}', "key twice"),
        (json.dumps(made_spec()).encode("utf-16"), "utf-8"),
        (b'{"a": [' + b"0," * 10_000_001 + b"0]}", "too many values"),
        (b"[" * 100_000, "recursion"),
        (b"3", "no JSON object"),
    ],
    ids=["a key twice", "UTF-16", "too much", "too deep", "a number"],
)
def test_what_is_no_json_object_is_one_error(
    tmp_path: Path, content: bytes, named: str, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "tokenizer.json").write_bytes(content)
    with pytest.raises(TokenizerError, match=rf"tokenizer\.json.*{named}"):
        load_tokenizer(FolderFiles(tmp_path))
    assert capfd.readouterr().err == ""


HARMLESS: dict[str, Callable[[Spec], None]] = {
    "merges with a prefix": merges_with_prefix,
    "SentencePiece's map": normalize(SMALL_MAP, replace(" {2,}", " ", kind="Regex")),
    "Llama 2's normalizer": normalize({"type": "Prepend", "prepend": "▁"}, replace(" ", "▁")),
    "Llama 3's post-processor": post(BYTES, template([BOS, A])),
    "BERT's post-processor": put("post_processor", BERT),
    "a token before and after": post(template([BOS, A, BOS])),
    "digits, pieces and bytes": pre_tokenize(
        {"type": "Digits", "individual_digits": True},
        split(r"\s+"),
        BYTES,
    ),
    "Llama 2's decoder": decode(
        replace("▁", " "), {"type": "ByteFallback"}, {"type": "Fuse"}, strip(1, 0)
    ),
}


@pytest.mark.parametrize("harmless", HARMLESS)
def test_what_real_models_have_is_harmless(tmp_path: Path, harmless: str) -> None:
    spec = made_spec()
    HARMLESS[harmless](spec)
    tokenizer = load_tokenizer(FolderFiles(write_tokenizer(tmp_path, spec)))
    assert tokenizer.decode(tokenizer.encode("then"))


def test_a_map_is_used(tmp_path: Path) -> None:
    spec = made_spec()
    normalize(SMALL_MAP)(spec)
    tokenizer = load_tokenizer(FolderFiles(write_tokenizer(tmp_path, spec)))
    assert tokenizer.decode(tokenizer.encode("xax")) == "xbbx"
