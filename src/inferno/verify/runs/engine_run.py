"""Run the engine as it runs for everybody, and observe it.

First a prompt in chunks and greedy tokens one by one; then a few tokens, drawn in other ways.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor

from inferno.engine.build import build_engine
from inferno.engine.engine import Engine
from inferno.engine.execution.local import LOGITS_ROWS
from inferno.errors import EngineError
from inferno.layers.decoder import CausalLM
from inferno.options import EngineOptions
from inferno.requests import FinishReason, Request, SamplingParams
from inferno.verify.runs.choices import observing_choices
from inferno.verify.runs.observer import KVLog, ProductCalls, TensorObserver, keep_head
from inferno.verify.runs.recorder import recording
from inferno.verify.runs.taps import Taps

DRAW_SEED = 0x5EED_0000_0000  # more than 32 bits, so that both halves of a key matter
_NUM_DRAWN = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """An observed run of the engine.

    token_ids   every token whose layers were computed: the prompt, and new ones but the last.
    new_ids     the tokens that the engine's sampler chose, greedily.
    chunk       how many tokens of the prompt were computed at a time.
    error       why the engine gave up early: logits that are no numbers, for instance.
    products    by module, what entered each matrix product and what came out.
    drawn       tokens that were then drawn in other ways than greedily; undrawn: of which ways
                some are missing, and why.
    """

    token_ids: tuple[int, ...]
    new_ids: tuple[int, ...]
    chunk: int
    error: str | None
    taps: Taps
    kv_log: KVLog
    products: Mapping[str, ProductCalls]
    drawn: Sequence[Drawn]
    undrawn: Sequence[str]
    model: CausalLM
    dtype: torch.dtype
    device: str


def observe(
    options: EngineOptions,
    prompt: Sequence[int],
    num_new: int,
    layers: Sequence[int],
) -> Observed:
    """Complete a prompt greedily and keep what `taps` names. Raises EngineError as well.

    The prompt is cut into three chunks, where the engine's own step would take more at once.
    """
    chunk = min(options.max_num_batched_tokens, -(-len(prompt) // 3))
    engine = build_engine(_observable(options, chunk), steps_ahead=False)
    observer = TensorObserver(frozenset(layers))
    with recording(observer) as found:
        new_ids, error = _complete(engine, prompt, num_new)
    taps = observer.taps()
    if found.model is None or len(taps.get("hidden", ())) != observer.num_tokens:
        raise EngineError(error or "the engine ran no model")  # it broke off within a step
    taps = _with_logits(taps, found.model)
    keep_head(observer.products, taps["hidden"], taps["logits"])
    drawn, undrawn = ([], []) if error else draw_tokens(engine, prompt, num_new)
    footprint = engine.footprint
    return Observed(
        token_ids=(*prompt, *new_ids)[: len(taps["hidden"])],
        new_ids=new_ids,
        chunk=chunk,
        error=error,
        taps=taps,
        kv_log=observer.kv_log,
        products=observer.products,
        drawn=drawn,
        undrawn=undrawn,
        model=found.model,
        dtype=getattr(torch, footprint.dtype),
        device=footprint.device,
    )


def _observable(options: EngineOptions, chunk: int) -> EngineOptions:
    """Return options for one request at a time, run eagerly: a replayed step calls no op."""
    return replace(
        options,
        max_num_seqs=1,
        max_num_batched_tokens=chunk,
        step_target_ms=0,
        graphs=False,
        capture_graphs="lazy",
    )


def _complete(
    engine: Engine, prompt: Sequence[int], num_new: int
) -> tuple[tuple[int, ...], str | None]:
    """Return the new tokens, and what went wrong after them."""
    params = SamplingParams(temperature=0.0, max_tokens=num_new, ignore_eos=True)
    new_ids, error = _run(engine, "verify", prompt, params)
    if error is None and len(new_ids) != num_new:
        error = f"the engine ends after {len(new_ids)} new tokens, and is to give {num_new}"
    return new_ids, error


def _run(
    engine: Engine, name: str, prompt: Sequence[int], params: SamplingParams
) -> tuple[tuple[int, ...], str | None]:
    """Return the new tokens of a request, and the error that it ended with, if it did."""
    engine.add_request(Request(request_id=name, prompt_token_ids=tuple(prompt), params=params))
    new_ids: list[int] = []
    error = None
    while engine.has_work:
        for event in engine.step():
            if event.finish_reason is FinishReason.ERROR:
                error = event.error or "a step of the engine failed"
            else:
                new_ids += event.token_ids
    return tuple(new_ids), error


@torch.inference_mode()
def _with_logits(taps: Taps, model: CausalLM) -> Taps:
    """Add the logits of every position, by the model's own head, to what was kept."""
    device = next(model.parameters()).device
    pieces = torch.split(taps["hidden"], LOGITS_ROWS)
    try:
        logits = torch.cat([model.logits(piece.to(device)).cpu() for piece in pieces])
    except RuntimeError as problem:  # what torch raises where types or shapes don't fit
        raise EngineError(f"the model's head can't compute its logits: {problem}") from None
    return {**taps, "logits": logits}


