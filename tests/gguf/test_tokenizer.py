"""Tests of inferno.gguf.tokenizer: llama.cpp's vectors, real tokenizers, damaged files."""

from __future__ import annotations

import json
import shutil
from math import inf, nan
from pathlib import Path
from typing import Any
from unicodedata import normalize

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Regex, pre_tokenizers

from inferno.convert.tokenizer import tokenizer_metadata
from inferno.errors import TokenizerError
from inferno.gguf.pretokenizers import PRE_TOKENIZERS, PreTokenizer
from inferno.gguf.tokenizer import check_merges, tokenizer_files
from inferno.gguf.vocabulary import UNUSED, USER_DEFINED
from inferno.gguf.writer import make_header
from inferno.model_files import TOKENIZER, FolderFiles, MadeFiles, model_files
from inferno.text.chat import load_chat_template
from inferno.text.generation_config import eos_token_ids
from inferno.text.parsers.choose import Dialect, choose_dialect, ending_ids
from inferno.text.tokenizer import Tokenizer, load_tokenizer
from tests.data import data_path
from tests.gguf.metadata import (
    KEYS,
    Metadata,
    byte_level_metadata,
    read_metadata,
    sentence_piece_metadata,
    small_byte_level,
    small_sentence_piece,
    tokenizer_of,
    write_files,
)
from tests.text.loaded import real_tokenizer

TYPED = ["don't", "I'LL", "12345", "3.14", "\n\n", "\r\n", "  ", "\t", "FooBar", "世界", "नमस्ते"]
STRANGE = ["😀", "e\u0301", "ﬁ", "\u200d", "\u3000", "\u00a0", "한국", "//", "▁", "<0x41>", "\x00"]


def texts_with(special_tokens: list[str]) -> st.SearchStrategy[str]:
    return st.lists(
        st.one_of(
            st.text(st.characters(exclude_categories=["Cs"]), max_size=6),
            st.sampled_from([*TYPED, *STRANGE, *special_tokens, *" aeé'0_/."]),
        ),
        max_size=20,
    ).map("".join)


MODELS = ("stories260K", "hf/TinyLlama-1.1B-Chat-v1.0", "hf/Qwen3-0.6B", "hf/gpt-oss-20b")


def metadata_of(model: str) -> Metadata:
    match model:
        case "stories260K":
            return read_metadata("stories260K-gguf", "stories260K-f32-v3.gguf")
        case "hf/Qwen3-0.6B":
            return byte_level_metadata(model, "qwen2", "<|endoftext|>", "<|im_end|>")
        case "hf/gpt-oss-20b":
            return byte_level_metadata(model, "gpt-4o", "<|startoftext|>", "<|return|>")
    return sentence_piece_metadata(model)


