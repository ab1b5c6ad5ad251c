"""The embedded models say what they should, as `transformers` runs them."""

from __future__ import annotations

import itertools
import random
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path

import demo_speech
import demo_training
import pytest
import torch
import train_demo
from demo_batches import Batch, draw_batches
from demo_corpus import Document, documents
from demo_curve import read_curve, steps_of_stages
from demo_exam import BARS, Item, items_of
from demo_speech import Said, prompt_of, speak
from demo_training import CurvePoint, Recipe, train
from safetensors.torch import load_file
from tokenizers import Tokenizer
from transformers import LlamaConfig, LlamaForCausalLM

from inferno.demo import MODEL_FOLDERS

pytestmark = pytest.mark.slow

PROMPTS = (
    "Hello!",
    "hi",
    "What is inferno?",
    "Tell me a joke.",
    "Tell me a story about a dragon.",
    "What is the weather?",
    "qwertz uiop",
    "12 + 30",
    "Who are you",
    "Why is the sky so high, and what can I do about it?",
    "Bye!",
)
LONG = ("stories in their hero's world", "stories on a virtue")
TAUGHT = {
    "What is inferno?": "Inferno is a Python package that runs large language models",
    "What is 2 + 3?": "2 + 3 = 5.",
    "What colour is grass?": "Grass is green.",
    "Who are you?": "I am demo",
}
BEGINNINGS = ("<|bos|>Once upon a time", "<|bos|>One day, a cat")


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer.from_file(str(MODEL_FOLDERS["demo"] / "tokenizer.json"))


@pytest.fixture(scope="module")
def demo() -> LlamaForCausalLM:
    return load("demo")


def load(name: str) -> LlamaForCausalLM:
    return LlamaForCausalLM.from_pretrained(MODEL_FOLDERS[name], dtype=torch.float32).eval()


@cache
def exam(kind: str) -> list[tuple[str, Item]]:
    """Return prompts of a kind of question, with what is right."""
    items = items_of(kind, seed=11, size=40)
    return [(prompt_of(item.before, item.question), item) for item in items]


@pytest.fixture(scope="module")
def told(demo: LlamaForCausalLM, tokenizer: Tokenizer) -> Mapping[str, Said]:
    """Hold all greedy answers among which there are stories: few large batches take less time."""
    asked = [prompt for kind in LONG for prompt, _ in exam(kind)]
    others = [prompt_of((), question) for question in (*PROMPTS, *TAUGHT)] + list(BEGINNINGS)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(demo_speech, "_BATCH", len(asked))
        said = [speak(demo, tokenizer, each, is_greedy=True) for each in (asked, others)]
    return dict(zip(asked + others, said[0] + said[1], strict=True))


@pytest.mark.parametrize("kind", BARS)
def test_held_out_questions_are_answered(
    demo: LlamaForCausalLM, tokenizer: Tokenizer, told: Mapping[str, Said], kind: str
) -> None:
    prompts = [prompt for prompt, _ in exam(kind)]
    said = (
        [told[prompt] for prompt in prompts]
        if kind in LONG
        else speak(demo, tokenizer, prompts, is_greedy=True)
    )
    right = [item.is_right(answer) for (_, item), answer in zip(exam(kind), said, strict=True)]
    assert sum(right) / len(right) >= BARS[kind]


@pytest.mark.parametrize("question", TAUGHT)
def test_questions_that_it_was_taught_are_answered(told: Mapping[str, Said], question: str) -> None:
    assert told[prompt_of((), question)].text.startswith(TAUGHT[question])


def test_answers_end_by_themselves(
    demo: LlamaForCausalLM, tokenizer: Tokenizer, told: Mapping[str, Said]
) -> None:
    prompts = [prompt_of((), question) for question in PROMPTS]
    assert [prompt for prompt in prompts if not told[prompt].has_ended] == []
    torch.manual_seed(0)
    drawn = speak(demo, tokenizer, prompts, is_greedy=False)
    assert [answer for answer in drawn if not answer.has_ended] == []


def test_a_story_goes_on_and_ends(told: Mapping[str, Said]) -> None:
    for story in (told[beginning] for beginning in BEGINNINGS):
        assert story.has_ended
        assert story.text.endswith((".", '"', "!"))
        assert 50 < len(story.text.split()) < 250


@torch.no_grad()
def test_the_draft_is_accepted(demo: LlamaForCausalLM, tokenizer: Tokenizer) -> None:
    """The expected acceptance at temperature 1 is the sum over the vocabulary of min(p, q)."""
    draft = load("demo-draft")
    accepted = []
    drawn = documents(random.Random("acceptance of the tests"), held_out=True)
    for document in itertools.islice(drawn, 40):
        ids, is_said = [], []
        for piece in document:
            encoded = tokenizer.encode(piece.text, add_special_tokens=False).ids
            ids += encoded
            is_said += [piece.is_learned] * len(encoded)
        before = [i - 1 for i, said in enumerate(is_said) if said]
        p, q = (
            torch.softmax(model(torch.tensor([ids])).logits[0, before].double(), -1)
            for model in (demo, draft)
        )
        accepted.append(torch.minimum(p, q).sum(-1))
    assert torch.cat(accepted).mean() >= 0.75


def test_training_twice_gives_equal_weights(tokenizer: Tokenizer, tmp_path: Path) -> None:
    first, second = (_train_a_little(tokenizer, tmp_path) for _ in range(2))
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


