"""The options that commands share: how a model is loaded and how its tokens are chosen."""

from __future__ import annotations

import logging
import sys
from enum import StrEnum
from typing import Annotated, Any

import typer

import inferno
from inferno.cli.terminal import loading_bar
from inferno.errors import InvalidRequest

Effort = StrEnum("Effort", ["none", "low", "medium", "high"])
DType = StrEnum("DType", ["auto", "float32", "bfloat16", "float16"])
LoadFormat = StrEnum("LoadFormat", ["safetensors", "dummy"])
KVDType = StrEnum("KVDType", ["auto", "float32", "bfloat16", "float16", "int8"])
Attention = StrEnum("Attention", ["auto", "naive", "flash"])
Quantization = StrEnum("Quantization", ["none", "int8", "int4"])

MaxTokens = Annotated[int | None, typer.Option(help="New tokens at most.", show_default="256")]
Temperature = Annotated[
    float | None,
    typer.Option("--temperature", "-t", help="0 is greedy.", show_default="the model's, or 1.0"),
]
TopK = Annotated[int | None, typer.Option(help="Keep the k likeliest tokens; 0 keeps all.")]
TopP = Annotated[
    float | None,
    typer.Option(help="Keep the likeliest tokens up to this probability; 0 keeps the likeliest."),
]
MinP = Annotated[
    float | None,
    typer.Option(help="Drop tokens less likely than this share of the likeliest."),
]
RepetitionPenalty = Annotated[float | None, typer.Option(help="Above 1.0 discourages repetition.")]
Seed = Annotated[int | None, typer.Option(help="Makes the random choices repeatable.")]
Stop = Annotated[
    list[str] | None, typer.Option(help="A text that ends the output; may be repeated.")
]

Revision = Annotated[str | None, typer.Option(help="Branch, tag or commit of a Hugging Face id.")]
Device = Annotated[str | None, typer.Option(help="cpu, cuda, cuda:N or mps.", show_default="cpu")]
Cuda = Annotated[bool, typer.Option("--cuda", help="Short for --device cuda.")]
Threads = Annotated[
    int | None, typer.Option(help="CPU threads.", show_default="the physical cores")
]
ComputeDType = Annotated[DType, typer.Option("--dtype", help="What is computed with.")]
Quantize = Annotated[
    Quantization, typer.Option("--quantize", help="Pack the weights while they are loaded.")
]
CacheDType = Annotated[
    KVDType, typer.Option("--kv-dtype", help="What keys and values are kept in.")
]
NumBlocks = Annotated[
    int | None, typer.Option(help="Blocks of the KV cache.", show_default="by free memory")
]
BlockSize = Annotated[int, typer.Option(help="Tokens per block of the KV cache.")]
MaxNumBatchedTokens = Annotated[int, typer.Option(help="Tokens computed per step.")]
PriorityAging = Annotated[
    float,
    typer.Option(help="Levels of priority gained per second of waiting; 0 keeps them strict."),
]
StepTarget = Annotated[
    str,
    typer.Option(
        "--step-target-ms",
        metavar="MS",
        help="How long a step should take while a stream waits for it: auto, a number, or 0 for "
        "no bound.",
    ),
]
AttentionAlgorithm = Annotated[Attention, typer.Option("--attention", help="Attention algorithm.")]
LoadFormatOption = Annotated[
    LoadFormat, typer.Option("--load-format", help="dummy: random weights in real shapes.")
]
AllowUnknownConfig = Annotated[
    bool,
    typer.Option("--allow-unknown-config", help="Go on when config.json has unknown keys."),
]
ReasoningEffort = Annotated[
    Effort | None,
    typer.Option(help="How much a model that can reason does.", show_default="the model's"),
]
Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Log what the engine chooses.")]
Debug = Annotated[bool, typer.Option("--debug", help="Show tracebacks.")]


def device_name(device: str | None, cuda: bool) -> str:
    """The device that --device and --cuda ask for together."""
    if cuda and device not in (None, "cuda"):
        raise InvalidRequest(f"--cuda and --device {device} contradict each other", param="device")
    return "cuda" if cuda else device or "cpu"


def step_target(text: str) -> float | str:
    """What --step-target-ms says: a number, or anything else as it is."""
    try:
        return float(text)
    except ValueError:
        return text


def template_args(llm: inferno.LLM, effort: str | None) -> dict[str, Any]:
    """What tells the model's chat template about --reasoning-effort."""
    if effort is None:
        return {}
    name, value = ("enable_thinking", False) if effort == "none" else ("reasoning_effort", effort)
    if not llm.takes_template_arg(name):
        raise InvalidRequest(
            f"--reasoning-effort {effort} is no choice of this model's chat template; leave it out",
            param="reasoning_effort",
        )
    return {name: value}


def given(**values: Any) -> dict[str, Any]:
    """The options that were given: the model's own defaults fill the gaps."""
    return {name: value for name, value in values.items() if value is not None}


def log_to_stderr() -> None:
    """Show what the engine chooses, for --verbose."""
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stderr)


def load_model(model: str, **options: Any) -> inferno.LLM:
    """The model, loaded under a progress bar; options are those of LLM."""
    with loading_bar() as progress:
        return inferno.LLM(model, progress=progress, **options)