@pytest.fixture(scope="module")
def converted(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Load the tokenizer that a model's metadata makes, each once.

    That files make the same one is shown by smaller vocabularies of each kind, in tokenizer_of.
    """
    loaded: dict[str, Tokenizer] = {}

    def of(model: str) -> Tokenizer:
        if model not in loaded:
            folder = tmp_path_factory.mktemp("converted")
            files = MadeFiles.of(folder, tokenizer_files(metadata_of(model)))
            loaded[model] = load_tokenizer(files)
        return loaded[model]

    return of


@pytest.mark.parametrize("vocabulary", ["llama-spm", "qwen2"])
def test_text_is_encoded_as_llama_cpp_does(vocabulary: str, tmp_path: Path) -> None:
    file = f"ggml-vocab-{vocabulary}.gguf"
    tokenizer = tokenizer_of(tmp_path, read_metadata("vocab", file))
    texts = data_path("vocab", f"{file}.inp").read_bytes().decode("utf-8")
    lines = data_path("vocab", f"{file}.out").read_text("utf-8").split("\n")
    cases = list(zip(texts.split("\n__ggml_vocab_test__\n"), lines, strict=True))
    assert len(cases) > 40
    for text, line in cases:
        ids = tokenizer.encode(text, add_special_tokens=False)
        assert ids == list(map(int, line.split())), text
        assert tokenizer.decode(ids) == text


@pytest.mark.parametrize("model", MODELS)
@settings(deadline=None, max_examples=250)
@given(data=st.data(), add_special_tokens=st.booleans())
def test_text_is_encoded_as_by_the_models_own_tokenizer(
    model: str, converted: Any, data: st.DataObject, add_special_tokens: bool
) -> None:
    own = real_tokenizer(model)
    special = [*own.special_tokens.values(), "<think>", "</tool_call>"]
    text = data.draw(texts_with(special))
    ids = converted(model).encode(text, add_special_tokens=add_special_tokens)
    assert ids == own.encode(text, add_special_tokens=add_special_tokens)
    for skip in (True, False):
        assert converted(model).decode(ids, skip_special_tokens=skip) == own.decode(
            ids, skip_special_tokens=skip
        )


@settings(deadline=None, max_examples=250)
@given(text=texts_with([]))
def test_mistral_differs_only_in_the_space_that_it_puts_first(converted: Any, text: str) -> None:
    # Its own tokenizer.json puts none where there is one; llama.cpp and SentencePiece always do.
    model = "hf/Mistral-7B-Instruct-v0.3"
    ids = converted(model).encode(f"a{text}")
    assert ids == real_tokenizer(model).encode(f"a{text}")
    assert converted(model).decode(ids) == real_tokenizer(model).decode(ids)


@pytest.mark.parametrize("model", [*MODELS, "hf/Mistral-7B-Instruct-v0.3"])
def test_tokens_and_special_ids_are_those_of_the_models_own_tokenizer(
    model: str, converted: Any
) -> None:
    own, tokenizer = real_tokenizer(model), converted(model)
    assert tokenizer.vocab_size == own.vocab_size
    assert tokenizer.special_tokens == own.special_tokens
    for token_id in range(own.vocab_size):
        assert tokenizer.id_to_token(token_id) == own.id_to_token(token_id)
        assert tokenizer.decode([token_id]) == own.decode([token_id])


def test_merges_of_a_sentence_piece_model_are_those_of_its_own_tokenizer_json() -> None:
    model = "hf/TinyLlama-1.1B-Chat-v1.0"
    own = json.loads(data_path(*model.split("/"), "tokenizer.json").read_text("utf-8"))
    made: Any = tokenizer_files(metadata_of(model))["tokenizer.json"]
    assert [f"{first} {second}" for first, second in made["model"]["merges"]] == own["model"][
        "merges"
    ]
    for part in ("normalizer", "pre_tokenizer", "post_processor", "decoder"):
        assert made[part] == own[part]


@pytest.mark.parametrize(
    ("model", "pre"), [("hf/Qwen3-0.6B", "qwen2"), ("hf/gpt-oss-20b", "gpt-4o")]
)
def test_a_rule_for_words_is_that_of_the_models_own_tokenizer_json(model: str, pre: str) -> None:
    own = json.loads(data_path(*model.split("/"), "tokenizer.json").read_text("utf-8"))
    rule: Any = PRE_TOKENIZERS[pre].spec()
    assert rule["pretokenizers"][0] == own["pre_tokenizer"]["pretokenizers"][0]
    assert PRE_TOKENIZERS[pre].is_nfc == (own["normalizer"] == {"type": "NFC"})


def words(rule: PreTokenizer, text: str) -> list[str]:
    for pattern in rule.patterns:
        split = pre_tokenizers.Split(Regex(pattern), "isolated")
        text = "\0".join(
            word for part in text.split("\0") for word, _ in split.pre_tokenize_str(part)
        )
    return text.split("\0")


@pytest.mark.parametrize(
    ("pre", "text", "expected"),
    [
        ("gpt-2", "it's IT'S 1234\n\nx", "it|'s| IT|'|S| 1234|\n|\n|x"),
        ("smollm", "a 1234", "a| |1|2|3|4"),
        ("llama-bpe", "IT's 12345!!\n", "IT|'s| |123|45|!!\n"),
        ("dbrx", "12345", "123|45"),
        ("qwen2", "I'LL 123 नमस्ते", "I|'LL| |1|2|3| नमस|्त|े"),
        ("qwen35", "I'LL 123 नमस्ते", "I|'LL| |1|2|3| नमस्ते"),
        ("gpt-4o", "FooBar's 12345//\n", "Foo|Bar's| |123|45|//\n"),
        ("tekken", "FooBar's 123//\n", "Foo|Bar|'s| |1|2|3|//\n"),
        ("deepseek-r1-qwen", "don't 12", "don|'t| |1|2"),
        ("deepseek-llm", "Ab, Ωé\n中文12", "Ab|,| Ωé|\n|中文|12"),
        ("deepseek-coder", "Ab, cd\n中文12", "Ab|,| cd|\n|中文|1|2"),
        ("deepseek-v3", "Ab 中文12345 .x", "Ab| |中文|123|45| .|x"),
        ("falcon", "a+b 12345", "a|+|b| |123|45"),
        ("default", "a+b 1234567", "a|+|b| |123|456|7"),
        ("seed-coder", "I'LL 12!!\n\nx", "I|'LL| |1|2|!!|\n\n|x"),
        ("pixtral", "IT's 12345!!\n", "IT|'s| |123|45|!!\n"),
        ("minerva-7b", "a 1234", "a| |1|2|3|4"),
        ("minicpm5", "I'LL 12345!!\n x", "I|'LL| |123|45|!!\n| x"),
        ("poro-chat", "Hei, maailma (12)", "Hei|,| maailma| (|12|)"),
        ("viking", "Hei maailma 12\u2026", "Hei| maailma| |1|2|\u2026"),
    ],
)
def test_a_text_is_cut_into_words(pre: str, text: str, expected: str) -> None:
    assert words(PRE_TOKENIZERS[pre], text) == expected.split("|")


@pytest.mark.parametrize(
    ("pre", "like"),
    [
        *(("pixtral", "llama-bpe"), ("midm-2.0", "llama-bpe"), ("falcon-h1", "llama-bpe")),
        *(("gigachat", "gpt-2"), ("a.x-4.0", "gpt-2"), ("mellum", "gpt-2"), ("jais", "gpt-2")),
        *(("granite-docling", "gpt-2"), ("minerva-7b", "smollm"), ("kanana2", "gpt-4o")),
        *(("kormo", "deepseek-r1-qwen"), ("grok-2", "kormo"), ("solar-open", "kormo")),
        *(("f2llmv2", "kormo"), ("gpt3-finnish", "poro-chat"), ("bloom", "poro-chat")),
        *(("minimax-m2", "gpt-4o"), ("mellum2", "smollm")),
    ],
)
def test_names_that_llama_cpp_gives_one_rule_have_it(pre: str, like: str) -> None:
    """The pairs are those of llama.cpp's src/llama-vocab.cpp."""
    assert PRE_TOKENIZERS[pre] == PRE_TOKENIZERS[like]


def test_without_a_rules_name_texts_are_cut_by_the_default_and_that_is_told(
    caplog: pytest.LogCaptureFixture,
) -> None:
    metadata = small_byte_level(pre="default")
    due = tokenizer_files(metadata)
    assert not caplog.messages
    del metadata[KEYS + "pre"]
    assert tokenizer_files(metadata) == due
    assert "the file has no tokenizer.ggml.pre" in caplog.text


@pytest.mark.parametrize("pre", PRE_TOKENIZERS)
@settings(deadline=None, max_examples=30)
@given(text=texts_with([]))
def test_any_rule_keeps_the_whole_text(
    pre: str, text: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    metadata = small_byte_level(pre=pre, add_bos_token=False)
    tokenizer = tokenizer_of(tmp_path_factory.mktemp("rule"), metadata)
    expected = normalize("NFC", text) if PRE_TOKENIZERS[pre].is_nfc else text
    assert tokenizer.decode(tokenizer.encode(text)) == expected


def test_sentence_pieces_merge_by_score_and_not_by_length() -> None:
    made: Any = tokenizer_files(small_sentence_piece())["tokenizer.json"]
    expected = [("a", "b"), ("b", "c"), ("▁", "a"), ("a", "bc"), ("ab", "c")]
    assert made["model"]["merges"] == expected


def test_a_control_token_is_never_made_of_a_text(tmp_path: Path) -> None:
    metadata = small_sentence_piece()
    kinds = metadata[KEYS + "token_type"]
    kinds[metadata[KEYS + "tokens"].index("ab")] = 3
    tokenizer = tokenizer_of(tmp_path, metadata)
    merges: Any = tokenizer_files(metadata)["tokenizer.json"]["model"]
    assert ("a", "b") not in merges["merges"]
    assert "ab" in tokenizer.special_tokens.values()


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        ({}, ["<s>", "▁a"]),
        ({"add_bos_token": False}, ["▁a"]),
        ({"add_eos_token": True}, ["<s>", "▁a", "</s>"]),
        ({"add_space_prefix": False}, ["<s>", "a"]),
        ({"bos_token_id": 2, "remove_extra_whitespaces": False}, ["</s>", "▁a"]),
    ],
)
def test_flags_say_what_is_put_around_a_text(
    flags: dict[str, object], expected: list[str], tmp_path: Path
) -> None:
    tokenizer = tokenizer_of(tmp_path, small_sentence_piece(**flags))
    ids = tokenizer.encode("a")
    assert [tokenizer.id_to_token(token_id) for token_id in ids] == expected
    assert tokenizer.decode(ids) == "a"