def settings(token_ids: Sequence[int]) -> Mapping[str, SamplingParams]:
    """Return ways to draw tokens, by words; biases and bans are about tokens of the prompt."""
    first, second, *_ = dict.fromkeys([*token_ids, 0, 1])
    bias = {first: 2.0, second: -3.0}
    return {
        "at temperature 0.7": SamplingParams(temperature=0.7),
        "at temperature 1.5 with top-k 5": SamplingParams(temperature=1.5, top_k=5),
        "with top-p 0.8": SamplingParams(top_p=0.8),
        "at temperature 1.3 with min-p 0.1": SamplingParams(temperature=1.3, min_p=0.1),
        "with penalties": SamplingParams(
            repetition_penalty=1.3, presence_penalty=0.5, frequency_penalty=0.25
        ),
        "with biases and allowed tokens": SamplingParams(
            logit_bias=bias, allowed_token_ids=sorted(set(token_ids))
        ),
        "greedily with penalties": SamplingParams(temperature=0.0, repetition_penalty=1.5),
        "with all of these": SamplingParams(
            temperature=0.8,
            top_k=20,
            top_p=0.9,
            min_p=0.02,
            repetition_penalty=1.2,
            frequency_penalty=0.5,
            logit_bias=bias,
        ),
    }


@dataclass(frozen=True, slots=True)
class Drawn:
    """A token that the engine drew.

    how       in words, and as parameters that were asked for.
    history   the tokens before it, of which so many are the prompt.
    logits    what the sampler was given, float32 [V]; is_own: bit for bit what the model made.
    """

    how: str
    params: SamplingParams
    history: tuple[int, ...]
    num_prompt: int
    logits: Tensor
    is_own: bool
    token: int


def draw_tokens(
    engine: Engine, prompt: Sequence[int], num_new: int
) -> tuple[list[Drawn], list[str]]:
    """Let the engine continue the prompt in each way, as it does for everybody.

    The second result says of which ways tokens are missing, and why.
    """
    drawn: list[Drawn] = []
    missing: list[str] = []
    for index, (how, params) in enumerate(settings(prompt).items()):
        asked = replace(
            params, seed=DRAW_SEED + index, max_tokens=min(num_new, _NUM_DRAWN), ignore_eos=True
        )
        steps: list[tuple[Tensor, bool]] = []
        with observing_choices(partial(_keep_rows, steps)):
            new_ids, error = _run(engine, f"verify {how}", prompt, asked)
        if min(len(new_ids), len(steps)) != asked.max_tokens:
            why = f": {error}" if error else f", and the logits of {len(steps)} were seen"
            missing.append(f"{how}: {len(new_ids)} of {asked.max_tokens} tokens were drawn{why}")
        history = list(prompt)
        for token, (logits, is_own) in zip(new_ids, steps, strict=False):
            drawn.append(Drawn(how, asked, tuple(history), len(prompt), logits, is_own, token))
            history.append(token)
    return drawn, missing


def _keep_rows(steps: list[tuple[Tensor, bool]], logits: Tensor, is_own: bool) -> None:
    steps.extend((row, is_own) for row in logits)
