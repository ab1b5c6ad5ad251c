"""The embedded models' folders are complete, small and consistent."""

from __future__ import annotations

import ast
import inspect
import json
from typing import Any

import jinja2
import pytest
from safetensors import safe_open
from tokenizers import Tokenizer
from transformers import AutoTokenizer

import inferno.demo
from inferno.demo import MODEL_FOLDERS
from inferno.hub.find import find_model_folder

MODELS = ["demo", "demo-draft"]
MAX_BYTES = 12_000_000  # of both
SPECIAL_TOKENS = ["<|bos|>", "<|end|>", "<|system|>", "<|user|>", "<|assistant|>"]


def _json(model: str, name: str) -> Any:
    return json.loads((MODEL_FOLDERS[model] / name).read_text(encoding="utf-8"))


def _tokenizer() -> Tokenizer:
    return Tokenizer.from_file(str(MODEL_FOLDERS["demo"] / "tokenizer.json"))


def test_the_embedded_models_are_found_by_name() -> None:
    assert list(MODEL_FOLDERS) == MODELS
    for model in MODELS:
        assert find_model_folder(model) == MODEL_FOLDERS[model]


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize(
    "name",
    [
        "README.md",
        "config.json",
        "generation_config.json",
        "loss.json",
        "loss.svg",
        "model.safetensors",
        "tokenizer.json",
        "tokenizer_config.json",
    ],
)
def test_every_file_is_there(model: str, name: str) -> None:
    assert (MODEL_FOLDERS[model] / name).stat().st_size > 0


@pytest.mark.parametrize("model", MODELS)
def test_a_folder_holds_nothing_else(model: str) -> None:
    assert len(list(MODEL_FOLDERS[model].iterdir())) == 8


def test_both_folders_are_small_enough_to_ship() -> None:
    files = [path for model in MODELS for path in MODEL_FOLDERS[model].iterdir()]
    assert sum(path.stat().st_size for path in files) <= MAX_BYTES


def test_the_draft_is_about_three_times_smaller() -> None:
    sizes = [(MODEL_FOLDERS[model] / "model.safetensors").stat().st_size for model in MODELS]
    assert 3 < sizes[0] / sizes[1] < 4


def test_both_models_share_the_tokenizer() -> None:
    for name in ("tokenizer.json", "tokenizer_config.json"):
        one, other = ((MODEL_FOLDERS[model] / name).read_bytes() for model in MODELS)
        assert one == other


def test_finding_the_folder_imports_no_torch() -> None:
    tree = ast.parse(inspect.getsource(inferno.demo))
    imported = {
        node.module if isinstance(node, ast.ImportFrom) else node.names[0].name
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
    }
    assert imported <= {"__future__", "pathlib"}


@pytest.mark.parametrize("model", MODELS)
def test_weights_have_the_shapes_of_the_config(model: str) -> None:
    config = _json(model, "config.json")
    heads = config["num_attention_heads"] * config["head_dim"]
    hidden, inner = config["hidden_size"], config["intermediate_size"]
    key_value = config["num_key_value_heads"] * config["head_dim"]
    with safe_open(MODEL_FOLDERS[model] / "model.safetensors", "pt") as weights:
        names = set(weights.keys())
        layer = {
            name.removeprefix("model.layers.0."): tuple(weights.get_slice(name).get_shape())
            for name in names
            if name.startswith("model.layers.0.")
        }
        assert weights.get_slice("model.embed_tokens.weight").get_shape() == [2048, hidden]
        assert all(weights.get_slice(name).get_dtype() == "BF16" for name in names)
    assert "lm_head.weight" not in names
    assert len(names) == 2 + config["num_hidden_layers"] * len(layer)
    assert layer == {
        "self_attn.q_proj.weight": (heads, hidden),
        "self_attn.k_proj.weight": (key_value, hidden),
        "self_attn.v_proj.weight": (key_value, hidden),
        "self_attn.o_proj.weight": (hidden, heads),
        "mlp.gate_proj.weight": (inner, hidden),
        "mlp.up_proj.weight": (inner, hidden),
        "mlp.down_proj.weight": (hidden, inner),
        "input_layernorm.weight": (hidden,),
        "post_attention_layernorm.weight": (hidden,),
    }


@pytest.mark.parametrize("model", MODELS)
def test_config_and_tokenizer_agree(model: str) -> None:
    config, tokenizer = _json(model, "config.json"), _tokenizer()
    generation = _json(model, "generation_config.json")
    assert config["max_position_embeddings"] == 1024
    assert _json(model, "tokenizer_config.json")["model_max_length"] == 1024
    assert tokenizer.get_vocab_size() == config["vocab_size"]
    assert [tokenizer.token_to_id(token) for token in SPECIAL_TOKENS] == [0, 1, 2, 3, 4]
    assert (config["bos_token_id"], config["eos_token_id"]) == (0, 1)
    assert (generation["bos_token_id"], generation["eos_token_id"]) == (0, 1)


@pytest.mark.parametrize(
    "text",
    ["", " ", "Hello", "  two  spaces ", "1+2=3", "a\n\tb\r\n", "Grüße, 你好 🙂", "\x00\x7f", "'s"],
)
def test_any_text_survives_encoding_and_decoding(text: str) -> None:
    tokenizer = _tokenizer()
    assert tokenizer.decode(tokenizer.encode(text).ids) == text


def test_a_raw_prompt_begins_with_bos() -> None:
    assert _tokenizer().encode("Once").ids[0] == 0


def test_each_digit_is_a_token() -> None:
    tokens = _tokenizer().encode("2026", add_special_tokens=False).tokens
    assert tokens == ["2", "0", "2", "6"]


def test_the_chat_template_marks_each_turn() -> None:
    text = AutoTokenizer.from_pretrained(MODEL_FOLDERS["demo"]).apply_chat_template(
        [
            {"role": "system", "content": "Be kind."},
            {"role": "user", "content": " Hello "},
            {"role": "assistant", "content": "Hi!"},
            {"role": "user", "content": "Bye"},
        ],
        tokenize=False,
        add_generation_prompt=True,
    )
    assert text == (
        "<|bos|><|system|>Be kind.<|end|><|user|>Hello<|end|><|assistant|>Hi!<|end|>"
        "<|user|>Bye<|end|><|assistant|>"
    )


def test_the_chat_template_refuses_an_unknown_role() -> None:
    tokenizer = AutoTokenizer.from_pretrained(MODEL_FOLDERS["demo"])
    with pytest.raises(jinja2.TemplateError, match="roles are system, user and assistant"):
        tokenizer.apply_chat_template([{"role": "tool", "content": "4"}], tokenize=False)