@pytest.mark.parametrize(("pre", "num_before"), [("llama-bpe", 1), ("tekken", 1), ("qwen2", 0)])
def test_bos_is_added_where_the_kind_of_vocabulary_asks_for_it(
    pre: str, num_before: int, tmp_path: Path
) -> None:
    tokenizer = tokenizer_of(tmp_path, small_byte_level(pre=pre, bos_token_id=259))
    assert tokenizer.encode("a") == [259] * num_before + [tokenizer.token_to_id("a")]


def test_a_word_that_is_a_token_needs_no_merges_where_the_rule_says_so(tmp_path: Path) -> None:
    tokenizer = tokenizer_of(tmp_path, small_byte_level(pre="dbrx", merges=["t h", "a n"]))
    assert len(tokenizer.encode("the")) == 2
    metadata = small_byte_level(pre="llama-bpe", merges=["t h", "a n"], add_bos_token=False)
    tokenizer = tokenizer_of(tmp_path, metadata)
    assert tokenizer.encode("the") == [tokenizer.token_to_id("the")]


def test_the_first_of_two_equal_merges_counts(tmp_path: Path) -> None:
    merges = ["t h", "h e", "t h", "th e", "t h"]
    tokens = small_byte_level()[KEYS + "tokens"]
    tokens[-3:-3] = ["he"]
    kinds = small_byte_level()[KEYS + "token_type"]
    metadata = small_byte_level(tokens=tokens, token_type=[1, *kinds], merges=merges)
    tokenizer = tokenizer_of(tmp_path, metadata)
    assert tokenizer.encode("the") == [tokenizer.token_to_id("the")]


