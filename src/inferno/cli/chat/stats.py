"""What answers took, in words: the line below each, the table of `/stats`, notices."""

from __future__ import annotations

from inferno.cli.chat.session import Session, Turn
from inferno.requests import FinishReason


def summary(session: Session, turn: Turn) -> str:
    """One line about an answer: tokens, speed, context."""
    parts = [f"{len(turn.token_ids)} tokens", *_speeds(turn)]
    return " · ".join([*parts, f"context {_context(session)}"])


def notice(session: Session, turn: Turn) -> str | None:
    """Why an answer ended before its end, and what to do; None where it didn't."""
    if turn.completion is None:
        return "stopped; /retry asks again"
    if turn.completion.finish_reason is not FinishReason.LENGTH:
        return None
    most = session.params.max_tokens
    if most is not None and len(turn.token_ids) >= most:
        return f"cut after max_tokens = {most}; /set max_tokens none lifts the limit"
    return "cut: the context is full; /trim drops the oldest turns, /reset begins anew"


def describe_stats(session: Session) -> str:
    """The conversation's costs, a line each."""
    totals, footprint = session.totals, session.llm.footprint
    rows = {
        "turns": str(len(session.turns)),
        "context": _context(session) + " tokens",
        **(_last(session.turns[-1]) if session.turns else {}),
        "all answers": f"{totals.num_answers} with {totals.new_tokens} tokens",
        "all prompts": f"{totals.prompt_tokens} tokens, {totals.cached_tokens} of them cached",
        "memory": f"weights {size(footprint.weights_bytes)}, "
        f"KV cache {size(footprint.kv_cache_bytes)}",
        "device": f"{footprint.device}, {footprint.dtype}",
    }
    return "\n".join(f"{name:<12} {value}" for name, value in rows.items())


def size(num_bytes: int) -> str:
    """Bytes as people read them."""
    value, unit = float(num_bytes), "B"
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if value < 1000 or unit == "TB":
            break
        value /= 1000
    return f"{value:.3g} {unit}"


def _context(session: Session) -> str:
    return f"{session.num_context_tokens}/{session.llm.max_model_len}"


def _last(turn: Turn) -> dict[str, str]:
    prompt = f"{turn.num_prompt_tokens} tokens"
    if turn.completion is not None:
        prompt += f", {turn.completion.usage.cached_tokens} of them cached"
    answer = ", ".join([f"{len(turn.token_ids)} tokens", *_speeds(turn)])
    return {"last prompt": prompt, "last answer": answer}


def _speeds(turn: Turn) -> list[str]:
    if turn.completion is None:
        return []
    rate = turn.completion.timings.tokens_per_second
    first = turn.completion.timings.time_to_first_token
    return [
        *([] if rate is None else [f"{rate:.1f} tokens/s"]),
        *([] if first is None else [f"first after {_seconds(first)}"]),
    ]


def _seconds(seconds: float) -> str:
    return f"{seconds * 1000:.0f} ms" if seconds < 1 else f"{seconds:.1f} s"
