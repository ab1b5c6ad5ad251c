"""Mistakes between blocks, and models that compute beside their ops, are found and named."""

from __future__ import annotations

import pytest

from inferno.layers.decoder import CausalLM
from inferno.layers.norm import RMSNorm
from tests.verify.faults import in_model
from tests.verify.faults_attention import beside_its_op, beside_its_op_while_decoding
from tests.verify.faults_stream import (
    layer_forward,
    no_norm,
    norm_beside_its_op,
    of_final_norm,
    patched,
    run_twice,
    scaled,
    scaled_embedding_module,
    without_layer,
    without_sinks_of_layer,
    wrong_norm_beside_its_op,
)
from tests.verify.planted import Fault, Folders, check
from tests.verify.tiny_models import verified

FAULTS = {
    "an embedding scaled outside its op": Fault(
        "llama",
        scaled_embedding_module(48**0.5),
        "1",
        0,
        "the error of the embeddings that enter layer 0 is",
    ),
    "embeddings of a scale without a name": Fault(
        "llama", scaled_embedding_module(7.0), "1", 0, "all values are 7 times what is expected"
    ),
    "a wrong norm beside its op": Fault(
        "llama",
        patched(RMSNorm, "add", wrong_norm_beside_its_op),
        "1",
        0,
        "one is added to the norm's weights",
    ),
    "no norms": Fault("llama", patched(RMSNorm, "add", no_norm), "1", 0, "nothing is normalized"),
    "no last norm": Fault("llama", of_final_norm(no_norm), "8", None, "the last norm is left out"),
    "a layer left out": Fault(
        "llama, five layers", without_layer(1), "1", 1, "the model never ran layer 1"
    ),
    "a layer left out that nobody looks into": Fault(
        "llama, five layers", without_layer(2), "1", 2, "the model never ran layer 2"
    ),
    "the last layer left out": Fault(
        "llama, five layers", without_layer(4), "1", 4, "the model never ran layer 4"
    ),
    "a layer that runs twice": Fault(
        "llama", run_twice(1), "1", 1, "the model called self_attn in layer 1 for 126 positions"
    ),
    "a rotation beside its op": Fault(
        "llama", beside_its_op, "1B", 0, "never called ops.rotate_and_store in layer 0"
    ),
    "a rotation beside its op while decoding": Fault(
        "llama", beside_its_op_while_decoding, "1B", 0, "for 48 of 63 positions only"
    ),
    "sinks that are not handed on": Fault(
        "gpt_oss",
        without_sinks_of_layer(1),
        "4",
        1,
        "called ops.attention in layer 1 without sinks",
    ),
    "the residual added twice": Fault(
        "llama",
        layer_forward(lambda x, residual: (x + residual, residual)),
        "7",
        0,
        "the residual is added twice after the FFN",
    ),
    "the FFN's output added twice": Fault(
        "llama",
        layer_forward(lambda x, residual: (2 * x, residual)),
        "7",
        0,
        "the FFN's output is added twice",
    ),
    "logits scaled": Fault(
        "llama", patched(CausalLM, "logits", scaled(1.1)), "8", None, "all values are 1.1 times"
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_is_found_and_named(
    folders: Folders, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    check(folders, monkeypatch, FAULTS[fault])


def test_an_embedding_that_is_too_large_is_not_blamed_on_a_norm(
    folders: Folders, monkeypatch: pytest.MonkeyPatch
) -> None:
    report = check(folders, monkeypatch, FAULTS["an embedding scaled outside its op"])
    assert report.diagnosis.cause == "embeddings are multiplied by sqrt(E) = 6.928"


def test_a_right_norm_beside_its_op_is_right(
    folders: Folders, monkeypatch: pytest.MonkeyPatch
) -> None:
    patched(RMSNorm, "add", norm_beside_its_op)(monkeypatch)
    assert verified(folders["llama"]).passed


def test_the_tensor_of_the_verdict_is_that_of_its_cause(
    folders: Folders, monkeypatch: pytest.MonkeyPatch
) -> None:
    def forget_biases(model: object) -> None:
        for layer in model.model.layers:  # type: ignore[attr-defined]
            layer.self_attn.qkv_proj.bias = None

    in_model(forget_biases)(monkeypatch)
    report = verified(folders["qwen2"])
    assert report.first_failure is not None
    assert report.first_failure.shown is not None
    assert report.first_failure.shown.name == "q"  # though the bias of k may be larger
    assert "the error of q is" in report.verdict
    assert report.diagnosis.cause == "the bias is left out"
