"""`inferno serve`: a model behind an OpenAI-compatible HTTP server."""

from __future__ import annotations

import os
from contextlib import nullcontext
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
    PriorityAging,
    Quantization,
    Quantize,
    Revision,
    StepTarget,
    Threads,
    device_name,
    step_target,
)
from inferno.cli.server_options import (
    AllowedHosts,
    ApiKeyFile,
    ApiKeys,
    BodyTimeout,
    Certificate,
    CertificateKey,
    DrainTimeout,
    EngineTimeout,
    FakeModel,
    HeaderTimeout,
    Host,
    KeepAlive,
    Lenient,
    LogFormatOption,
    LogLevel,
    LogLevelOption,
    LogPrompts,
    MaxBody,
    MaxConnections,
    MaxModelLen,
    MaxNumSeqs,
    MaxQueue,
    MaxQueueTokens,
    MaxWait,
    NoPrefixCache,
    OtlpEndpoint,
    Port,
    RequestTimeout,
    ServedModelName,
    SseKeepAlive,
    TrustChatTemplates,
    WriteTimeout,
    model_name,
    seconds_or_auto,
)
from inferno.client.spawned import spawned
from inferno.hub.find import find_model_folder
from inferno.log_format import usual_format
from inferno.options import EngineOptions


def serve(
    model: Annotated[
        str, typer.Argument(help="A model's folder, a Hugging Face id, or demo (embedded).")
    ],
    host: Host = "127.0.0.1",
    port: Port = 8000,
    uds: Annotated[
        Path | None, typer.Option(help="Listen on this Unix socket instead.", show_default="none")
    ] = None,
    served_model_name: ServedModelName = None,
    api_key: ApiKeys = None,
    api_key_file: ApiKeyFile = None,
    ssl_certfile: Certificate = None,
    ssl_keyfile: CertificateKey = None,
    allowed_host: AllowedHosts = None,
    cors_origin: Annotated[
        list[str] | None,
        typer.Option(help="An origin whose pages may call the server; may be repeated."),
    ] = None,
    max_num_seqs: MaxNumSeqs = 64,
    max_wait_ms: MaxWait = 0.0,
    max_queue: MaxQueue = 256,
    max_queue_tokens: MaxQueueTokens = 1_000_000,
    max_body: MaxBody = 8 << 20,
    max_connections: MaxConnections = 4096,
    request_timeout: RequestTimeout = 3600.0,
    header_timeout: HeaderTimeout = 10.0,
    body_timeout: BodyTimeout = 30.0,
    write_timeout: WriteTimeout = 30.0,
    keep_alive: KeepAlive = 30.0,
    sse_keep_alive: SseKeepAlive = 15.0,
    drain_timeout: DrainTimeout = 30.0,
    engine_timeout: EngineTimeout = "auto",
    lenient: Lenient = False,
    per_request_metrics: Annotated[
        bool,
        typer.Option("--enable-per-request-metrics", help="Tell each request's times and rates."),
    ] = False,
    trust_request_chat_template: TrustChatTemplates = False,
    log_level: LogLevelOption = LogLevel.info,
    log_format: LogFormatOption = None,
    log_prompts: LogPrompts = False,
    otlp_endpoint: OtlpEndpoint = None,
    revision: Revision = None,
    device: Device = None,
    cuda: Cuda = False,
    threads: Threads = None,
    dtype: ComputeDType = DType.auto,
    quantize: Quantize = Quantization.none,
    kv_dtype: CacheDType = KVDType.auto,
    block_size: BlockSize = 16,
    num_blocks: NumBlocks = None,
    max_model_len: MaxModelLen = None,
    max_num_batched_tokens: MaxNumBatchedTokens = 512,
    priority_aging: PriorityAging = 0.1,
    step_target_ms: StepTarget = "auto",
    attention: AttentionAlgorithm = Attention.auto,
    load_format: LoadFormatOption = LoadFormat.safetensors,
    no_prefix_cache: NoPrefixCache = False,
    allow_unknown_config: AllowUnknownConfig = False,
    fake_model: FakeModel = None,
    debug: Debug = False,
) -> None:
    """Serve a model over HTTP, as OpenAI's API does."""
    with one_line_errors(debug=debug):
        # Imported now: together they take longer than `inferno --help` may.
        from inferno.server.api_keys import read_keys  # noqa: PLC0415
        from inferno.server.settings import ServerSettings  # noqa: PLC0415

        settings = ServerSettings(
            host=host,
            port=port,
            uds=uds,
            ssl_certfile=ssl_certfile,
            ssl_keyfile=ssl_keyfile,
            api_keys=read_keys(api_key or (), api_key_file, os.environ),
            allowed_hosts=tuple(allowed_host or ()),
            cors_origins=tuple(cors_origin or ()),
            served_model_names=tuple(served_model_name or (model_name(model),)),
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
            engine_timeout=seconds_or_auto("--engine-timeout", engine_timeout),
            lenient=lenient,
            per_request_metrics=per_request_metrics,
            trust_request_chat_template=trust_request_chat_template,
            log_prompts=log_prompts,
            otlp_endpoint=otlp_endpoint,
            log_level=log_level,
            log_format=log_format or usual_format(),
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
            priority_aging=priority_aging,
            step_target_ms=step_target(step_target_ms),
            attention=attention,
            quantize=quantize,
            kv_dtype=kv_dtype,
            load_format=load_format,
            prefix_cache=not no_prefix_cache,
            allow_unknown_config=allow_unknown_config,
        )
        with spawned(settings.engine_log) if fake_model is None else nullcontext() as first:
            # Half a second of imports, while the engine's process has its own to do.
            from inferno.server.start import start  # noqa: PLC0415

            code = start(options, settings, fake_model, first)
    raise typer.Exit(code)
