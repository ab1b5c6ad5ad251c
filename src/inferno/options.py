"""List every option once: its name, default, bounds and help, for Python and the command line.

An option is a field of EngineOptions, ServerOptions or WorkerOptions. The checks, the commands'
options and their help, docs/cli.md, and `LLM`'s arguments follow from these tables.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from inferno import quantization
from inferno.errors import InvalidRequest
from inferno.http_post import parse_target
from inferno.log_format import LogFormat
from inferno.option_table import Group, check_options, option, table, take_former_values

DTYPES = ("auto", "float32", "bfloat16", "float16")
ATTENTION_KINDS = ("auto", "reference", "flash")
ACTIVATIONS = ("int8", "bfloat16")
CAPTURES = ("lazy", "start")
PREEMPTIONS = ("auto", "recompute", "swap")
KV_DTYPES = ("auto", "float32", "bfloat16", "float16", "int8", "fp8")
QUANTIZATIONS = ("none", *quantization.QUANTIZATIONS)
SPECULATIONS = ("auto", "off", "ngram", "early")
LOAD_FORMATS = ("safetensors", "dummy")
LOG_LEVELS = ("debug", "info", "warning", "error")
LOG_FORMATS = tuple(LogFormat)
MIB = 1 << 20
_GPU_SHARE = (
    0.9  # the rest is for CUDA's own needs, other programs' pictures and what isn't foreseen
)

_CUDA = r"cuda(:(0|[1-9][0-9]{0,2}))?"  # PyTorch takes no other digits, nor zeros before them
_DEVICE = re.compile(rf"cpu|mps|{_CUDA}")
_WORKER_DEVICE = re.compile(rf"cpu|metal|{_CUDA}")
_HOST = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9._-]{0,253})|\[?[0-9A-Fa-f:.]{2,45}\]?")
_ORIGIN = re.compile(r"\*|[a-z][a-z0-9+.-]{0,30}://[^\s/]{1,255}|null")
_URL = re.compile(r"https?://[!-~]{1,2000}")
_MODEL_NAME = re.compile(r"[^\x00-\x1f\x7f]{1,256}")
_WORKER_ID = re.compile(r"[A-Za-z0-9._:-]{1,128}")
_MEMORY = re.compile(r"(\d{1,12}(?:\.\d{1,6})?) ?([kMGT]i?)?B", re.IGNORECASE)
_UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}
_UNITS |= {f"{unit}i": 1 << 10 * power for power, unit in enumerate("kmgt", start=1)}
_MAX = 2**31 - 1
_MAX_SECONDS = 7 * 24 * 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineOptions:
    """The options of an engine; a bad value raises InvalidRequest. The model is a folder."""

    model: Path
    device: str = option(
        "cpu",
        help="cpu, cuda, cuda:N or mps.",
        group=Group.MODEL,
        absent="cpu",
        pattern=_DEVICE,
        expected="cpu, cuda, cuda:N or mps",
    )
    threads: int | None = option(
        None,
        help="CPU threads.",
        group=Group.MODEL,
        absent="the physical cores",
        low=1,
        high=1024,
    )
    dtype: str = option(
        "auto",
        help="What is computed with; auto is the checkpoint's, or float32 where a CPU would be "
        "slow in that.",
        group=Group.MODEL,
        choices=DTYPES,
    )
    quantize: str = option(
        "none",
        help="Pack the weights while they are loaded; on a CPU activations are float32 then, "
        "unless --dtype says otherwise. FP8 takes a GPU; fp8-dynamic has activations in it too.",
        group=Group.MODEL,
        choices=QUANTIZATIONS,
    )
    activations: str = option(
        "int8",
        help="What activations are rounded to beside quantized weights on a CPU. bfloat16 takes "
        "one with AMX: prompts, and 32 and more requests together, are faster, and fewer slower.",
        group=Group.MODEL,
        choices=ACTIVATIONS,
    )
    attention: str = option(
        "auto",
        help="Attention algorithm; auto is the kernels', or where none runs goes by length, and "
        "the others are plain PyTorch: all scores at once, or tiles.",
        group=Group.MODEL,
        choices=ATTENTION_KINDS,
        former_values=(("naive", "reference"),),
    )
    batch_invariant: bool = option(
        False,
        help="Give a token's logits the same bits whatever is computed beside it; on a GPU by "
        "kernels that add up in one order, which take longer, and on the CPU it is so anyway.",
        group=Group.MODEL,
    )
    load_format: str = option(
        "safetensors",
        help="dummy: random weights in the shapes of config.json; nothing else is needed.",
        group=Group.MODEL,
        choices=LOAD_FORMATS,
    )
    chat_template: Path | None = option(
        None, help="A Jinja file in place of its chat template.", group=Group.MODEL, absent="none"
    )
    allow_unknown_config: bool = option(
        False, help="Go on when config.json has unknown keys.", group=Group.MODEL
    )
    memory: str | None = option(
        None,
        help="Bound of all memory together: weights, KV cache, workspace, Python; the cache takes "
        "what is left.",
        group=Group.MEMORY,
        absent="half of what is free goes to the KV cache",
        pattern=_MEMORY,
        expected="bytes with a unit, such as 8GB or 6.5GiB",
        metavar="SIZE",
    )
    gpu_memory_utilization: float | None = option(
        None,
        help="Share of a GPU's whole memory that weights, workspace, graphs and KV cache may take "
        "together; the cache takes what is left of it.",
        group=Group.MEMORY,
        absent="0.9, or what other processes leave",
        low=0.01,
        high=1,
    )
    kv_dtype: str = option(
        "auto",
        help="What keys and values are kept in; auto is what is computed with, or 16 bits "
        "where weights are quantized. fp8 (e4m3) is for CUDA devices.",
        group=Group.MEMORY,
        choices=KV_DTYPES,
    )
    block_size: int = option(
        16, help="Tokens per block of the KV cache.", group=Group.MEMORY, low=1, high=1024
    )
    num_blocks: int | None = option(
        None,
        help="Blocks of the KV cache.",
        group=Group.MEMORY,
        absent="by free memory",
        low=1,
        high=2**24,
    )
    max_model_len: int | None = option(
        None,
        help="Context in tokens.",
        group=Group.MEMORY,
        absent="the model's",
        low=1,
        high=_MAX,
    )
    max_num_seqs: int = option(
        64,
        help="Sequences computed at once.",
        group=Group.MEMORY,
        low=1,
        high=4096,
        flags=("--max-num-seqs", "--max-batch-size"),
    )
    max_num_batched_tokens: int = option(
        512, help="Tokens computed per step.", group=Group.MEMORY, low=1, high=_MAX
    )
    priority_aging: float = option(
        0.1,
        help="Levels of priority gained per second of waiting; 0 keeps them strict.",
        group=Group.MEMORY,
        low=0,
        high=1_000_000,
    )
    step_target_ms: float | str = option(
        "auto",
        help="How long a step should take while a stream waits for it; auto is 250, or four times "
        "what the streams alone take, and 0 sets no bound.",
        group=Group.MEMORY,
        low=0,
        high=_MAX,
        accepts_auto=True,
        metavar="auto|MS",
    )
    prefix_cache: bool = option(
        True,
        help="Compute every prompt from its beginning.",
        group=Group.MEMORY,
        flags=("--no-prefix-cache",),
    )
    preemption: str = option(
        "auto",
        help="How a sequence that lost its blocks to others comes back: its tokens are computed "
        "again, or copied to host memory and back; auto copies on a GPU where that is measured to "
        "take less time.",
        group=Group.MEMORY,
        choices=PREEMPTIONS,
    )
    swap_space: float = option(
        4.0,
        help="GiB of host memory for the keys and values of such sequences, where they are copied; "
        "beyond it they are computed again.",
        group=Group.MEMORY,
        low=0,
        high=65_536,
    )
    speculative: str = option(
        "auto",
        help="Who proposes tokens that are computed together, without changing any: auto (text "
        "that comes again, a request's prediction, and a model or layers if they are named below), "
        "off, ngram, early, or a smaller model's name.",
        group=Group.SPECULATION,
        metavar="auto|off|ngram|early|MODEL",
    )
    num_speculative_tokens: int | str = option(
        "auto",
        help="Tokens proposed at a time; auto is as many as pay, by measured times.",
        group=Group.SPECULATION,
        low=1,
        high=1024,
        accepts_auto=True,
        metavar="auto|N",
    )
    speculative_model: Path | None = option(
        None,
        help="A smaller model with the same tokenizer that proposes tokens; demo-draft for demo.",
        group=Group.SPECULATION,
        absent="none",
        metavar="MODEL",
    )
    speculative_early_layers: int | None = option(
        None,
        help="Have so many of the model's first layers propose tokens.",
        group=Group.SPECULATION,
        absent="none",
        low=1,
        high=_MAX,
    )
    graphs: bool = option(
        True,
        help="Run every op of every step from Python; otherwise steps of usual sizes are recorded "
        "once, on a GPU as CUDA graphs, and replayed.",
        group=Group.MODEL,
        flags=("--no-graphs",),
        former_flags=("--eager",),
    )
    capture_graphs: str = option(
        "lazy",
        help="When steps are recorded: each size when it first comes, or all at the start, so that "
        "no request waits for it.",
        group=Group.MODEL,
        choices=CAPTURES,
    )

    def __post_init__(self) -> None:
        for name in ("chat_template", "speculative_model"):
            if isinstance(getattr(self, name), str):  # as programs write paths
                object.__setattr__(self, name, Path(getattr(self, name)))
        take_former_values(self)
        check_options(self, by_flag=False)
        self._check_speculation()
        self._check_memory()
        if self.activations != "int8" and self.device != "cpu":
            raise InvalidRequest(
                f"activations is {self.activations!r}, a choice of the CPU's kernels, and device "
                f"is {self.device}: leave one of them out",
                param="activations",
            )
        if self.capture_graphs == "start" and not (self.graphs and self.attention == "auto"):
            reason = f"attention {self.attention} has none" if self.graphs else "graphs is off"
            raise InvalidRequest(
                f"capture_graphs is 'start', and {reason}: leave one of them out",
                param="capture_graphs",
            )
        if self.batch_invariant and self.attention != "auto":
            raise InvalidRequest(
                f"batch_invariant goes with attention auto, not with {self.attention}, whose order "
                "of sums depends on the batch: leave one of them out",
                param="batch_invariant",
            )

    @property
    def draft_name(self) -> str | None:
        """Return the name of the model that proposes tokens; None without one."""
        return draft_name(self.speculative, self.speculative_model)

    def _check_memory(self) -> None:
        if self.preemption == "swap" and not self.swap_space:
            raise InvalidRequest(
                "preemption is 'swap', and swap_space is 0: give it some GiB of host memory, or "
                "leave one of them out",
                param="swap_space",
            )
        if self.memory is not None and self.device != "cpu":
            raise InvalidRequest(
                f"memory bounds what a model takes on the CPU, and device is {self.device}: leave "
                "one of them out",
                param="memory",
            )
        if self.gpu_memory_utilization is not None and not self.device.startswith("cuda"):
            raise InvalidRequest(
                "gpu_memory_utilization goes with a CUDA device, not with device "
                f"{self.device}: leave one of them out",
                param="gpu_memory_utilization",
            )

    def _check_speculation(self) -> None:
        asked = {
            "speculative_model": self.speculative_model,
            "speculative_early_layers": self.speculative_early_layers,
        }
        named = [name for name, value in asked.items() if value is not None]
        is_open = self.speculative == "auto" or (
            self.speculative == "early" and named == ["speculative_early_layers"]
        )
        if named and not is_open:
            raise InvalidRequest(
                f"speculative is {self.speculative!r}, and {named[0]} asks for another proposer: "
                "leave one of them out",
                param=named[0],
            )
        if len(named) > 1:
            raise InvalidRequest(
                "speculative_model and speculative_early_layers both propose each next token: "
                "leave one of them out",
                param=named[1],
            )

    @property
    def gpu_share(self) -> float:
        """Return the share of a GPU's whole memory that the engine may take."""
        asked = self.gpu_memory_utilization
        return _GPU_SHARE if asked is None else asked

    @property
    def memory_bytes(self) -> int | None:
        """Return the bound of all memory in bytes; None without a bound."""
        if self.memory is None:
            return None
        match = _MEMORY.fullmatch(self.memory)
        assert match is not None, "it was checked"
        return int(float(match[1]) * _UNITS[(match[2] or "").lower()])


