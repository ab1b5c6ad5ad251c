"""Models that are right pass, against every oracle; and the oracles agree among themselves."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch

from inferno.convert import write_folder
from inferno.demo import MODEL_FOLDERS
from inferno.verify.checks.measures import largest, max_error
from inferno.verify.oracles.hf_transformers import TransformersOracle
from inferno.verify.oracles.plain_config import read_plain_config
from inferno.verify.oracles.plain_weights import PlainWeights
from inferno.verify.oracles.reference import ReferenceOracle
from inferno.verify.outcome import Report
from inferno.weights.open import open_checkpoint
from tests.data import data_path
from tests.gguf.convert import write_gguf
from tests.models.test_against_transformers import LLAMA3
from tests.tiny import edit_config, save_tiny
from tests.verify.faults import in_model, unscaled_yarn
from tests.verify.tiny_models import MODELS, save_model, verified

NUMBERS = ["0", "1", "1B", "2", "3", "4", "5", "6", "7", "8", "9", "10", "11", "12", "13"]


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return {name: save_model(tmp_path_factory.mktemp("model"), name) for name in MODELS}


def assert_passed(report: Report) -> None:
    assert report.passed, report.verdict
    assert report.verdict.startswith("PASS")
    assert list(dict.fromkeys(row.number for row in report.rows)) == NUMBERS


@pytest.mark.parametrize("model", MODELS)
def test_a_right_model_passes(folders: dict[str, Path], model: str) -> None:
    assert_passed(verified(folders[model]))


@pytest.mark.parametrize("model", ["qwen3, windows", "qwen3_moe", "gpt_oss"])
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_a_right_model_passes_in_16_bits(folders: dict[str, Path], model: str, dtype: str) -> None:
    assert_passed(verified(folders[model], dtype=dtype))


@pytest.mark.parametrize("against", ["transformers", "cpu"])
@pytest.mark.parametrize("model", ["llama, yarn", "qwen3, windows", "gpt_oss"])
def test_a_right_model_passes_against_others(
    folders: dict[str, Path], model: str, against: str
) -> None:
    report = verified(folders[model], against=against)
    assert_passed(report)
    assert against in report.verdict
    is_itself = "the engine is compared with itself" in " ".join(report.notes)
    assert is_itself == (against == "cpu")


@pytest.mark.parametrize("model", [name for name in MODELS if "mxfp4" not in name])
def test_the_reference_gives_every_tensor_that_transformers_gives(
    folders: dict[str, Path], model: str
) -> None:
    folder, token_ids = folders[model], [5, 77, 3, 41, 60, 2, 19, 88, 31, 7, 54, 12, 90, 23, 66]
    hf_config = json.loads((folder / "config.json").read_text())
    layers = range(hf_config["num_hidden_layers"])
    theirs = TransformersOracle(folder, read_plain_config(hf_config)).taps(token_ids, layers, {})
    with open_checkpoint(folder) as checkpoint:
        weights = PlainWeights(checkpoint, torch.float32)
        oracle = ReferenceOracle(folder, hf_config, weights, lambda _: None)
        ours = oracle.taps(token_ids, layers, {})
    assert ours.keys() == theirs.keys()
    for name, tensor in theirs.items():
        assert max_error(ours[name], tensor) <= 2e-5 * max(1.0, largest(tensor)), name


@pytest.fixture(scope="module")
def with_factors(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A GGUF file with rope_freqs.weight, as those of Llama 3.1 are."""
    folder = tmp_path_factory.mktemp("factors")
    rope = {**LLAMA3, "rope_theta": 1e4}
    return write_gguf(folder / "m.gguf", save_tiny(folder / "hf", "llama", rope_parameters=rope))


def test_a_gguf_file_with_factors_of_frequencies_passes(with_factors: Path, tmp_path: Path) -> None:
    assert_passed(verified(with_factors))
    write_folder(with_factors, tmp_path / "packed", "q8_0", threads=1)
    assert_passed(verified(tmp_path / "packed"))


def test_factors_of_frequencies_that_are_left_out_are_found(
    with_factors: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_model(unscaled_yarn)(monkeypatch)
    report = verified(with_factors)
    assert report.first_failure is not None
    assert report.first_failure.number == "1B"
    assert "scaling of frequencies" in report.verdict


def test_the_embedded_model_passes() -> None:
    report = verified(MODEL_FOLDERS["demo"])
    assert_passed(report)
    assert "tokenizer" in " ".join(report.rows[0].findings)


def test_a_real_tiny_checkpoint_passes() -> None:
    assert_passed(verified(data_path("stories260K"), against="transformers"))


def test_insides_are_compared_of_the_asked_layers_only(folders: dict[str, Path]) -> None:
    report = verified(folders["llama, five layers"], layers=(1, -1))
    inside = {row.layer for row in report.rows if row.number == "5"}
    assert inside == {1, 4}
    blocks = [row for row in report.rows if row.number == "7"]
    assert [row.title for row in blocks] == ["first block", "layer 1", "layers 2 to 3", "layer 4"]
    assert [len(row.measures) for row in blocks] == [1, 1, 2, 1]


def test_a_window_that_hides_nothing_is_told(tmp_path: Path) -> None:
    save_tiny(tmp_path, "mistral", sliding_window=9)
    edit_config(tmp_path, sliding_window=600, max_position_embeddings=1000)
    [note] = verified(tmp_path).notes
    assert "window of 600 tokens hid nothing" in note


@pytest.mark.parametrize(
    ("model", "left_out"),
    [
        ("llama", ("rope_parameters", "rms_norm_eps", "head_dim", "tie_word_embeddings")),
        ("mistral", ("sliding_window", "head_dim")),
        ("qwen3_moe", ("norm_topk_prob", "rms_norm_eps", "rope_parameters")),
        ("mixtral", ("sliding_window", "rms_norm_eps", "rope_parameters")),
        ("gpt_oss", ("layer_types", "rms_norm_eps", "swiglu_alpha")),
    ],
)
def test_a_key_that_is_left_out_means_the_same_to_both_readings(
    folders: dict[str, Path], tmp_path: Path, model: str, left_out: tuple[str, ...]
) -> None:
    shutil.copytree(folders[model], tmp_path, dirs_exist_ok=True)
    edit_config(tmp_path, **dict.fromkeys(left_out))
    assert_passed(verified(tmp_path))


def test_too_small_a_tolerance_fails(folders: dict[str, Path]) -> None:
    report = verified(folders["llama"], tolerance=1e-9)
    assert report.first_failure is not None
    assert verified(folders["llama"], tolerance=1e-3).passed


def test_the_device_oracle_runs_the_text_in_one_go(folders: dict[str, Path]) -> None:
    assert_passed(verified(folders["mixtral"], against="cpu", dtype="float32"))
    assert torch.get_num_threads() == 1
