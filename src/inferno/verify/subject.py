"""Run the engine as it runs for everybody, watched: chunks of a prompt, then token by token."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import torch

from inferno.engine.assemble import build_engine
from inferno.engine.engine import Engine
from inferno.errors import EngineError
from inferno.layers.decoder import CausalLM
from inferno.options import EngineOptions
from inferno.requests import FinishReason, Request, SamplingParams
from inferno.verify.drawing import Drawn, draw_tokens
from inferno.verify.kv_ledger import KVLedger
from inferno.verify.observer import Observer
from inferno.verify.products import Seen, see_head
from inferno.verify.recorder import recording
from inferno.verify.taps import Taps

_LOGITS_ROWS = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """A watched run of the engine.

    token_ids   every token whose layers were computed: the prompt, and new ones but the last.
    new_ids     the tokens that the engine's sampler chose, greedily.
    chunk       how many tokens of the prompt were computed at a time.
    error       why the engine gave up early: logits that are no numbers, for instance.
    products    by module, what entered each matrix product and what came out.
    drawn       tokens that were then drawn in other ways than greedily.
    """

    token_ids: tuple[int, ...]
    new_ids: tuple[int, ...]
    chunk: int
    error: str | None
    taps: Taps
    ledger: KVLedger
    products: Mapping[str, Seen]
    drawn: Sequence[Drawn]
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
    engine = build_engine(_watchable(options, chunk))
    observer = Observer(frozenset(layers))
    with recording(observer) as found:
        new_ids, error = _complete(engine, prompt, num_new)
    taps = observer.taps()
    if found.model is None or len(taps.get("hidden", ())) != observer.num_tokens:
        raise EngineError(error or "the engine ran no model")  # it broke off within a step
    taps = _with_logits(taps, found.model)
    see_head(observer.products, taps["hidden"], taps["logits"])
    footprint = engine.footprint
    return Observed(
        token_ids=(*prompt, *new_ids)[: len(taps["hidden"])],
        new_ids=new_ids,
        chunk=chunk,
        error=error,
        taps=taps,
        ledger=observer.ledger,
        products=observer.products,
        drawn=() if error else draw_tokens(engine, prompt, num_new),
        model=found.model,
        dtype=getattr(torch, footprint.dtype),
        device=footprint.device,
    )


def _watchable(options: EngineOptions, chunk: int) -> EngineOptions:
    """Return options for one request at a time, run eagerly: a replayed step calls no op."""
    return replace(
        options, max_num_seqs=1, max_num_batched_tokens=chunk, step_target_ms=0, eager=True
    )


def _complete(
    engine: Engine, prompt: Sequence[int], num_new: int
) -> tuple[tuple[int, ...], str | None]:
    """Return the new tokens, and what went wrong after them."""
    params = SamplingParams(temperature=0.0, max_tokens=num_new, ignore_eos=True)
    engine.add_request(Request(request_id="verify", prompt_token_ids=tuple(prompt), params=params))
    new_ids: list[int] = []
    while engine.has_work:
        for event in engine.step():
            if event.finish_reason is FinishReason.ERROR:
                return tuple(new_ids), event.error or "a step of the engine failed"
            new_ids += event.token_ids
    return tuple(new_ids), None


@torch.inference_mode()
def _with_logits(taps: Taps, model: CausalLM) -> Taps:
    """Add the logits of every position, by the model's own head, to what was kept."""
    device = next(model.parameters()).device
    pieces = torch.split(taps["hidden"], _LOGITS_ROWS)
    try:
        logits = torch.cat([model.logits(piece.to(device)).cpu() for piece in pieces])
    except RuntimeError as problem:  # what torch raises where types or shapes don't fit
        raise EngineError(f"the model's head can't compute its logits: {problem}") from None
    return {**taps, "logits": logits}
