"""The figures of answers in words: the line below each, the table of `/stats`, notices."""

from __future__ import annotations

from inferno.cli.chat.session import Session, Totals, Turn
from inferno.machine import own_memory, readable_size
from inferno.requests import FinishReason


def summary(session: Session, turn: Turn) -> str:
    """Return one line about an answer: tokens, speed, context."""
    parts = [f"{len(turn.token_ids)} tokens", *_speeds(turn)]
    return " · ".join([*parts, f"context {_context(session)}"])


def notice(session: Session, turn: Turn) -> str | None:
    """Return why an answer was cut off, and what to do; None if it wasn't."""
    if turn.completion is None:
        return "stopped; /retry asks again"
    if turn.completion.finish_reason is not FinishReason.LENGTH:
        return None
    most = session.params.max_tokens
    if most is not None and len(turn.token_ids) >= most:
        return f"cut after max_tokens = {most}; /set max_tokens none lifts the limit"
    is_context = session.num_context_tokens >= session.llm.max_model_len
    place = f"context of {session.llm.max_model_len} tokens" if is_context else "KV cache"
    if session.trims:
        return f"cut: the {place} is full; the next message drops the oldest turns"
    return (
        f"cut: the {place} is full; /trim drops the oldest turns, /set context trim does so by "
        "itself, /reset begins anew"
    )


def trim_notice(session: Session) -> str | None:
    """Return a notice of the turns that were dropped for the last message; None if none was."""
    num = session.num_trimmed
    if not num:
        return None
    dropped = "the oldest turn was" if num == 1 else f"the {num} oldest turns were"
    return f"the context was full: {dropped} dropped; /set context keep keeps them"


def describe_stats(session: Session) -> str:
    """Return the table of `/stats`: the last answer, the conversation, all answers, the model."""
    footprint, own = session.llm.footprint, own_memory()
    groups = {
        "last answer": _last(session.turns[-1]) if session.turns else {},
        "this conversation": {
            "turns": str(len(session.turns)),
            "context": _context(session) + " tokens",
        },
        "since the start": _all(session.totals),
        "model": {
            "memory": f"weights {readable_size(footprint.weights_bytes)}, "
            f"KV cache {readable_size(footprint.kv_cache_bytes)} in {footprint.kv_dtype}",
            **({} if own is None else {"process": f"{readable_size(own)} of the machine's memory"}),
            "device": f"{footprint.device}, {footprint.dtype}",
        },
    }
    return "\n".join(line for name, rows in groups.items() if rows for line in _group(name, rows))


def _group(name: str, rows: dict[str, str]) -> list[str]:
    return [name, *(f"  {label:<8} {value}" for label, value in rows.items())]


def _context(session: Session) -> str:
    return f"{session.num_context_tokens}/{session.llm.max_model_len}"


def _last(turn: Turn) -> dict[str, str]:
    prompt = f"{turn.num_prompt_tokens} tokens"
    if turn.completion is not None:
        prompt += f", {turn.completion.usage.cached_tokens} of them cached"
    answer = ", ".join([f"{len(turn.token_ids)} tokens", *_speeds(turn)])
    return {"prompt": prompt, "answer": answer, **_proposed(turn)}


def _proposed(turn: Turn) -> dict[str, str]:
    """Return what speculation proposed for an answer, by who proposed it, where anything was."""
    if turn.completion is None or not turn.completion.timings.proposals:
        return {}
    counts = [
        f"{each.num_stood} of {each.num_proposed} tokens by {each.name}"
        for each in turn.completion.timings.proposals
    ]
    return {"guessed": ", ".join(counts)}


def _all(totals: Totals) -> dict[str, str]:
    least = "at least " if totals.num_stopped else ""
    stopped = f", {totals.num_stopped} of them stopped" if totals.num_stopped else ""
    return {
        "prompts": f"{totals.prompt_tokens} tokens, {least}{totals.cached_tokens} of them cached",
        "answers": f"{totals.num_answers}{stopped}, with {totals.new_tokens} tokens",
        **(
            {"guessed": f"{least}{totals.accepted_tokens} of {totals.proposed_tokens} tokens"}
            if totals.proposed_tokens
            else {}
        ),
    }


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