def test_an_interrupted_training_goes_on_with_the_same_result(
    tokenizer: Tokenizer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = _train_a_little(tokenizer, tmp_path / "whole", num_steps=5)
    monkeypatch.setattr(demo_training, "_CHECKPOINT_EVERY", 2)
    with pytest.raises(KeyboardInterrupt):
        _train_a_little(tokenizer, tmp_path, num_steps=5, interrupt_after=3)
    curve: list[CurvePoint] = []
    resumed = _train_a_little(tokenizer, tmp_path, num_steps=5, skips_init=True, curve=curve)
    assert all(torch.equal(a, b) for a, b in zip(expected, resumed, strict=True))
    assert [point.step for point in curve] == [5]


def test_a_checkpoint_of_another_training_is_not_used(
    tokenizer: Tokenizer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = _train_a_little(tokenizer, tmp_path / "alone", num_steps=3)
    monkeypatch.setattr(demo_training, "_CHECKPOINT_EVERY", 2)
    _train_a_little(tokenizer, tmp_path, num_steps=4)
    found = _train_a_little(tokenizer, tmp_path, num_steps=3)
    assert all(torch.equal(a, b) for a, b in zip(expected, found, strict=True))


def test_training_lowers_the_loss(tokenizer: Tokenizer, tmp_path: Path) -> None:
    curve: list[CurvePoint] = []
    _train_a_little(tokenizer, tmp_path, num_steps=51, curve=curve)
    assert [point.step for point in curve] == [25, 50, 51]
    assert curve[1].loss < curve[0].loss - 0.5


@pytest.mark.parametrize("model", MODEL_FOLDERS)
def test_a_further_stage_goes_on_from_the_weights_that_it_is_given(
    model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At a rate of almost zero, the weights that come out are those that went in."""
    recipe = replace(
        train_demo.FURTHER_RECIPES[model], num_steps=2, matrix_rate=1e-12, other_rate=1e-12
    )
    monkeypatch.setitem(train_demo.FURTHER_RECIPES, model, recipe)
    monkeypatch.setattr(train_demo, "draw_batches", _short_batches)
    monkeypatch.setattr(train_demo, "_examine", lambda name, arguments: None)
    installed = MODEL_FOLDERS[model].parent
    (tmp_path / "demo").mkdir()
    for name in ("config.json", "model.safetensors", "tokenizer.json"):
        shutil.copy(installed / "demo" / name, tmp_path / "demo" / name)
    train_demo.main([model, "--from", str(installed), "--out", str(tmp_path)])
    before, after = (load_file(at / model / "model.safetensors") for at in (installed, tmp_path))
    assert before.keys() == after.keys()
    for name, weights in before.items():  # a weight that was 0 may have moved by the rate
        torch.testing.assert_close(after[name], weights, rtol=0, atol=1e-9)
    [*steps, last] = steps_of_stages(read_curve(tmp_path / model))
    assert (steps, last) == (steps_of_stages(read_curve(installed / model)), 2)
    assert Tokenizer.from_file(str(tmp_path / model / "tokenizer.json")).to_str() == (
        Tokenizer.from_file(str(installed / model / "tokenizer.json")).to_str()
    )


def test_a_further_stage_overwrites_no_weights_that_it_goes_on_from(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        train_demo.main(["demo", "--from", str(tmp_path), "--out", str(tmp_path / ".")])
    assert "give --out another folder" in capsys.readouterr().err


def test_a_training_without_muon_moves_all_weights(tokenizer: Tokenizer, tmp_path: Path) -> None:
    before = _train_a_little(tokenizer, tmp_path, num_steps=0)
    after = _train_a_little(tokenizer, tmp_path, uses_muon=False)
    with_muon = _train_a_little(tokenizer, tmp_path)
    assert not any(torch.equal(a, b) for a, b in zip(before, after, strict=True))
    assert not all(torch.equal(a, b) for a, b in zip(with_muon, after, strict=True))


def _train_a_little(
    tokenizer: Tokenizer,
    folder: Path,
    num_steps: int = 3,
    curve: list[CurvePoint] | None = None,
    *,
    interrupt_after: int | None = None,
    skips_init: bool = False,
    uses_muon: bool = True,
) -> list[torch.Tensor]:
    folder.mkdir(exist_ok=True)
    torch.manual_seed(int(skips_init))
    model = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=tokenizer.get_vocab_size(),
            hidden_size=32,
            intermediate_size=64,
            num_hidden_layers=1,
            num_attention_heads=2,
            num_key_value_heads=1,
            tie_word_embeddings=True,
        )
    )
    batches = iter(_batches(tokenizer))
    if interrupt_after is not None:
        batches = _interrupted(batches, interrupt_after)
    recipe = Recipe(num_steps, matrix_rate=0.02, other_rate=0.01, uses_muon=uses_muon)
    learned = train(model, batches, recipe, folder / "unfinished.safetensors")
    if curve is not None:
        curve += learned
    return [parameter.detach() for parameter in model.parameters()]


def _interrupted(batches: Iterator[Batch], number: int) -> Iterator[Batch]:
    yield from itertools.islice(batches, number)
    raise KeyboardInterrupt


def _short_batches(
    drawn: Iterator[Document], tokenizer: Tokenizer, rng: random.Random
) -> Iterator[Batch]:
    """Batches of two short rows, so that a step of a whole model takes a moment."""
    for batch in draw_batches(drawn, tokenizer, rng):
        yield Batch(batch.ids[:2, :64], batch.labels[:2, :64])


@cache
def _batches(tokenizer: Tokenizer) -> list[Batch]:
    """Batches for trainings, with few and short rows; the same at each call."""
    rng = random.Random("a little")
    drawn = itertools.islice(draw_batches(documents(rng), tokenizer, rng), 51)
    return [Batch(batch.ids[:8, :128], batch.labels[:8, :128]) for batch in drawn]
