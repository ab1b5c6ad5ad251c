"""`inferno serve`: a model behind an OpenAI-compatible HTTP server."""

from __future__ import annotations

import os
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from inferno.cli.manners import one_line_errors
from inferno.cli.model_options import (
    AllowUnknownConfig,
    Attention,
    AttentionAlgorithm,
    BlockSize,
    CacheDType,
    ComputeDType,
    Cuda,
    Debug,
    Device,
    DType,
    KVDType,
    LoadFormat,
    LoadFormatOption,
    MaxNumBatchedTokens,
    NumBlocks,
    Quantization,
    Quantize,
    Revision,
    Threads,
    device_name,
)
from inferno.hub.find import find_model_folder
from inferno.options import EngineOptions

LogLevel = StrEnum("LogLevel", ["debug", "info", "warning", "error"])
LogFormat = StrEnum("LogFormat", ["json", "text"])


def serve(
    model: Annotated[
        str, typer.Argument(help="A model's folder, a Hugging Face id, or demo (embedded).")
    ],
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port to listen on; 0 takes a free one.")] = 8000,
    uds: Annotated[
        Path | None, typer.Option(help="Listen on this Unix socket instead.", show_default="none")
    ] = None,
    served_model_name: Annotated[
        list[str] | None,
        typer.Option(
            help="What `model` may be in requests; may be repeated.", show_default="MODEL's name"
        ),
    ] = None,
    api_key: Annotated[
        list[str] | None,
        typer.Option(help="A key that requests need, KEY or SCOPE,SCOPE:KEY; may be repeated."),
    ] = None,
    api_key_file: Annotated[
        Path | None, typer.Option(help="A file with such a key on each line.", show_default="none")
    ] = None,
    ssl_certfile: Annotated[
        Path | None, typer.Option(help="Serve HTTPS with this certificate.", show_default="none")
    ] = None,
    ssl_keyfile: Annotated[
        Path | None, typer.Option(help="The certificate's key.", show_default="in the same file")
    ] = None,
    allowed_host: Annotated[
        list[str] | None, typer.Option(help="A Host that requests may name; may be repeated.")
    ] = None,
    cors_origin: Annotated[
        list[str] | None,
        typer.Option(help="An origin whose pages may call the server; may be repeated."),
    ] = None,
    max_num_seqs: Annotated[
        int,
        typer.Option("--max-num-seqs", "--max-batch-size", help="Sequences computed at once."),
    ] = 64,
    max_wait_ms: Annotated[
        float, typer.Option(help="How long an idle engine waits for more requests.")
    ] = 0.0,
    max_queue: Annotated[int, typer.Option(help="Sequences that may wait for a place.")] = 256,
    max_queue_tokens: Annotated[int, typer.Option(help="Prompt tokens that may wait.")] = 1_000_000,
    max_body: Annotated[int, typer.Option(help="Bytes of a request's body.")] = 8 << 20,
    max_connections: Annotated[int, typer.Option(help="Connections open at once.")] = 4096,
    request_timeout: Annotated[float, typer.Option(help="Seconds a request may take.")] = 3600.0,
    header_timeout: Annotated[
        float, typer.Option(help="Seconds a client has to send a request's head.")
    ] = 10.0,
    body_timeout: Annotated[
        float, typer.Option(help="Seconds a client has to send a request's body.")
    ] = 30.0,
    write_timeout: Annotated[
        float, typer.Option(help="Seconds after which a client that doesn't read is left.")
    ] = 30.0,
    keep_alive: Annotated[float, typer.Option(help="Seconds an unused connection is kept.")] = 30.0,
    sse_keep_alive: Annotated[
        float, typer.Option(help="Seconds of silence after which a stream gets a comment.")
    ] = 15.0,
    drain_timeout: Annotated[
        float, typer.Option(help="Seconds that open requests have to finish after SIGTERM.")
    ] = 30.0,
    lenient: Annotated[
        bool, typer.Option("--lenient", help="Ignore unknown request fields, and say so.")
    ] = False,
    per_request_metrics: Annotated[
        bool,
        typer.Option("--enable-per-request-metrics", help="Tell each request's times and rates."),
    ] = False,
    trust_request_chat_template: Annotated[
        bool,
        typer.Option("--trust-request-chat-template", help="Requests may bring a chat template."),
    ] = False,
    log_level: Annotated[LogLevel, typer.Option(help="What is logged.")] = LogLevel.info,
    log_format: Annotated[LogFormat, typer.Option(help="How it is written.")] = LogFormat.json,
    log_prompts: Annotated[
        bool, typer.Option("--log-prompts", help="Log the beginnings of prompts.")
    ] = False,
    otlp_endpoint: Annotated[
        str | None,
        typer.Option(
            help="OpenTelemetry collector for a span per request, such as "
            "http://localhost:4318/v1/traces.",
            show_default="none",
        ),
    ] = None,
    revision: Revision = None,
    device: Device = None,
    cuda: Cuda = False,
    threads: Threads = None,
    dtype: ComputeDType = DType.auto,
    quantize: Quantize = Quantization.none,
    kv_dtype: CacheDType = KVDType.auto,
    block_size: BlockSize = 16,
    num_blocks: NumBlocks = None,
    max_model_len: Annotated[
        int | None, typer.Option(help="Context in tokens.", show_default="the model's")
    ] = None,
    max_num_batched_tokens: MaxNumBatchedTokens = 512,
    attention: AttentionAlgorithm = Attention.auto,
    load_format: LoadFormatOption = LoadFormat.safetensors,
    no_prefix_cache: Annotated[
        bool, typer.Option("--no-prefix-cache", help="Compute every prompt from its beginning.")
    ] = False,
    allow_unknown_config: AllowUnknownConfig = False,
    fake_model: Annotated[
        Path | None, typer.Option(help="Play this script instead of a model.", hidden=True)
    ] = None,
    debug: Debug = False,
) -> None:
    """Serve a model over HTTP, as OpenAI's API does."""
    with one_line_errors(debug=debug):
        # Imported now: together they take longer than `inferno --help` may.
        from inferno.server.api_keys import read_keys  # noqa: PLC0415
        from inferno.server.settings import ServerSettings  # noqa: PLC0415
        from inferno.server.start import start  # noqa: PLC0415

        settings = ServerSettings(
            host=host,
            port=port,
            uds=uds,
            ssl_certfile=ssl_certfile,
            ssl_keyfile=ssl_keyfile,
            api_keys=read_keys(api_key or (), api_key_file, os.environ),
            allowed_hosts=tuple(allowed_host or ()),
            cors_origins=tuple(cors_origin or ()),
            served_model_names=tuple(served_model_name or (_name(model),)),
            max_queue=max_queue,
            max_queue_tokens=max_queue_tokens,
            max_wait_ms=max_wait_ms,
            request_timeout=request_timeout,
            max_body=max_body,
            max_connections=max_connections,
            header_timeout=header_timeout,
            body_timeout=body_timeout,
            write_timeout=write_timeout,
            keep_alive=keep_alive,
            sse_keep_alive=sse_keep_alive,
            drain_timeout=drain_timeout,
            lenient=lenient,
            per_request_metrics=per_request_metrics,
            trust_request_chat_template=trust_request_chat_template,
            log_prompts=log_prompts,
            otlp_endpoint=otlp_endpoint,
            log_level=log_level,
            log_format=log_format,
        )
        options = EngineOptions(
            model=find_model_folder(model, revision),
            device=device_name(device, cuda),
            dtype=dtype,
            threads=threads,
            block_size=block_size,
            num_blocks=num_blocks,
            max_model_len=max_model_len,
            max_num_seqs=max_num_seqs,
            max_num_batched_tokens=max_num_batched_tokens,
            attention=attention,
            quantize=quantize,
            kv_dtype=kv_dtype,
            load_format=load_format,
            prefix_cache=not no_prefix_cache,
            allow_unknown_config=allow_unknown_config,
        )
        code = start(options, settings, fake_model)
    raise typer.Exit(code)


def _name(model: str) -> str:
    """What a model is called: an id as it is, a folder by its last part, as answers carry it."""
    path = Path(model).expanduser()
    return path.resolve().name if path.is_dir() else model
