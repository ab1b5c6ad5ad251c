"""The embedded model's folder is complete, small, consistent, and says sensible things."""

from __future__ import annotations

import ast
import inspect
import json
from typing import Any

import jinja2
import pytest
import torch
from safetensors import safe_open
from tokenizers import Tokenizer
from transformers import AutoModelForCausalLM, AutoTokenizer

import inferno.demo
from inferno.demo import MODEL_FOLDER

SPECIAL_TOKENS = ["<|bos|>", "<|end|>", "<|system|>", "<|user|>", "<|assistant|>"]


def _json(name: str) -> Any:
    return json.loads((MODEL_FOLDER / name).read_text(encoding="utf-8"))


def _tokenizer() -> Tokenizer:
    return Tokenizer.from_file(str(MODEL_FOLDER / "tokenizer.json"))


@pytest.mark.parametrize(
    "name",
    [
        "README.md",
        "config.json",
        "generation_config.json",
        "model.safetensors",
        "tokenizer.json",
        "tokenizer_config.json",
    ],
)
def test_every_file_is_there(name: str) -> None:
    assert (MODEL_FOLDER / name).stat().st_size > 0


def test_the_folder_is_small_enough_to_ship() -> None:
    assert sum(path.stat().st_size for path in MODEL_FOLDER.iterdir()) <= 6_000_000


def test_finding_the_folder_imports_no_torch() -> None:
    tree = ast.parse(inspect.getsource(inferno.demo))
    imported = {
        node.module if isinstance(node, ast.ImportFrom) else node.names[0].name
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
    }
    assert imported <= {"__future__", "pathlib"}


def test_weights_have_the_shapes_of_the_config() -> None:
    config = _json("config.json")
    hidden, inner = config["hidden_size"], config["intermediate_size"]
    key_value = config["num_key_value_heads"] * config["head_dim"]
    with safe_open(MODEL_FOLDER / "model.safetensors", "pt") as weights:
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
        "self_attn.q_proj.weight": (hidden, hidden),
        "self_attn.k_proj.weight": (key_value, hidden),
        "self_attn.v_proj.weight": (key_value, hidden),
        "self_attn.o_proj.weight": (hidden, hidden),
        "mlp.gate_proj.weight": (inner, hidden),
        "mlp.up_proj.weight": (inner, hidden),
        "mlp.down_proj.weight": (hidden, inner),
        "input_layernorm.weight": (hidden,),
        "post_attention_layernorm.weight": (hidden,),
    }


def test_config_and_tokenizer_agree() -> None:
    config, tokenizer = _json("config.json"), _tokenizer()
    generation = _json("generation_config.json")
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
    text = AutoTokenizer.from_pretrained(MODEL_FOLDER).apply_chat_template(
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
    tokenizer = AutoTokenizer.from_pretrained(MODEL_FOLDER)
    with pytest.raises(jinja2.TemplateError, match="roles are system, user and assistant"):
        tokenizer.apply_chat_template([{"role": "tool", "content": "4"}], tokenize=False)


class Oracle:
    """The embedded model as `transformers` runs it: greedy, to the end or 300 tokens."""

    def __init__(self) -> None:
        self.tokenizer = AutoTokenizer.from_pretrained(MODEL_FOLDER)
        self.model = AutoModelForCausalLM.from_pretrained(MODEL_FOLDER, dtype=torch.float32)

    def continue_text(self, prompt: str, *, add_bos: bool = True) -> str:
        inputs = self.tokenizer(prompt, add_special_tokens=add_bos, return_tensors="pt")
        out = self.model.generate(inputs.input_ids, max_new_tokens=300, do_sample=False)
        text: str = self.tokenizer.decode(out[0, inputs.input_ids.shape[1] :])
        return text

    def answer(self, question: str) -> str:
        return self.continue_text(
            f"<|bos|><|user|>{question}<|end|><|assistant|>", add_bos=False
        ).removesuffix("<|end|>")


@pytest.fixture(scope="module")
def oracle() -> Oracle:
    return Oracle()


@pytest.mark.slow
def test_a_story_goes_on_and_ends_by_itself(oracle: Oracle) -> None:
    story = oracle.continue_text("Once upon a time")
    assert story.endswith((".<|end|>", '"<|end|>'))
    assert 50 < len(story.split()) < 250


@pytest.mark.slow
@pytest.mark.parametrize(
    ("question", "expected"),
    [
        ("Hello", ("Hello!", "Hi!")),
        ("What is inferno?", "Inferno is an engine that runs large language models"),
        ("What is 2 + 3?", "2 + 3 = 5."),
        ("What colour is the sky?", "The sky is blue."),
    ],
)
def test_questions_that_it_was_taught_are_answered(
    oracle: Oracle, question: str, expected: str | tuple[str, ...]
) -> None:
    assert oracle.answer(question).startswith(expected)
