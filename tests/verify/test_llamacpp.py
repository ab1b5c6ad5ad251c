"""The oracle that is llama.cpp: how it is asked, by a scripted child, and what it agrees with."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
import torch
from torch import Tensor

from inferno import ops
from inferno.errors import InvalidRequest, ModelError
from inferno.extras import install_command
from inferno.model_files import model_files
from inferno.quantization import INT8
from inferno.text.tokenizer import load_tokenizer
from inferno.verify.diagnosis.diagnose import diagnose
from inferno.verify.diagnosis.evidence import Evidence
from inferno.verify.oracles import choose, llamacpp
from inferno.verify.oracles.llamacpp import LlamaCppOracle, open_llama_cpp, rounding_of
from inferno.verify.oracles.plain_maths import Rounding
from inferno.verify.oracles.plain_weights import PlainWeights
from inferno.verify.oracles.reference import ReferenceOracle
from inferno.verify.outcome import Report, Row
from inferno.weights.open import open_checkpoint
from tests.data import data_path
from tests.gguf.convert import gpt_oss_blocks, rewrite, write_gguf
from tests.models.test_against_transformers import GPT_OSS, LLAMA3, QWEN_MOE, YARN
from tests.mxfp4 import save_tiny_mxfp4
from tests.tiny import save_tiny
from tests.verify.tiny_models import verified

has_llama_cpp = pytest.mark.skipif(
    importlib.util.find_spec("llama_cpp") is None, reason="llama-cpp-python is not installed"
)
has_kernels = pytest.mark.skipif(
    not ops.has_kernels(torch.device("cpu"), INT8), reason="no compiled kernels run here"
)
VOCAB = 330  # room for all bytes, which llama.cpp's tokenizer falls back on


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("llamacpp")
    return write_gguf(folder / "m.gguf", save_tiny(folder / "hf", "llama", vocab_size=VOCAB))


def child(tmp_path: Path, program: str) -> LlamaCppOracle:
    """An oracle whose child is this program."""
    script = tmp_path / "child.py"
    script.write_text("import json, struct, sys\nq = json.load(sys.stdin)\n" + program)
    command = (sys.executable, str(script))
    file = tmp_path / "m.gguf"
    return LlamaCppOracle(file, None, 1, lambda _: None, version="0", command=command)


LOGITS = """
out = sys.stdout.buffer
out.write(b'{"vocab_size": 3}\\n')
for text in q["texts"]:
    for token in text:
        out.write(struct.pack("<3f", token, -token, 0.5))
