"""`inferno bench serve`: how a server does under load."""

from __future__ import annotations

import asyncio
import json
import re
import sys
from dataclasses import replace
from typing import Annotated

import typer

from inferno.bench.load import Endpoint, Load
from inferno.bench.load_figures import figures
from inferno.bench.load_generator import run_load
from inferno.bench.load_report import as_json as load_as_json
from inferno.bench.load_report import as_table
from inferno.cli.errors import one_line_errors
from inferno.cli.model_options import Debug
from inferno.cli.terminal import print_text, telling, terminal_size
from inferno.errors import InvalidRequest
from inferno.http_post import Target, parse_target

MOST_TOKENS = 2**20
_MOST_REQUESTS = 2**20
_MOST_OPEN = 2**14
_USUALLY_OPEN = 8
_MOST = 1e9  # milliseconds, or requests a second
_KEY = re.compile(r"[\x21-\x7e]{1,4096}")
_ROUTES = {Endpoint.COMPLETIONS: "/completions", Endpoint.CHAT: "/chat/completions"}


def serve(
    base_url: Annotated[
        str,
        typer.Option(help="As OpenAI's clients take it; /v1 where it has no path of its own."),
    ],
    model: Annotated[str, typer.Option("--model", "-m", help="What `model` is in requests.")],
    api_key: Annotated[str | None, typer.Option(help="The server's key.")] = None,
    endpoint: Annotated[Endpoint, typer.Option(help="What is asked.")] = Endpoint.COMPLETIONS,
    num_requests: Annotated[
        int, typer.Option(help="Requests in all.", min=1, max=_MOST_REQUESTS)
    ] = 100,
    concurrency: Annotated[
        int | None,
        typer.Option(
            help="Requests open at any time; not with --request-rate.",
            min=1,
            max=_MOST_OPEN,
            show_default=str(_USUALLY_OPEN),
        ),
    ] = None,
    request_rate: Annotated[
        float | None,
        typer.Option(help="Requests a second, on average, at random moments (Poisson)."),
    ] = None,
    prompt_tokens: Annotated[
        int, typer.Option(help="Random words of each prompt.", min=1, max=MOST_TOKENS)
    ] = 128,
    max_tokens: Annotated[
        int, typer.Option(help="New tokens of each request.", min=1, max=MOST_TOKENS)
    ] = 64,
    spread: Annotated[
        float, typer.Option(help="Vary both lengths by up to this share.", min=0.0, max=1.0)
    ] = 0.0,
    vocab_size: Annotated[
        int | None,
        typer.Option(
            help="Prompts are random token ids below this instead of words.", min=1, max=2**31
        ),
    ] = None,
    temperature: Annotated[float, typer.Option(help="0 is greedy.", min=0.0, max=100.0)] = 0.0,
    ignore_eos: Annotated[
        bool,
        typer.Option("--ignore-eos", help="Ask for all --max-tokens; not every server knows how."),
    ] = False,
    ttft_slo: Annotated[
        float | None, typer.Option(help="Milliseconds to the first token of a good request.")
    ] = None,
    itl_slo: Annotated[
        float | None,
        typer.Option(help="Milliseconds from token to token of a good request, on average."),
    ] = None,
    timeout: Annotated[
        float, typer.Option(help="Seconds a request may take.", min=0.1, max=86400.0)
    ] = 600.0,
    seed: Annotated[int, typer.Option(help="Of prompts, lengths and moments.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object, every figure.")] = False,
    debug: Debug = False,
) -> None:
    """Measure an OpenAI-compatible server under load: latencies, tokens per second, goodput."""
    with one_line_errors(debug=debug):
        if concurrency is not None and request_rate is not None:
            raise InvalidRequest(
                "--concurrency and --request-rate contradict each other; give one of them",
                param="request_rate",
            )
        if vocab_size is not None and endpoint is Endpoint.CHAT:
            raise InvalidRequest(
                "--vocab-size goes with --endpoint completions: messages are texts",
                param="vocab_size",
            )
        load = Load(
            target=_target(base_url, endpoint),
            headers=_headers(api_key),
            endpoint=endpoint,
            model=model,
            num_requests=num_requests,
            request_rate=_above_0("--request-rate", request_rate),
            concurrency=concurrency or _USUALLY_OPEN,
            prompt_tokens=prompt_tokens,
            max_tokens=max_tokens,
            spread=spread,
            vocab_size=vocab_size,
            temperature=temperature,
            ignore_eos=ignore_eos,
            timeout=timeout,
            seed=seed,
            first_token_bound=_seconds("--ttft-slo", ttft_slo),
            between_tokens_bound=_seconds("--itl-slo", itl_slo),
        )
        is_done = _measure(load, base_url, as_json=as_json)
    raise typer.Exit(0 if is_done else 1)


def _measure(load: Load, base_url: str, *, as_json: bool) -> bool:
    """Print what was found, and return whether any request succeeded."""
    with telling() as tell:
        result = asyncio.run(run_load(load, tell))
    found = figures(load, result)
    if as_json:
        report = load_as_json(load, result, found, base_url)
        print_text(json.dumps(report, indent=2) + "\n")
    else:
        is_terminal = sys.stdout is not None and sys.stdout.isatty()
        width = terminal_size().columns
        print_text(as_table(load, found, base_url, width=width, is_terminal=is_terminal))
    return found.num_completed > 0


def _target(base_url: str, endpoint: Endpoint) -> Target:
    base = parse_target(base_url, option="--base-url")
    return replace(base, path=(base.path.rstrip("/") or "/v1") + _ROUTES[endpoint])


def _headers(api_key: str | None) -> dict[str, str]:
    if api_key is None:
        return {}
    if not _KEY.fullmatch(api_key):
        raise InvalidRequest(
            "--api-key must be visible ASCII characters, without spaces", param="api_key"
        )
    return {"Authorization": f"Bearer {api_key}"}


def _seconds(option: str, milliseconds: float | None) -> float | None:
    above_0 = _above_0(option, milliseconds)
    return None if above_0 is None else above_0 / 1000


def _above_0(option: str, number: float | None) -> float | None:
    if number is not None and not 0 < number <= _MOST:
        raise InvalidRequest(
            f"{option} must be a number above 0 and up to {_MOST:g}, not {number}",
            param=option.removeprefix("--").replace("-", "_"),
        )
    return number
