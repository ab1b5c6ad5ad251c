"""`inferno worker`: a model behind a fleet's jobs, and the three commands bound to a device."""

from __future__ import annotations

import os
import sys
from contextlib import nullcontext
from enum import StrEnum
from typing import Annotated

import typer
from typer.main import get_command

from inferno.cli.manners import one_line_errors, say
from inferno.cli.model_options import (
    AllowUnknownConfig,
    Attention,
    AttentionAlgorithm,
    BlockSize,
    CacheDType,
    ComputeDType,
    Debug,
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
    step_target,
)
from inferno.cli.numbers import reads_numbers
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
from inferno.errors import DeviceUnavailable
from inferno.hub.find import find_model_folder
from inferno.log_format import usual_format
from inferno.options import EngineOptions

WorkerDevice = StrEnum("WorkerDevice", ["cpu", "cuda", "metal"])


def worker(
    worker_id: Annotated[str, typer.Option(help="What the fleet calls this worker.")],
    model: Annotated[
        str,
        typer.Option(
            "--model", "-m", help="A model's folder, a Hugging Face id, or demo (embedded)."
        ),
    ],
    port: Port,
    callback_url: Annotated[
        str, typer.Option(help="Where the ready message is posted, http:// or https://.")
    ],
    device: Annotated[WorkerDevice, typer.Option(help="What computes.")],
    cuda_device: Annotated[
        int | None, typer.Option(help="Which CUDA device, with --device cuda.", show_default="0")
    ] = None,
    metal_device: Annotated[
        int | None, typer.Option(help="Which Metal device, with --device metal.", show_default="0")
    ] = None,
    uri: Annotated[
        str | None,
        typer.Option(help="Where others reach this worker.", show_default="where it listens"),
    ] = None,
    callback_attempts: Annotated[
        int, typer.Option(help="How often the ready message is tried.")
    ] = 10,
    callback_timeout: Annotated[
        float, typer.Option(help="Seconds that the callback's receiver has to answer.")
    ] = 10.0,
    host: Host = "127.0.0.1",
    served_model_name: ServedModelName = None,
    api_key: ApiKeys = None,
    api_key_file: ApiKeyFile = None,
    ssl_certfile: Certificate = None,
    ssl_keyfile: CertificateKey = None,
    allowed_host: AllowedHosts = None,
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
    trust_request_chat_template: TrustChatTemplates = False,
    log_level: LogLevelOption = LogLevel.info,
    log_format: LogFormatOption = None,
    log_prompts: LogPrompts = False,
    otlp_endpoint: OtlpEndpoint = None,
    revision: Revision = None,
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
    """Run a model as a worker of a fleet: it says when it is ready, and streams jobs' events."""
    with one_line_errors(debug=debug):
        # Imported now: together they take longer than `inferno --help` may.
        from inferno.server.api_keys import read_keys  # noqa: PLC0415
        from inferno.server.settings import ServerSettings  # noqa: PLC0415
        from inferno.server.worker.settings import worker_settings  # noqa: PLC0415

        settings = ServerSettings(
            host=host,
            port=port,
            ssl_certfile=ssl_certfile,
            ssl_keyfile=ssl_keyfile,
            api_keys=read_keys(api_key or (), api_key_file, os.environ),
            allowed_hosts=tuple(allowed_host or ()),
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
            trust_request_chat_template=trust_request_chat_template,
            log_prompts=log_prompts,
            otlp_endpoint=otlp_endpoint,
            log_level=log_level,
            log_format=log_format or usual_format(),
        )
        about = worker_settings(
            settings,
            worker_id=worker_id,
            device=device.value,
            cuda_device=cuda_device,
            metal_device=metal_device,
            callback_url=callback_url,
            callback_attempts=callback_attempts,
            callback_timeout=callback_timeout,
            uri=uri,
        )
        options = EngineOptions(
            model=find_model_folder(model, revision),
            device=about.engine_device,
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
            from inferno.server.worker.start import start_worker  # noqa: PLC0415

            try:
                code = start_worker(options, settings, about, fake_model, first)
            except DeviceUnavailable as problem:
                raise DeviceUnavailable(f"{problem} That is `inferno-worker-cpu`.") from None
    raise typer.Exit(code)


def run_bound(device: str, arguments: list[str]) -> None:
    """`inferno worker` with its device given, as the command that is named for it."""
    if any(one.partition("=")[0] == "--device" for one in arguments):
        say(f"error: inferno-worker-{device} has its device; leave --device out")
        sys.exit(2)
    app = typer.Typer(pretty_exceptions_enable=False, add_completion=False, rich_markup_mode=None)
    app.command(context_settings={"help_option_names": ["-h", "--help"]})(reads_numbers(worker))
    command = get_command(app)
    command.main(["--device", device, *arguments], prog_name=f"inferno-worker-{device}")