def test_user_defined_tokens_are_found_and_are_text(tmp_path: Path) -> None:
    tokenizer = tokenizer_of(tmp_path, small_byte_level())
    ids = tokenizer.encode("a<think>b<|im_end|>")
    assert ids[1] == 261
    assert ids[3] == 260
    assert tokenizer.decode(ids) == "a<think>b"
    assert tokenizer.special_tokens == {259: "<|im_start|>", 260: "<|im_end|>"}


@pytest.mark.parametrize("small", [small_sentence_piece, small_byte_level])
def test_rows_that_only_pad_the_embedding_are_no_tokens(small: Any, tmp_path: Path) -> None:
    metadata = small()
    num_tokens = len(metadata[KEYS + "tokens"])
    for key, more in [("tokens", ["[PAD1]", "[PAD2]"]), ("token_type", [UNUSED, UNUSED])]:
        metadata[KEYS + key] = metadata[KEYS + key] + more
    if KEYS + "scores" in metadata:
        metadata[KEYS + "scores"] = [*metadata[KEYS + "scores"], 0.0, 0.0]
    assert tokenizer_of(tmp_path, metadata).vocab_size == num_tokens


def test_empty_tokens_get_a_name_of_their_own(tmp_path: Path) -> None:
    metadata = small_byte_level()
    metadata[KEYS + "tokens"][-3:-3] = ["", ""]
    metadata[KEYS + "token_type"][:0] = [1, 1]
    tokenizer = tokenizer_of(tmp_path, metadata)
    assert tokenizer.id_to_token(260) == "[EMPTY_260]"
    assert tokenizer.decode(tokenizer.encode("the end")) == "the end"


