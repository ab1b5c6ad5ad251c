"""Average models of one shape: `python scripts/average_demo.py OUT FOLDER FOLDER...`.

Stages of one training (`train_demo.py --from`) differ by what each learned last; the mean of their
weights keeps more of it than any of them. Each folder is that of one model; OUT gets the mean and
the other files of the last.
"""

from __future__ import annotations

import argparse
import shutil
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

WEIGHTS = "model.safetensors"


def main() -> None:
    """Read the models, write their mean in bfloat16."""
    parser = argparse.ArgumentParser(description="Average models of one shape.")
    parser.add_argument("out", type=Path)
    parser.add_argument("folders", type=Path, nargs="+")
    arguments = parser.parse_args()
    average(arguments.folders, arguments.out)


def average(folders: list[Path], out: Path) -> None:
    """Write the mean of the folders' weights into another folder."""
    models = [load_file(folder / WEIGHTS) for folder in folders]
    out.mkdir(parents=True, exist_ok=True)
    for path in folders[-1].iterdir():
        if path.is_file() and path.suffix != ".safetensors":
            shutil.copy(path, out / path.name)
    mean = {
        name: torch.stack([model[name].float() for model in models]).mean(0).to(torch.bfloat16)
        for name in models[0]
    }
    save_file(mean, out / WEIGHTS, metadata={"format": "pt"})
    (out / WEIGHTS).chmod(0o644)  # safetensors writes it for the owner alone


if __name__ == "__main__":
    main()