"""


def test_logits_come_back_row_by_row(tmp_path: Path) -> None:
    [one, two] = child(tmp_path, LOGITS).logits([[4, 5], [6]])
    assert one.tolist() == [[4, -4, 0.5], [5, -5, 0.5]]
    assert two.tolist() == [[6, -6, 0.5]]


def test_ids_and_texts_are_asked_for(tmp_path: Path) -> None:
    oracle = child(tmp_path, "print(json.dumps(len(q.get('text', '')) and [1, 2] or None))")
    assert oracle.encode("some words") == [1, 2]
    assert oracle.decode([3]) is None


@pytest.mark.parametrize(
    ("program", "said"),
    [
        ("sys.exit('llama.cpp can\\'t load this file')", "llama.cpp can't load this file"),
        ("import os; os.kill(os.getpid(), 9)", "exit code -9"),
        ("print('{\"vocab_size\": 3}'); sys.stdout.write('half a row')", "exit code 0"),
        ("sys.stdout.write('no line')", "exit code 0"),
    ],
)
def test_a_child_that_ends_early_is_an_error_with_its_words(
    program: str, said: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(InvalidRequest, match=r"--against llama\.cpp") as problem:
        list(child(tmp_path, program).logits([[1, 2]]))
    assert said in str(problem.value)
    assert capfd.readouterr() == ("", "")


def test_what_is_no_gguf_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match="reads GGUF files only"):
        verified(save_folder(tmp_path), against="llama.cpp")


def test_without_the_package_the_command_that_installs_it_is_told(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    with open_checkpoint(path) as checkpoint, pytest.raises(InvalidRequest) as problem:
        open_llama_cpp(path, checkpoint, 1, lambda _: None)
    assert install_command("llama-cpp") in str(problem.value)


@pytest.mark.parametrize(
    ("how", "due"),
    [
        ({}, None),
        ({"type_name": "F16"}, Rounding(inputs=torch.float16)),
        ({"type_name": "BF16"}, Rounding(inputs=torch.bfloat16)),
        ({"type_name": "Q4_0"}, Rounding(mxfp4=True, matrices=True, group=32)),
        (
            {"type_name": "Q8_0", "blocks": {"attn_v": "Q6_K"}},
            Rounding(mxfp4=True, matrices=True, group=256),
        ),
    ],
)
def test_its_rounding_is_that_of_the_coarsest_type(
    how: dict[str, Any], due: Rounding | None, tmp_path: Path
) -> None:
    model = save_tiny(tmp_path / "hf", "llama", hidden_size=256, head_dim=64)
    with open_checkpoint(write_gguf(tmp_path / "m.gguf", model, **how)) as checkpoint:
        assert rounding_of(checkpoint) == due


def config_of(path: Path) -> dict[str, Any]:
    return dict(model_files(path).json("config.json", error=ModelError))


class Scripted(LlamaCppOracle):
    """An oracle of logits alone: those of plain maths over the file, with a mistake or none."""

    def __init__(self, file: Path, reference: ReferenceOracle) -> None:
        super().__init__(file, None, 1, lambda _: None, version="scripted")
        self._reference = reference
        self._tokenizer = load_tokenizer(model_files(file))
        self.mistake: Any = lambda logits: logits
        self.other_id = self.other_text = False

    def logits(self, texts: Sequence[Sequence[int]]) -> Iterator[Tensor]:
        for logits in self._reference.logits(texts):
            yield self.mistake(logits.clone())

    def encode(self, text: str) -> list[int] | None:
        ids = self._tokenizer.encode(text)
        return [*ids[:7], 99, *ids[8:]] if self.other_id else ids

    def decode(self, token_ids: Sequence[int]) -> str | None:
        return "Another text." if self.other_text else self._tokenizer.decode(token_ids)


@pytest.fixture
def scripted(path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Scripted]:
    config = config_of(path)
    with open_checkpoint(path) as checkpoint:
        weights = PlainWeights(checkpoint, torch.float32)
        oracle = Scripted(path, ReferenceOracle(path, config, weights, lambda _: None))
        monkeypatch.setattr(choose, "open_llama_cpp", lambda *_: oracle)
        yield oracle


def row(report: Report, number: str) -> Row:
    [found] = [row for row in report.rows if row.number == number]
    return found


def test_an_oracle_of_logits_alone_is_compared_with(path: Path, scripted: Scripted) -> None:
    report = verified(path, against="llama.cpp")
    assert report.passed, report.verdict
    assert [row.number for row in report.rows] == ["0", "7", "8", "9", "10", "11", "12", "13"]
    assert "llama.cpp" in report.verdict
    assert "logits alone" in " ".join(report.notes)
    assert len(row(report, "7").products) >= 12  # of three layers and an embedding


def test_other_logits_are_found(path: Path, scripted: Scripted) -> None:
    def off(logits: Tensor) -> Tensor:
        logits[5, 3] += 0.01
        return logits

    scripted.mistake = off
    report = verified(path, against="llama.cpp")
    assert report.first_failure is row(report, "8")


def test_other_ids_of_the_tokenizer_are_found(path: Path, scripted: Scripted) -> None:
    scripted.other_id = True
    report = verified(path, against="llama.cpp")
    assert report.first_failure is row(report, "0")
    assert "from number 7 on" in report.verdict


def test_another_text_of_the_new_tokens_is_found(
    path: Path, scripted: Scripted, monkeypatch: pytest.MonkeyPatch
) -> None:
    scripted.other_text = True
    monkeypatch.setattr("inferno.text.tokenizer.Tokenizer.decode", lambda *_: "One text.")
    report = verified(path, against="llama.cpp")
    assert report.first_failure is row(report, "12")
    assert "'Another text.'" in report.verdict


def save_folder(folder: Path) -> Path:
    save_tiny(folder, "llama")
    return folder


SHAPES: dict[str, tuple[str, dict[str, Any]]] = {
    "llama, tied, biases": (
        "llama",
        {"tie_word_embeddings": True, "attention_bias": True, "mlp_bias": True},
    ),
    "llama, head size": ("llama", {"head_dim": 22, "num_hidden_layers": 5}),
    "llama, factors": ("llama", {"rope_parameters": {**LLAMA3, "rope_theta": 1e4}}),
    "llama, yarn": ("llama", {"rope_parameters": YARN}),
    "qwen2": ("qwen2", {"num_attention_heads": 6, "num_key_value_heads": 3}),
    "qwen3": ("qwen3", {"head_dim": 20}),
    "qwen3_moe": ("qwen3_moe", {**QWEN_MOE, "norm_topk_prob": True}),
    "mixtral": ("mixtral", {"num_local_experts": 5}),
    "gpt_oss": ("gpt_oss", {**GPT_OSS, "swiglu_limit": 7.0}),
}
CLOSE = 3e-6  # of all logits; a rounding of float32 is 6e-8


@has_llama_cpp
@pytest.mark.parametrize("name", SHAPES)
def test_logits_in_float32_are_those_of_llama_cpp(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kind, config = SHAPES[name]
    model = save_tiny(tmp_path / "hf", kind, vocab_size=VOCAB, **config)
    path = write_gguf(tmp_path / "m.gguf", model)
    if kind == "gpt_oss":
        round_the_ramp(path, monkeypatch)
    report = verified(path, against="llama.cpp")
    assert report.passed, report.verdict
    assert row(report, "8").measures[0].relative_error < CLOSE


@has_llama_cpp
@pytest.mark.parametrize("name", ["attn_factor", "yarn_attn_factor"])
def test_yarns_temperature_is_that_of_llama_cpp(name: str, tmp_path: Path) -> None:
    model = save_tiny(tmp_path / "hf", "qwen3", vocab_size=VOCAB, rope_parameters=YARN)
    path = write_gguf(tmp_path / "m.gguf", model)
    rewrite(path, {f"qwen3.rope.scaling.{name}": 0.8782488562869419})
    report = verified(path, against="llama.cpp")
    assert report.passed, report.verdict
    assert row(report, "8").measures[0].relative_error < CLOSE


def round_the_ramp(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the ends of YaRN's ramp rounded, as llama.cpp does in every model."""
    config = config_of(path)
    assert config["rope_scaling"].pop("truncate") is False
    monkeypatch.setattr("inferno.model_files.config_of", lambda *_, **__: config)