def test_a_plain_token_that_is_declared_as_padding_stays_text(tmp_path: Path) -> None:
    tokenizer = tokenizer_of(tmp_path, small_byte_level(padding_token_id=0, bos_token_id=0))
    assert tokenizer.id_to_token(0) == "!"
    assert tokenizer.decode(tokenizer.encode("a!")) == "a!"


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        (
            "hf/Qwen3-0.6B",
            [
                *("<|endoftext|>", "<|file_sep|>", "<|fim_pad|>", "<|im_end|>"),
                "<|repo_name|>",
            ],
        ),
        ("hf/gpt-oss-20b", ["<|call|>", "<|endoftext|>", "<|return|>"]),
        ("hf/TinyLlama-1.1B-Chat-v1.0", ["</s>"]),
    ],
)
def test_all_tokens_that_end_an_output_are_known(
    model: str, expected: list[str], converted: Any
) -> None:
    metadata = metadata_of(model)
    names: Any = tokenizer_files(metadata)["generation_config.json"]
    assert names["eos_token_id"][0] == metadata[KEYS + "eos_token_id"]
    assert names["bos_token_id"] == metadata[KEYS + "bos_token_id"]
    assert sorted(map(converted(model).id_to_token, names["eos_token_id"])) == expected
    declared: Any = json.loads(data_path(*model.split("/"), "generation_config.json").read_text())
    ids = declared["eos_token_id"]
    assert set(names["eos_token_id"]) >= set(ids if isinstance(ids, list) else [ids])


def test_a_file_of_gpt_oss_ends_outputs_where_its_folder_does(tmp_path: Path) -> None:
    folder = shutil.copytree(data_path("hf", "gpt-oss-20b"), tmp_path / "gpt-oss")
    own = real_tokenizer("hf/gpt-oss-20b")
    declared = [own.token_to_id(name) for name in ("<|return|>", "<|endoftext|>", "<|call|>")]
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": declared}))
    assert eos_token_ids(FolderFiles(folder), own) == set(declared)
    files = FolderFiles(folder)
    metadata = tokenizer_metadata(files, own.vocab_size)
    for other in ({}, {KEYS + "eot_token_id": own.token_to_id("<|end|>")}):
        made = MadeFiles.of(folder, tokenizer_files({**metadata, **other}))
        assert eos_token_ids(made, load_tokenizer(made)) == set(declared)


def test_a_real_template_and_vocabulary_make_the_parser_that_of_harmony(converted: Any) -> None:
    metadata = metadata_of("hf/gpt-oss-20b")
    template = data_path("hf", "gpt-oss-20b", "chat_template.jinja").read_text("utf-8")
    files: Any = tokenizer_files({**metadata, "tokenizer.chat_template": template})
    assert files["tokenizer_config.json"]["chat_template"] == template
    tokenizer = converted("hf/gpt-oss-20b")
    assert choose_dialect(template, tokenizer) is Dialect.HARMONY
    ends = {tokenizer.token_to_id(name) for name in ("<|return|>", "<|call|>")}
    assert ending_ids(Dialect.HARMONY, tokenizer) == ends


def test_ends_of_turn_and_message_are_read(tmp_path: Path) -> None:
    metadata = small_byte_level(eot_token_id=259, eom_token_id=261)
    tokenizer = tokenizer_of(tmp_path, metadata)
    assert eos_token_ids(FolderFiles(tmp_path), tokenizer) == {259, 260, 261}
    assert tokenizer.eos_token_id == 260


