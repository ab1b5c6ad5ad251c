"""What do 8-bit activations beside MXFP4 weights cost in quality? Prints a table.

    python benchmarks/mxfp4_activations.py [--layers N] [--tokens N] [--texts N]

Shapes of gpt-oss (a tiny one, and gpt-oss-20b's with N of its layers) have random weights, the same
in every row. The truth is the reference in float32, with float activations. Beside it stand the
reference in bfloat16, in which such checkpoints are trained and run, and the compiled kernels,
which multiply MXFP4 weights by activations of 8 bits.

Divergence is KL(truth || row), the mean over all tokens. `same` says how often the likeliest token
is the truth's, `experts` how often a token's set of experts is not, over tokens and layers; `error`
is the median difference of a logit, as a share of its row's standard deviation.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import torch
from peer_shapes import CONFIGS
from torch import Tensor

from inferno import ops
from inferno.engine.build import build_engine
from inferno.options import EngineOptions

# INFERNO_KERNELS, and the dtype that is computed with.
TRUTH = ("reference", "float32")
ROWS = (("reference", "bfloat16"), ("", "float32"), ("", "bfloat16"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--layers", type=int, default=4, help="of gpt-oss-20b's shape")
    parser.add_argument("--tokens", type=int, default=128, help="of a text")
    parser.add_argument("--texts", type=int, default=4)
    parser.add_argument("--run", nargs=3, help=argparse.SUPPRESS)  # a row, in its own process
    args = parser.parse_args()
    if args.run:
        run(Path(args.run[0]), args.run[1], Path(args.run[2]), args.texts, args.tokens)
        return
    columns = ("model", "computed by", "KL", "same", "experts", "error")
    print("{:<24}{:<21}{:>10}{:>9}{:>9}{:>9}".format(*columns))
    for name, num_layers in (("tiny-gpt-oss", 2), ("gpt-oss-20b", args.layers)):
        with tempfile.TemporaryDirectory() as folder:
            write_config(Path(folder), CONFIGS[name], num_layers)
            compare(f"{name}, {num_layers} layers", Path(folder), args.texts, args.tokens)


def write_config(folder: Path, config: dict[str, Any], num_layers: int) -> None:
    kinds = list(islice(cycle(config["layer_types"]), num_layers))
    changed = {**config, "num_hidden_layers": num_layers, "layer_types": kinds}
    (folder / "config.json").write_text(json.dumps(changed))


def compare(label: str, folder: Path, num_texts: int, num_tokens: int) -> None:
    truth = measured(folder, *TRUTH, num_texts, num_tokens)
    true_TV, true_experts = truth["logits"].log_softmax(-1), truth["experts"]
    for kernels, dtype in ROWS:
        row = measured(folder, kernels, dtype, num_texts, num_tokens)
        got_TV = row["logits"].log_softmax(-1)
        divergence = float((true_TV.exp() * (true_TV - got_TV)).double().sum(-1).mean())
        same = float((true_TV.argmax(-1) == got_TV.argmax(-1)).double().mean())
        moved = float((row["experts"] != true_experts).any(-1).double().mean())
        spread = truth["logits"].std(-1, keepdim=True)
        error = float(((row["logits"] - truth["logits"]).abs() / spread).median())
        by = f"{kernels or 'kernels'}, {dtype}"
        print(f"{label:<24}{by:<21}{divergence:>10.6f}{same:>9.2%}{moved:>9.2%}{error:>9.4f}")


def measured(
    folder: Path, kernels: str, dtype: str, num_texts: int, num_tokens: int
) -> dict[str, Tensor]:
    """Logits and sorted experts of all tokens, computed in a process of its own."""
    out = folder / "out.pt"
    counts = ["--texts", str(num_texts), "--tokens", str(num_tokens)]
    subprocess.run(
        [sys.executable, __file__, *counts, "--run", folder, dtype, out],
        env={**os.environ, "INFERNO_KERNELS": kernels},
        check=True,
    )
    found: dict[str, Tensor] = torch.load(out, weights_only=True)
    return found


def run(folder: Path, dtype: str, out: Path, num_texts: int, num_tokens: int) -> None:
    options = EngineOptions(
        model=folder, dtype=dtype, load_format="dummy", num_blocks=64, graphs=False
    )
    engine = build_engine(options)
    chosen = record_experts()
    generator = torch.Generator().manual_seed(1)
    vocab_size = json.loads((folder / "config.json").read_text())["vocab_size"]
    texts = torch.randint(vocab_size, (num_texts, num_tokens), generator=generator)
    logits = torch.cat([engine.logits(text.tolist()) for text in texts])
    experts = torch.cat([experts_TA.sort(-1).values for experts_TA in chosen])
    torch.save({"logits": logits, "experts": experts}, out)


def record_experts() -> list[Tensor]:
    """A list that each call of `ops.route` adds its experts to."""
    chosen: list[Tensor] = []
    route = ops.route

    def recorded(*args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        experts_TA, weights_TA = route(*args, **kwargs)
        chosen.append(experts_TA.clone())
        return experts_TA, weights_TA

    ops.route = recorded
    return chosen


if __name__ == "__main__":
    main()