def test_a_ramp_that_llama_cpp_rounds_is_refused(tmp_path: Path) -> None:
    model = save_tiny(tmp_path / "hf", "gpt_oss", **GPT_OSS)
    with pytest.raises(InvalidRequest, match="rounds the ends of YaRN's ramp"):
        verified(write_gguf(tmp_path / "m.gguf", model), against="llama.cpp")


@pytest.mark.parametrize("name", ["beta_fast", "beta_slow"])
def test_ends_of_the_ramp_that_llama_cpp_does_not_read_are_told(name: str, tmp_path: Path) -> None:
    model = save_tiny(tmp_path / "hf", "qwen3", rope_parameters=YARN)
    path = write_gguf(tmp_path / "m.gguf", model)
    rewrite(path, {f"qwen3.rope.scaling.yarn_{name}": 4.0})
    with pytest.raises(InvalidRequest, match=f"doesn't read a file's YaRN {name}: it takes"):
        verified(path, against="llama.cpp")


def test_transformers_reads_no_gguf_files(path: Path) -> None:
    with pytest.raises(InvalidRequest, match=r"is a GGUF file; choose llama\.cpp, or leave"):
        verified(path, against="transformers")


def test_the_second_oracle_of_a_gguf_file_is_one_that_reads_it(path: Path) -> None:
    failed = replace(row(verified(path), "8"), problems=("its logits are no numbers",))
    evidence = cast(Evidence, None)  # of a problem in words there is none

    def advice(*, is_gguf: bool) -> str:
        found = diagnose(failed, evidence, model_file="", against="reference", is_gguf=is_gguf)
        return found.advice

    assert "--against llama.cpp" in advice(is_gguf=True)
    assert "--against transformers" not in advice(is_gguf=True)
    assert "--against transformers" in advice(is_gguf=False)


