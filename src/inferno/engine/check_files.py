"""Check a model's config and the headers of its weights as loading does, and read no weight.

`inferno doctor MODEL` runs this module as a process of its own, for commands import no PyTorch.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import torch

from inferno.engine.build import read_hf_config
from inferno.engine.execution.device import choose_dtype
from inferno.errors import ModelError
from inferno.model_files import model_config
from inferno.models import find_model
from inferno.weights.loader import check_weights
from inferno.weights.open import open_checkpoint


def check_files(path: Path) -> None:
    """Raise ModelError where the engine would not load the model in a folder or a GGUF file."""
    hf_config = read_hf_config(path)
    config = model_config(path, hf_config)
    choose_dtype("auto", hf_config, torch.device("cpu"))
    module = find_model(hf_config)
    with torch.device("meta"):
        model = module.build(config)
    tied = {"lm_head.weight": "model.embed_tokens.weight"} if config.tie_word_embeddings else {}
    with open_checkpoint(path) as checkpoint:
        check_weights(model, checkpoint, module.fused_weights(config), tied)


def _refusal(path: Path) -> str | None:
    try:
        check_files(path)
    except ModelError as problem:
        return str(problem)
    return None


if __name__ == "__main__":
    print(json.dumps({"refusal": _refusal(Path(sys.argv[1]))}))
