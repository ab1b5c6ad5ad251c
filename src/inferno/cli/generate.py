"""`inferno generate`: complete one prompt or many."""

from __future__ import annotations

import json
import logging
import sys
from dataclasses import asdict, replace
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

import inferno
from inferno.cli.manners import one_line_errors
from inferno.cli.terminal import loading_bar, safe_text, summary_table
from inferno.errors import InvalidRequest
from inferno.requests import SamplingParams
from inferno.text.completion import Completion

Attention = StrEnum("Attention", ["auto", "naive", "flash"])
DType = StrEnum("DType", ["auto", "float32", "bfloat16", "float16"])
LoadFormat = StrEnum("LoadFormat", ["safetensors", "dummy"])

_MAX_PROMPT_BYTES = 64 * 2**20


def generate(
    model: Annotated[
        str,
        typer.Option(
            "--model", "-m", help="A model's folder, a Hugging Face id, or demo (embedded)."
        ),
    ] = "demo",
    prompt: Annotated[
        list[str] | None,
        typer.Option("--prompt", "-p", help="A prompt; may be repeated. - reads standard input."),
    ] = None,
    prompts_file: Annotated[
        Path | None, typer.Option(help="A file with one prompt per line.")
    ] = None,
    chat: Annotated[
        bool, typer.Option("--chat", help="Prompts are messages to an assistant.")
    ] = False,
    max_tokens: Annotated[
        int | None,
        typer.Option(help="New tokens at most.", show_default="256"),
    ] = None,
    temperature: Annotated[
        float | None,
        typer.Option(
            "--temperature",
            "-t",
            help="0 is greedy.",
            show_default="the model's, or 1.0",
        ),
    ] = None,
    top_k: Annotated[
        int | None,
        typer.Option(help="Keep the k likeliest tokens; 0 keeps all."),
    ] = None,
    top_p: Annotated[
        float | None,
        typer.Option(help="Keep the likeliest tokens up to this probability."),
    ] = None,
    min_p: Annotated[
        float | None,
        typer.Option(
            help="Drop tokens less likely than this share of the likeliest.",
        ),
    ] = None,
    repetition_penalty: Annotated[
        float | None,
        typer.Option(help="Above 1.0 discourages repetition."),
    ] = None,
    seed: Annotated[
        int | None,
        typer.Option(help="Makes the random choices repeatable."),
    ] = None,
    stop: Annotated[
        list[str] | None,
        typer.Option(help="A text that ends the output; may be repeated."),
    ] = None,
    priority: Annotated[int, typer.Option(help="Higher runs first.", min=-(2**31), max=2**31)] = 0,
    revision: Annotated[
        str | None, typer.Option(help="Branch, tag or commit of a Hugging Face id.")
    ] = None,
    device: Annotated[
        str | None, typer.Option(help="cpu, cuda, cuda:N or mps.", show_default="cpu")
    ] = None,
    cuda: Annotated[bool, typer.Option("--cuda", help="Short for --device cuda.")] = False,
    threads: Annotated[
        int | None,
        typer.Option(help="CPU threads.", show_default="the physical cores"),
    ] = None,
    dtype: Annotated[DType, typer.Option(help="What is computed with.")] = DType.auto,
    block_size: Annotated[int, typer.Option(help="Tokens per block of the KV cache.")] = 16,
    num_blocks: Annotated[
        int | None,
        typer.Option(help="Blocks of the KV cache.", show_default="by free memory"),
    ] = None,
    max_num_seqs: Annotated[int, typer.Option(help="Sequences computed at once.")] = 64,
    max_num_batched_tokens: Annotated[int, typer.Option(help="Tokens computed per step.")] = 512,
    attention: Annotated[Attention, typer.Option(help="Attention algorithm.")] = Attention.auto,
    load_format: Annotated[
        LoadFormat,
        typer.Option(help="dummy: random weights in real shapes."),
    ] = LoadFormat.safetensors,
    allow_unknown_config: Annotated[
        bool,
        typer.Option(
            "--allow-unknown-config",
            help="Go on when config.json has unknown keys.",
        ),
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="One JSON object per completion and line.")
    ] = False,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Log what the engine chooses.")
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks.")] = False,
) -> None:
    """Complete one prompt, as a stream, or many at once."""
    with one_line_errors(debug=debug):
        if cuda and device not in (None, "cuda"):
            raise InvalidRequest(f"--cuda and --device {device} contradict each other")
        if verbose:
            logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stderr)
        prompts = _read_prompts(prompt or [], prompts_file)
        given: dict[str, Any] = {
            "max_tokens": max_tokens,
            "temperature": temperature,
            "top_k": top_k,
            "top_p": top_p,
            "min_p": min_p,
            "repetition_penalty": repetition_penalty,
            "seed": seed,
            "stop": tuple(stop) if stop else None,
        }
        # Checked before the model is loaded; the model's own defaults fill the gaps afterwards.
        chosen = {name: value for name, value in given.items() if value is not None}
        SamplingParams(**chosen)
        with loading_bar() as progress:
            llm = inferno.LLM(
                model,
                revision=revision,
                device="cuda" if cuda else device or "cpu",
                dtype=dtype,
                threads=threads,
                block_size=block_size,
                num_blocks=num_blocks,
                max_num_seqs=max_num_seqs,
                max_num_batched_tokens=max_num_batched_tokens,
                attention=attention,
                load_format=load_format,
                allow_unknown_config=allow_unknown_config,
                progress=progress,
            )
        params = replace(llm.default_params, **chosen)
        _run(llm, prompts, params, priority=priority, chat=chat, as_json=as_json)
        llm.close()