TYPES = ("F16", "BF16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q4_K", "Q5_K", "Q6_K", "MXFP4")
WIDE: dict[str, Any] = {
    "vocab_size": VOCAB,
    "hidden_size": 256,
    "intermediate_size": 512,
    "head_dim": 64,
}


@has_llama_cpp
@has_kernels
@pytest.mark.parametrize("type_name", TYPES)
def test_rounded_logits_are_as_near_to_llama_cpp_as_both_round(
    type_name: str, tmp_path: Path
) -> None:
    model = save_tiny(tmp_path / "hf", "llama", **WIDE)
    has_blocks = type_name.startswith(("Q", "MX"))
    all_matrices = dict.fromkeys(("attn", "ffn", "token", "output"), type_name)
    how: Any = {"blocks": all_matrices} if has_blocks else {"type_name": type_name}
    report = verified(write_gguf(tmp_path / "m.gguf", model, **how), against="llama.cpp")
    assert report.passed, report.verdict
    [logits] = row(report, "8").measures
    assert logits.relative_tolerance < 0.1
    assert logits.relative_error <= logits.relative_tolerance


@has_llama_cpp
@has_kernels
def test_packed_experts_are_as_near_to_llama_cpp_as_both_round(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Blocks of MXFP4, gates and ups apart, with sinks, windows and YaRN."""
    model = save_tiny_mxfp4(
        tmp_path / "hf", **{**GPT_OSS, "swiglu_limit": 7.0, "vocab_size": VOCAB}
    )
    blocks = gpt_oss_blocks(tmp_path / "hf" / "model.safetensors")
    path = write_gguf(tmp_path / "m.gguf", model, mxfp4=blocks)
    round_the_ramp(path, monkeypatch)
    report = verified(path, against="llama.cpp")
    assert report.passed, report.verdict
    [logits] = row(report, "8").measures
    assert logits.cosine > 0.999
    assert logits.relative_error <= logits.relative_tolerance


@has_llama_cpp
@pytest.mark.parametrize("name", ["stories260K-f32-v3.gguf", "stories260K-q8_0-v3.gguf"])
def test_a_real_model_is_that_of_llama_cpp(name: str) -> None:
    report = verified(data_path("stories260K-gguf", name), against="llama.cpp")
    assert report.passed, report.verdict
    assert "16 of 16 tokens equal" in row(report, "12").findings[0]


@has_llama_cpp
def test_a_mistake_of_our_own_reader_is_found_by_llama_cpp_alone(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows of q and k that stay in the file's order: the reference reads them so too."""
    monkeypatch.setattr("inferno.weights.gguf.has_permuted_heads", lambda _: False)
    assert verified(path).passed
    report = verified(path, against="llama.cpp")
    assert report.first_failure is row(report, "8")


@has_llama_cpp
@has_kernels
def test_another_reading_of_the_metadata_is_found_by_llama_cpp_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = save_tiny(tmp_path / "hf", "qwen3", **WIDE)
    blocks = dict.fromkeys(("attn", "ffn", "token", "output"), "Q4_K")
    path = write_gguf(tmp_path / "m.gguf", model, blocks=blocks)
    config = {**config_of(path), "rope_theta": 1e3}
    monkeypatch.setattr("inferno.model_files.config_of", lambda *_, **__: config)
    assert verified(path).passed
    assert not row(verified(path, against="llama.cpp"), "8").passed


@has_llama_cpp
def test_a_file_that_llama_cpp_does_not_load_is_an_error_with_its_words(tmp_path: Path) -> None:
    (tmp_path / "m.gguf").write_bytes(b"GGUF" + bytes(60))
    oracle = LlamaCppOracle(tmp_path / "m.gguf", None, 1, lambda _: None, version="")
    with pytest.raises(InvalidRequest, match="can't load this file"):
        oracle.encode("Hello")
    assert llamacpp.CHILD[0] == sys.executable
