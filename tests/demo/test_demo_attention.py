"""The attention that the embedded models are trained with is that of `transformers`."""

from __future__ import annotations

import demo_attention
import pytest
import torch
from demo_attention import NAME
from transformers import LlamaConfig, LlamaForCausalLM


@pytest.mark.parametrize("chunk", [1, 2, 4, 256])
def test_grouped_attention_agrees_with_transformers(
    chunk: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(demo_attention, "_CHUNK", chunk)
    ids = torch.tensor([[5, 3, 9, 9, 1, 7], [2, 8, 4, 6, 0, 0]])
    logits, gradients = _computed(NAME, ids)
    expected_logits, expected_gradients = _computed("eager", ids)
    # transformers turns positions into angles in float32, whatever the weights are
    torch.testing.assert_close(logits, expected_logits, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(gradients, expected_gradients, rtol=1e-3, atol=1e-3)


def _computed(attention: str, ids: torch.Tensor) -> tuple[torch.Tensor, list[torch.Tensor]]:
    torch.manual_seed(0)
    model = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=10,
            hidden_size=24,
            intermediate_size=32,
            num_hidden_layers=2,
            num_attention_heads=6,
            num_key_value_heads=2,
            head_dim=8,
            initializer_range=0.3,  # so that attention is far from even
            attn_implementation=attention,
        )
    ).double()
    logits = model(ids).logits
    torch.autograd.backward(logits.square().sum())
    return logits.detach(), [p.grad for p in model.parameters() if p.grad is not None]
