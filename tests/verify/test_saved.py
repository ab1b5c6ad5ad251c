"""A run is saved on one machine and compared with on another; a bad file is refused in words."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from safetensors import safe_open

from inferno.errors import InfernoError
from inferno.verify.oracles.saved import load
from tests.tiny import edit_config, save_tiny
from tests.verify.faults import in_layers, set_on
from tests.verify.tiny_models import save_model, verified


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_model(tmp_path_factory.mktemp("model"), "gpt_oss")


@pytest.fixture(scope="module")
def saved(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("saved") / "laptop.safetensors"
    verified(folder, save=path)
    return path


def test_a_saved_run_is_an_oracle(folder: Path, saved: Path) -> None:
    report = verified(folder, against=str(saved))
    assert report.passed, report.verdict
    assert "laptop.safetensors" in report.oracle
    assert all(measure.max_error == 0 for row in report.rows for measure in row.measures)


def test_another_dtype_is_judged_by_the_coarser_one(tmp_path: Path) -> None:
    folder = save_model(tmp_path, "qwen2")
    coarse, fine = tmp_path / "gpu.safetensors", tmp_path / "laptop.safetensors"
    verified(folder, save=coarse, dtype="bfloat16")
    verified(folder, save=fine)
    for path, dtype in ((coarse, "float32"), (fine, "bfloat16")):
        report = verified(folder, against=str(path), dtype=dtype)
        assert report.passed, report.verdict
        assert report.rows[1].measures[1].tolerance > 1e-3


def test_a_fault_shows_against_a_saved_run(
    folder: Path, saved: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_layers(set_on("self_attn.scale", 1 / 16))(monkeypatch)
    report = verified(folder, against=str(saved))
    assert report.first_failure is not None
    assert report.first_failure.number == "4"
    assert "the scale is 1/D" in report.verdict


def test_other_weights_and_configs_fail_the_foundation(saved: Path, tmp_path: Path) -> None:
    save_tiny(tmp_path, "gpt_oss", seed=1, head_dim=16, num_local_experts=5, num_experts_per_tok=2)
    report = verified(tmp_path, against=str(saved))
    assert report.first_failure is not None
    assert report.first_failure.number == "0"
    assert "the saved run had another weights" in " ".join(report.first_failure.problems)
    assert "another config" in report.verdict


def test_the_file_is_plain_safetensors(saved: Path) -> None:
    with safe_open(saved, "pt") as file:
        facts = json.loads(file.metadata()["facts"])
        assert file.get_tensor("logits").shape == (len(facts["token_ids"]), 96)
    assert facts["dtype"] == "float32"
    assert len(facts["weights"]) == 64


def change_header(change: Callable[[dict[str, Any]], object]) -> Callable[[bytes], bytes]:
    def damage(content: bytes) -> bytes:
        length = int.from_bytes(content[:8], "little")
        header = json.loads(content[8 : 8 + length])
        change(header)
        text = json.dumps(header).encode()
        return len(text).to_bytes(8, "little") + text + content[8 + length :]

    return damage


def change_facts(**changes: Any) -> Callable[[bytes], bytes]:
    def change(header: dict[str, Any]) -> None:
        facts = {**json.loads(header["__metadata__"]["facts"]), **changes}
        header["__metadata__"]["facts"] = json.dumps(facts)

    return change_header(change)


def flatten(described: dict[str, Any]) -> None:
    described["shape"] = [math.prod(described["shape"])]


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda content: b"", "too few"),
        (lambda content: content[:-5], "cut short"),
        (lambda content: b"\x80\x02" + content, "pickle"),
        (change_header(lambda header: header.pop("__metadata__")), "not written by inferno"),
        (change_header(lambda header: header.update(logits=None)), "logits"),
        (change_facts(token_ids="many"), "token_ids"),
        (change_facts(token_ids=[-1]), "token_ids"),
        (change_facts(num_prompt_tokens=10**9), "num_prompt_tokens"),
        (change_facts(layers=[]), "no layers"),
        (change_facts(dtype="complex64"), "dtype"),
        (change_facts(surplus=1), "facts"),
        (change_header(lambda header: header["__metadata__"].update(facts="\ud800")), "JSON"),
        (change_header(lambda header: flatten(header["0.scores"])), "'0.scores' has the shape"),
    ],
)
def test_a_damaged_file_is_refused(
    saved: Path, tmp_path: Path, damage: Callable[[bytes], bytes], said: str
) -> None:
    path = tmp_path / "damaged.safetensors"
    path.write_bytes(damage(saved.read_bytes()))
    with pytest.raises(InfernoError, match=said) as caught:
        load(path)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize("missing", ["logits", "cos_sin", "0.q", "1.residual", "2.scores"])
def test_a_file_without_a_tensor_is_refused(
    folder: Path, saved: Path, tmp_path: Path, missing: str
) -> None:
    def rename(header: dict[str, Any]) -> None:
        header["other"] = header.pop(missing)

    path = tmp_path / "damaged.safetensors"
    path.write_bytes(change_header(rename)(saved.read_bytes()))
    with pytest.raises(InfernoError, match=missing):
        verified(folder, against=str(path))


def test_layers_that_the_model_lacks_are_refused(folder: Path, saved: Path, tmp_path: Path) -> None:
    path = tmp_path / "damaged.safetensors"
    path.write_bytes(change_facts(layers=[0, 999])(saved.read_bytes()))
    with pytest.raises(InfernoError, match=r"layer 999, and this model has \d layers"):
        verified(folder, against=str(path))


def test_ids_beyond_the_vocabulary_are_refused(folder: Path, saved: Path, tmp_path: Path) -> None:
    ids = load(saved).facts.token_ids
    path = tmp_path / "damaged.safetensors"
    path.write_bytes(change_facts(token_ids=[10**6, *ids[1:]])(saved.read_bytes()))
    with pytest.raises(InfernoError):
        verified(folder, against=str(path))


def test_what_the_file_does_not_have_cannot_be_asked(folder: Path, saved: Path) -> None:
    with pytest.raises(InfernoError, match="--prompt"):
        verified(folder, against=str(saved), prompt="hello")
    with pytest.raises(InfernoError, match="--quality"):
        verified(folder, against=str(saved), quality=saved)


def test_a_file_that_is_not_there_is_named(folder: Path) -> None:
    with pytest.raises(InfernoError, match="no-such-file"):
        verified(folder, against="no-such-file")


def test_layers_that_were_not_saved_are_refused(tmp_path: Path) -> None:
    save_model(tmp_path, "llama, five layers")
    path = tmp_path / "run.safetensors"
    verified(tmp_path, save=path, layers=(0,))
    assert verified(tmp_path, against=str(path)).passed
    with pytest.raises(InfernoError, match="layers 0 only"):
        verified(tmp_path, against=str(path), layers=(3,))


def test_an_unwritable_place_is_refused_before_the_work(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(InfernoError, match="--save"):
        verified(folder, save=tmp_path / "no" / "such" / "file")


def test_a_changed_config_is_noticed(saved: Path, folder: Path, tmp_path: Path) -> None:
    for file in folder.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    edit_config(tmp_path, rms_norm_eps=1e-6)
    report = verified(tmp_path, against=str(saved))
    assert "another config" in report.verdict