def test_the_end_of_a_message_in_harmony_ends_no_output(tmp_path: Path) -> None:
    names = ["<|end|>", "<|call|>", "<|return|>"]
    tokens = [*small_byte_level()[KEYS + "tokens"][:-3], *names]
    kinds = [*[1] * 259, 3, 3, 3]
    tokenizer = tokenizer_of(tmp_path, small_byte_level(tokens=tokens, token_type=kinds))
    assert eos_token_ids(FolderFiles(tmp_path), tokenizer) == {260, 261}
    named = small_byte_level(tokens=tokens, token_type=kinds, eos_token_id=261, eot_token_id=259)
    tokenizer = tokenizer_of(tmp_path, named)
    assert eos_token_ids(FolderFiles(tmp_path), tokenizer) == {260, 261}
    tokens[-1] = "<|other|>"
    tokenizer = tokenizer_of(tmp_path, small_byte_level(tokens=tokens, token_type=kinds))
    assert eos_token_ids(FolderFiles(tmp_path), tokenizer) == {259, 260}
    tokens[-2:] = ["<|other|>", "<|return|>"]  # which llama.cpp takes for another kind of model
    tokenizer = tokenizer_of(tmp_path, small_byte_level(tokens=tokens, token_type=kinds))
    assert eos_token_ids(FolderFiles(tmp_path), tokenizer) == {259, 260, 261}


# What llama_vocab_is_eog says of control tokens of these names in llama-cpp-python 0.3.36.
ENDS_OF_LLAMA_CPP = {
    **dict.fromkeys(("</s>", "<eos>", "[EOS]", "<EOT>", "_<EOT>", "<end_of_utterance>"), True),
    **dict.fromkeys(("<turn|>", "<|flush|>", "<|calls|>", "[e~[", "<|eot_id|>"), True),
    **dict.fromkeys(("<|fim_pad|>", "<|file_sep|>", "<|repo_name|>", "<reponame>"), True),
    **dict.fromkeys(("<PAD>", "[PAD]", "<|tool_response>"), True),
    **dict.fromkeys(("<|fim_middle|>", "<|fim_suffix|>"), False),
    **dict.fromkeys(("<bos>", "<|eot|>", "[BOS]", "<|turn>"), False),
}


@pytest.mark.parametrize("name", ENDS_OF_LLAMA_CPP)
def test_a_control_token_ends_an_output_where_it_does_in_llama_cpp(name: str) -> None:
    tokens = [*small_byte_level()[KEYS + "tokens"][:-1], name]
    metadata = small_byte_level(tokens=tokens, token_type=[*[1] * 259, 3, 3, 3])
    found: Any = tokenizer_files(metadata)["generation_config.json"]
    assert (261 in found["eos_token_id"]) == ENDS_OF_LLAMA_CPP[name]
    plain = small_byte_level(tokens=tokens, token_type=[*[1] * 259, 3, 3, 1])
    found = tokenizer_files(plain)["generation_config.json"]
    assert 261 not in found["eos_token_id"]


def test_the_end_of_a_message_of_solar_ends_no_output() -> None:
    names = ["<|end|>", "<|flush|>", "<|calls|>"]
    tokens = [*small_byte_level()[KEYS + "tokens"][:-3], *names]
    metadata = small_byte_level(tokens=tokens, token_type=[*[1] * 259, 3, 3, 3])
    found: Any = tokenizer_files(metadata)["generation_config.json"]
    assert set(found["eos_token_id"]) == {260, 261}


def test_a_user_defined_end_of_turn_is_special(tmp_path: Path) -> None:
    kinds = [*[1] * 259, *[USER_DEFINED] * 3]
    tokenizer = tokenizer_of(tmp_path, small_byte_level(token_type=kinds, eos_token_id=259))
    assert tokenizer.special_tokens == {259: "<|im_start|>", 260: "<|im_end|>"}
    assert eos_token_ids(FolderFiles(tmp_path), tokenizer) == {259, 260}


def test_chat_templates_are_found_by_their_names(tmp_path: Path) -> None:
    template = "tokenizer.chat_template"
    metadata = small_byte_level() | {template: "plain"}
    tokenizer = tokenizer_of(tmp_path, metadata)
    found = load_chat_template(FolderFiles(tmp_path), tokenizer)
    assert found is not None
    assert found.source == "plain"
    metadata |= {f"{template}.tool_use": "tools", "tokenizer.chat_templates": ["tool_use"]}
    write_files(tmp_path, metadata)
    found = load_chat_template(FolderFiles(tmp_path), tokenizer)
    assert found is not None
    assert found.source == "plain\ntools"
    write_files(tmp_path, small_byte_level())
    assert load_chat_template(FolderFiles(tmp_path), tokenizer) is None


