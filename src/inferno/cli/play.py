"""`inferno play`: chat with a model."""

from __future__ import annotations

from typing import Annotated

import typer

from inferno.cli.manners import one_line_errors
from inferno.cli.model_options import (
    AllowUnknownConfig,
    CacheDType,
    ComputeDType,
    Cuda,
    Debug,
    Device,
    DType,
    KVDType,
    MinP,
    NumBlocks,
    Quantization,
    Quantize,
    ReasoningEffort,
    RepetitionPenalty,
    Revision,
    Seed,
    Stop,
    Temperature,
    Threads,
    TopK,
    TopP,
    Verbose,
    device_name,
    given,
    log_to_stderr,
)
from inferno.errors import InvalidRequest
from inferno.requests import SamplingParams


def play(
    model: Annotated[
        str | None,
        typer.Argument(
            help="A model's folder, a Hugging Face id, or demo (embedded).",
            show_default="choose from those on this machine",
        ),
    ] = None,
    system: Annotated[str, typer.Option(help="The system prompt.", show_default="none")] = "",
    max_tokens: Annotated[
        int | None,
        typer.Option(help="Tokens of an answer at most.", show_default="the rest of the context"),
    ] = None,
    temperature: Temperature = None,
    top_k: TopK = None,
    top_p: TopP = None,
    min_p: MinP = None,
    repetition_penalty: RepetitionPenalty = None,
    seed: Seed = None,
    stop: Stop = None,
    reasoning_effort: ReasoningEffort = None,
    revision: Revision = None,
    device: Device = None,
    cuda: Cuda = False,
    threads: Threads = None,
    dtype: ComputeDType = DType.auto,
    quantize: Quantize = Quantization.none,
    kv_dtype: CacheDType = KVDType.auto,
    num_blocks: NumBlocks = None,
    max_model_len: Annotated[
        int | None, typer.Option(help="Context in tokens.", show_default="the model's")
    ] = None,
    no_prefix_cache: Annotated[
        bool,
        typer.Option("--no-prefix-cache", help="Compute the whole conversation at every turn."),
    ] = False,
    allow_unknown_config: AllowUnknownConfig = False,
    verbose: Verbose = False,
    debug: Debug = False,
) -> None:
    """Chat with a model. With a pipe for input, each line is a message."""
    with one_line_errors(debug=debug):
        if verbose:
            log_to_stderr()
        options = {
            "revision": revision,
            "device": device_name(device, cuda),
            "dtype": dtype,
            "quantize": quantize,
            "kv_dtype": kv_dtype,
            "threads": threads,
            "num_blocks": num_blocks,
            "max_model_len": max_model_len,
            "max_num_seqs": 1,  # the KV cache then holds one conversation
            "prefix_cache": not no_prefix_cache,
            "allow_unknown_config": allow_unknown_config,
        }
        if revision is not None and model is None:
            raise InvalidRequest(
                "--revision goes with a model's Hugging Face id: name the model", param="revision"
            )
        sampling = given(
            max_tokens=max_tokens,
            temperature=temperature,
            top_k=top_k,
            top_p=top_p,
            min_p=min_p,
            repetition_penalty=repetition_penalty,
            seed=seed,
            stop=stop or None,
        )
        SamplingParams(**sampling)  # refuses bad values before the model is loaded
        # Imported now: together its modules take longer than `inferno --help` may.
        from inferno.cli.chat.start import start  # noqa: PLC0415

        if not start(model, options, sampling, system, reasoning_effort):
            raise typer.Exit(1)
