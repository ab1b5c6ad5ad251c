"""Texts of a real model in GGUF: the published one, and that of the library's values."""

from __future__ import annotations

from pathlib import Path

import gguf
import pytest
import torch
from gguf.quants import dequantize
from transformers import AutoModelForCausalLM

from inferno import LLM, SamplingParams
from tests.data import data_path
from tests.weights.test_gguf import logits

GREEDY = SamplingParams(temperature=0.0, max_tokens=256)


def test_the_published_text_is_that_of_the_file_in_floats() -> None:
    golden = (data_path("stories260K") / "golden_greedy_256.txt").read_text()
    with LLM(stories("f32"), threads=1) as llm:
        assert llm.generate([""], GREEDY)[0].text == golden


@pytest.mark.usefixtures("reference_kernels")  # which round no inputs
def test_the_text_of_the_file_in_q8_0_is_that_of_the_librarys_values() -> None:
    model = AutoModelForCausalLM.from_pretrained(data_path("stories260K"), dtype=torch.float32)
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA, model.config.num_hidden_layers)
    tensors = {one.name: one for one in gguf.GGUFReader(stories("q8_0")).tensors}
    assert "Q8_0" in {one.tensor_type.name for one in tensors.values()}
    for name, parameter in model.named_parameters():
        stem, _, suffix = name.rpartition(".")
        tensor = tensors[f"{names.get_name(stem)}.{suffix}"]
        values = torch.from_numpy(dequantize(tensor.data, tensor.tensor_type))
        if "q_proj" in name or "k_proj" in name:  # whose rows lie as rotary pairs
            values = values.view(-1, 4, 2, values.shape[1]).transpose(1, 2).flatten(0, 2)
        parameter.data.copy_(values)
    with torch.inference_mode():
        due = model.generate(torch.tensor([[1]]), do_sample=False, max_new_tokens=256)
        due_logits = model(due).logits[0]
    with LLM(stories("q8_0"), threads=1, dtype="float32") as llm:
        [completion] = llm.generate([""], GREEDY)
    assert [1, *completion.token_ids] == due[0].tolist()
    found = logits(stories("q8_0"), due[0].tolist())
    assert (found - due_logits).abs().max() <= 1e-4 * due_logits.abs().max()


def stories(kind: str) -> Path:
    return data_path("stories260K-gguf", f"stories260K-{kind}-v3.gguf")