def changed(name: str, place: int, value: object) -> dict[str, object]:
    """Return one of the small SentencePiece vocabulary's lists with another value in it."""
    values = list(small_sentence_piece()[KEYS + name])
    values[place] = value
    return {name: values}


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"model": "bert"}, "model: found 'bert', but expected 'llama' .* or 'gpt2'"),
        ({"model": None}, "model: found nothing"),
        ({"model": 7}, "model: found 7"),
        ({"tokens": None}, "tokens: found nothing"),
        ({"tokens": "abc"}, "tokens: found 'abc', but expected a list of str"),
        (changed("tokens", 5, 5), "tokens: found a list with 5"),
        (changed("tokens", 5, "a\udce9"), "tokens: found token 5, which is not UTF-8"),
        (changed("tokens", -1, "a" * 257), "tokens: found pieces of up to 257 characters"),
        (changed("tokens", 5, "<s>"), "tokens: found '<s>' as tokens 1 and 5"),
        ({"token_type": None}, "token_type: found nothing"),
        ({"token_type": [1]}, "token_type: found 1 values, but expected 267"),
        (changed("token_type", 1, 7), "token_type: found type 7"),
        (changed("token_type", 1, True), "token_type: found a list with True"),
        ({"scores": None}, "scores: found nothing"),
        ({"scores": [0.0] * 266}, "scores: found 266 values, but expected 267"),
        (changed("scores", 1, nan), "scores: found a score that is no finite number"),
        (changed("scores", 1, inf), "scores: found a score that is no finite number"),
        (changed("scores", 1, "0"), "scores: found a list with '0'"),
        ({"bos_token_id": 267}, "bos_token_id: found 267, but expected an id from 0 to 266"),
        ({"eos_token_id": -1}, "eos_token_id: found -1"),
        ({"eot_token_id": 2.0}, "eot_token_id: found 2.0"),
        ({"unknown_token_id": True}, "unknown_token_id: found True"),
        ({"padding_token_id": [1]}, r"padding_token_id: found \[1\]"),
        ({"add_bos_token": 1}, "add_bos_token: found 1, but expected true or false"),
        ({"add_space_prefix": "no"}, "add_space_prefix: found 'no'"),
        ({"remove_extra_whitespaces": True}, "remove_extra_whitespaces: found true"),
    ],
)
def test_a_damaged_sentence_piece_vocabulary_is_refused(
    wrong: dict[str, object], message: str
) -> None:
    with pytest.raises(TokenizerError, match=rf"^tokenizer\.ggml\.{message}.*; (download|take) "):
        tokenizer_files(small_sentence_piece(**wrong))


NO_TOKEN = 2**32 - 1  # -1, as converters write it


@pytest.mark.parametrize("small", [small_sentence_piece, small_byte_level])
@pytest.mark.parametrize(
    "named",
    [
        {"padding_token_id": NO_TOKEN},
        {"unknown_token_id": NO_TOKEN, "bos_token_id": NO_TOKEN, "eot_token_id": NO_TOKEN},
        {"padding_token_id": 5000, "unknown_token_id": -1},
    ],
)
def test_an_id_of_no_token_is_none(named: dict[str, int], small: Any) -> None:
    assert tokenizer_files(small(**named)) == tokenizer_files(small())