def _read_prompts(given: list[str], prompts_file: Path | None) -> list[str]:
    if given.count("-") > 1:
        raise typer.BadParameter("standard input can be read once: give --prompt - once")
    prompts = [_read_stdin() if text == "-" else text for text in given]
    if prompts_file is not None:
        prompts += _read_file(prompts_file)
    if not prompts and sys.stdin is not None and not sys.stdin.isatty():
        prompts = [_read_stdin()]
    if not prompts:
        raise typer.BadParameter("give a prompt: --prompt TEXT, or --prompts-file FILE")
    return prompts


def _read_stdin() -> str:
    if sys.stdin is None:
        raise InvalidRequest("standard input is closed; give a prompt with --prompt")
    content = sys.stdin.buffer.read(_MAX_PROMPT_BYTES + 1)
    return _decode(content, "standard input")


def _read_file(path: Path) -> list[str]:
    with path.open("rb") as file:
        lines = _decode(file.read(_MAX_PROMPT_BYTES + 1), str(path)).split("\n")
    prompts = [line.removesuffix("\r") for line in lines if line.strip()]
    if not prompts:
        raise InvalidRequest(f"{path} holds no prompt: it must have one per line")
    return prompts


def _decode(content: bytes, source: str) -> str:
    if len(content) > _MAX_PROMPT_BYTES:
        raise InvalidRequest(f"{source} holds more than {_MAX_PROMPT_BYTES} bytes")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as problem:
        raise InvalidRequest(f"{source} is not UTF-8 text: {problem}") from None


def _run(
    llm: inferno.LLM,
    texts: list[str],
    params: SamplingParams,
    *,
    priority: int,
    chat: bool,
    as_json: bool,
) -> None:
    prompts: list[str | list[int]] = [
        llm.encode_chat([{"role": "user", "content": text}]) if chat else text for text in texts
    ]
    if as_json:
        for completion in llm.as_completed(prompts, params, priority=priority):
            # In ASCII, so that no encoding spoils it and no odd line separator splits it.
            _print(json.dumps(_as_object(completion, texts)) + "\n")
    elif len(prompts) == 1:
        _stream(llm, prompts[0], params, priority)
    else:
        _print_all(llm, texts, prompts, params, priority)


def _as_object(completion: Completion, texts: list[str]) -> dict[str, Any]:
    found = {
        "index": completion.prompt_index,
        "prompt": texts[completion.prompt_index],
        "text": completion.text,
        "token_ids": completion.token_ids,
        "finish_reason": completion.finish_reason,
        "usage": asdict(completion.usage),
        "timings": asdict(completion.timings),
    }
    return found if completion.error is None else {**found, "error": completion.error}


def _stream(
    llm: inferno.LLM, prompt: str | list[int], params: SamplingParams, priority: int
) -> None:
    last = ""
    for chunk in llm.stream(prompt, params, priority=priority):
        _print(chunk.text)
        last = chunk.text or last
        if chunk.completion is not None:
            _check(chunk.completion)
    if sys.stdout.isatty() and not last.endswith("\n"):
        _print("\n")  # piped output is the text and nothing else


def _print_all(
    llm: inferno.LLM,
    texts: list[str],
    prompts: list[str | list[int]],
    params: SamplingParams,
    priority: int,
) -> None:
    finished = []
    for completion in llm.as_completed(prompts, params, priority=priority):
        finished.append(completion)
        number = completion.prompt_index + 1
        _print(f"=== {number}/{len(prompts)}: {_shorten(texts[completion.prompt_index])}\n")
        _print(completion.text + "\n\n")
    _print(summary_table(finished))
    for completion in finished:
        _check(completion)


def _check(completion: Completion) -> None:
    if completion.error is not None:
        raise inferno.InfernoError(f"prompt {completion.prompt_index + 1}: {completion.error}")


def _shorten(text: str, longest: int = 60) -> str:
    line = " ".join(text.split())
    return line if len(line) <= longest else line[: longest - 1] + "…"


def _print(text: str) -> None:
    if sys.stdout is None:
        raise InvalidRequest("standard output is closed; there is nowhere to print to")
    sys.stdout.write(safe_text(text, sys.stdout.encoding))
    sys.stdout.flush()