def draft_name(speculative: str, speculative_model: Path | str | None) -> str | None:
    """Return the name of the draft model that one of two options gives; None if neither does."""
    if speculative_model is not None:
        return str(speculative_model)
    return None if speculative in SPECULATIONS else speculative


def _seconds(default: float, help: str, group: Group = Group.SERVER) -> Any:
    return option(default, help=help, group=group, low=0.01, high=_MAX_SECONDS)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerOptions:
    """The options of a server, except its keys; a bad value raises InvalidRequest."""

    host: str = option(
        "127.0.0.1",
        help="Address to listen on.",
        group=Group.SERVER,
        pattern=_HOST,
        expected="a host name or an address",
    )
    port: int = option(
        8000,
        help="Port to listen on; 0 takes a free one.",
        group=Group.SERVER,
        low=0,
        high=65535,
    )
    uds: Path | None = option(
        None, help="Listen on this Unix socket instead.", group=Group.SERVER, absent="none"
    )
    served_model_names: tuple[str, ...] = option(
        (),
        help="What `model` may be in requests; answers carry the first.",
        group=Group.SERVER,
        absent="MODEL's name",
        flags=("--served-model-name",),
        pattern=_MODEL_NAME,
        expected="model names",
    )
    ssl_certfile: Path | None = option(
        None, help="Serve HTTPS with this certificate.", group=Group.SECURITY, absent="none"
    )
    ssl_keyfile: Path | None = option(
        None, help="The certificate's key.", group=Group.SECURITY, absent="in the same file"
    )
    allowed_hosts: tuple[str, ...] = option(
        (),
        help="A Host that requests may name, besides those of a loopback address.",
        group=Group.SECURITY,
        flags=("--allowed-host",),
        pattern=_HOST,
        expected="host names without a port",
    )
    cors_origins: tuple[str, ...] = option(
        (),
        help="An origin whose pages may call the server; * is any.",
        group=Group.SECURITY,
        flags=("--cors-origin",),
        pattern=_ORIGIN,
        expected="origins, like http://my.page",
    )
    trust_request_chat_template: bool = option(
        False, help="Requests may bring a chat template.", group=Group.SECURITY
    )
    max_wait_ms: float = option(
        0.0,
        help="How long an idle engine waits for more requests.",
        group=Group.SERVER,
        low=0,
        high=60_000,
    )
    max_queue: int = option(
        256,
        help="Sequences that may wait for a place.",
        group=Group.SERVER,
        low=0,
        high=1_000_000,
    )
    max_queue_tokens: int = option(
        1_000_000,
        help="Prompt tokens that may wait.",
        group=Group.SERVER,
        low=1,
        high=2**40,
    )
    max_body: int = option(
        8 * MIB, help="Bytes of a request's body.", group=Group.SECURITY, low=1, high=1024 * MIB
    )
    max_connections: int = option(
        4096,
        help="Connections open at once; beyond it the longest idle one is closed.",
        group=Group.SECURITY,
        low=1,
        high=1_000_000,
    )
    request_timeout: float = _seconds(
        3600.0, "Seconds from the end of a request's body to its last token."
    )
    header_timeout: float = _seconds(
        10.0, "Seconds a client has to send a request's head.", Group.SECURITY
    )
    body_timeout: float = _seconds(
        30.0, "Seconds a client has to send a request's body.", Group.SECURITY
    )
    write_timeout: float = _seconds(
        30.0, "Seconds after which a client that doesn't read is left.", Group.SECURITY
    )
    keep_alive: float = _seconds(30.0, "Seconds an unused connection is kept.")
    sse_keep_alive: float = _seconds(
        15.0, "Seconds of silence after which a stream gets a comment."
    )
    drain_timeout: float = _seconds(
        30.0, "Seconds that open requests have to finish after SIGTERM."
    )
    engine_timeout: float | None = option(
        None,
        help="Seconds for a step of the engine, or without news of its loading, before it is "
        "replaced; auto is 20 (60 for loading), or twenty times what a step should take.",
        group=Group.SERVER,
        low=0.1,
        high=_MAX_SECONDS,
        accepts_auto=True,
        metavar="auto|SECONDS",
    )
    lenient: bool = option(
        False, help="Ignore unknown request fields, and say so.", group=Group.SERVER
    )
    per_request_metrics: bool = option(
        False,
        help="Tell each request's times and rates.",
        group=Group.SERVER,
        flags=("--enable-per-request-metrics",),
    )
    log_level: str = option("info", help="What is logged.", group=Group.SERVER, choices=LOG_LEVELS)
    log_format: str = option(
        "json",
        help="How it is written.",
        group=Group.SERVER,
        absent="text on a terminal, else json",
        choices=LOG_FORMATS,
    )
    log_prompts: bool = option(False, help="Log the beginnings of prompts.", group=Group.SERVER)
    otlp_endpoint: str | None = option(
        None,
        help="OpenTelemetry collector for a span per request, such as "
        "http://localhost:4318/v1/traces.",
        group=Group.SERVER,
        absent="none",
        pattern=_URL,
        expected="an http:// or https:// URL",
    )

    def __post_init__(self) -> None:
        check_options(self, by_flag=True)
        if self.ssl_keyfile is not None and self.ssl_certfile is None:
            raise _refuse("ssl_certfile", None, "given where --ssl-keyfile is")
        for name, file in (("ssl_certfile", self.ssl_certfile), ("ssl_keyfile", self.ssl_keyfile)):
            if file is not None and not file.is_file():
                raise _refuse(name, str(file), "a file that exists")
        if self.otlp_endpoint is not None:
            parse_target(self.otlp_endpoint, option="--otlp-endpoint")


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerOptions:
    """The options of a worker: who it is, whom it notifies; a bad value raises InvalidRequest."""

    worker_id: str = option(
        help="What the fleet calls this worker.",
        group=Group.SERVER,
        pattern=_WORKER_ID,
        expected="1 to 128 letters, digits or ._:-",
    )
    callback_url: str = option(
        help="Where the ready message is posted, http:// or https://.", group=Group.SERVER
    )
    device: str = option(
        help="What computes: cpu, cuda, cuda:N or metal.",
        group=Group.MODEL,
        pattern=_WORKER_DEVICE,
        expected="cpu, cuda, cuda:N or metal",
    )
    cuda_device: int | None = option(
        None,
        help="Which CUDA device, with --device cuda.",
        group=Group.MODEL,
        absent="0, or that of cuda:N",
        low=0,
        high=999,
    )
    metal_device: int | None = option(
        None,
        help="Which Metal device, with --device metal; PyTorch uses one.",
        group=Group.MODEL,
        absent="0",
        low=0,
        high=0,
        expected="0, as PyTorch uses one Metal device",
    )
    uri: str | None = option(
        None,
        help="Where others reach this worker.",
        group=Group.SERVER,
        absent="where it listens",
    )
    callback_attempts: int = option(
        10, help="How often the ready message is tried.", group=Group.SERVER, low=1, high=1000
    )
    callback_timeout: float = option(
        10.0,
        help="Seconds that the callback's receiver has to answer.",
        group=Group.SERVER,
        low=0.01,
        high=600,
    )

    def __post_init__(self) -> None:
        check_options(self, by_flag=True)
        named, _, number = self.device.partition(":")
        for kind, index in (("cuda", self.cuda_device), ("metal", self.metal_device)):
            if index is not None and (named != kind or number not in ("", str(index))):
                raise InvalidRequest(
                    f"--{kind}-device {index} goes with --device {kind}, not with --device "
                    f"{self.device}",
                    param=f"{kind}_device",
                )
        if self.uri is not None:
            parse_target(self.uri, option="--uri")


def _refuse(name: str, value: object, expected: str) -> InvalidRequest:
    flag = table(ServerOptions)[name].flag
    return InvalidRequest(f"{flag} must be {expected}, not {value!r}", param=name)