@pytest.mark.parametrize(
    ("pieces", "message"),
    [
        (["a" * 200 + str(i) for i in range(20_000)], "pieces of up to 205 characters, 4,0"),
        (
            [chr(0x4E00 + i) * n for i in range(32) for n in range(1, 257)],
            "pieces that can be made of two in more than 1,000,000 ways",
        ),
    ],
    ids=["long", "nested"],
)
def test_pieces_that_would_take_too_long_are_refused(pieces: list[str], message: str) -> None:
    metadata = small_sentence_piece()
    metadata[KEYS + "tokens"] += pieces
    metadata[KEYS + "scores"] += [0.0] * len(pieces)
    metadata[KEYS + "token_type"] += [1] * len(pieces)
    with pytest.raises(TokenizerError, match=rf"^tokenizer\.ggml\.tokens: found {message}"):
        tokenizer_files(metadata)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"pre": "klingon"}, "pre: found 'klingon', but expected one of default, .*qwen2"),
        ({"pre": 5}, "pre: found 5"),
        ({"merges": None}, "merges: found nothing"),
        ({"merges": [["t", "h"]]}, r"merges: found a list with \['t', 'h'\]"),
        ({"add_bos_token": True}, "bos_token_id: found nothing, .* that add_bos_token asks for"),
        ({"pre": "tekken"}, "bos_token_id: found nothing, .* that add_bos_token asks for"),
        ({"add_eos_token": True, "eos_token_id": None}, "eos_token_id: found nothing"),
        ({"tokens": [], "token_type": []}, "eos_token_id: found 260"),
    ],
)
def test_a_damaged_byte_level_vocabulary_is_refused(wrong: dict[str, object], message: str) -> None:
    with pytest.raises(TokenizerError, match=rf"^tokenizer\.ggml\.{message}.*; (download|take) "):
        tokenizer_files(small_byte_level(**wrong))


@pytest.mark.parametrize(
    ("merge", "message"),
    [
        ("th", "found 'th', but expected two tokens"),
        ("", "found '', but expected two tokens"),
        (" h", "found ' h', but expected two tokens"),
        ("t ", "found 't ', but expected two tokens"),
        ("t h e", "found 't h e', but expected two tokens"),
        ("q z", "found 'q z', but expected two tokens"),
        ("q the", "found 'q the', but expected two tokens"),
        ("\udce9 h", "found "),
    ],
)
def test_merges_that_make_no_token_are_refused(merge: str, message: str, tmp_path: Path) -> None:
    """The error is the same whether the library met it or the file is to be written out."""
    path = tmp_path / "m.gguf"
    path.write_bytes(make_header(small_byte_level(merges=["t h", merge]), []))
    refused = rf"^\S*m\.gguf: tokenizer\.ggml\.merges: {message}.*; download "
    with pytest.raises(TokenizerError, match=refused):
        load_tokenizer(model_files(path))
    with pytest.raises(TokenizerError, match=refused):
        model_files(path).read(TOKENIZER, error=TokenizerError, max_bytes=2**20)


def test_good_merges_pass_the_check() -> None:
    check_merges(small_byte_level())
    check_merges(small_sentence_piece())


@pytest.mark.parametrize(
    ("template", "message"),
    [
        (["{{ x }}"], r"found \['{{ x }}'\], but expected a text"),
        ("a\udce9", "but expected a text in UTF-8"),
        ("a" * (64 * 2**20), "found a template of 67,108,864 characters"),
    ],
)
@pytest.mark.parametrize("key", ["tokenizer.chat_template", "tokenizer.chat_template.tool_use"])
def test_a_damaged_chat_template_is_refused(key: str, template: object, message: str) -> None:
    with pytest.raises(TokenizerError, match=f"^{key}: .*{message}"):
        tokenizer_files(small_byte_level() | {key: template})


@settings(deadline=None, max_examples=200)
@given(data=st.data(), small=st.sampled_from([small_sentence_piece, small_byte_level]))
def test_any_damage_is_refused_or_makes_a_tokenizer(
    data: st.DataObject, small: Any, tmp_path_factory: pytest.TempPathFactory
) -> None:
    metadata = small()
    key = data.draw(st.sampled_from(sorted(metadata)))
    values = st.one_of(
        st.integers(-2, 2**64), st.floats(), st.booleans(), st.text(max_size=9), st.none()
    )
    if isinstance(metadata[key], list) and data.draw(st.booleans()):
        place = data.draw(st.integers(0, len(metadata[key]) - 1))
        metadata[key][place] = data.draw(values)
    else:
        metadata[key] = data.draw(values | st.lists(values, max_size=4))
    try:
        tokenizer = tokenizer_of(tmp_path_factory.mktemp("damaged"), metadata)
    except TokenizerError:
        return
    tokenizer.decode(tokenizer.encode("the <|im_end|> é abc"))
