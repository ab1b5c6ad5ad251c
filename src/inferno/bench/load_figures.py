"""The figures of a load: rates, percentiles, and how many requests were good."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from inferno.bench.load import Load, LoadResult, RequestResult


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """A distribution, in seconds."""

    mean: float
    p50: float
    p90: float
    p99: float


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadFigures:
    """The figures of requests that succeeded; rates are over the time from the first to the last.

    good_requests   those within the bounds that were given; None where none was.
    between_tokens  from one event with text to the next, of all requests.
    errors          requests that failed, by what went wrong, most frequent first.
    client_cpu_per_token    seconds that measuring took; client_cpu_share: of a core, on average.
    most_late       seconds that a request began after its moment, at most.
    """

    seconds: float
    num_completed: int
    num_failed: int
    errors: dict[str, int]
    prompt_tokens: int
    output_tokens: int
    requests_per_second: float
    prompt_tokens_per_second: float
    output_tokens_per_second: float
    good_requests: int | None
    good_requests_per_second: float | None
    first_token: Spread | None
    between_tokens: Spread | None
    total: Spread | None
    client_cpu_per_token: float | None
    client_cpu_share: float
    most_late: float


def figures(load: Load, result: LoadResult) -> LoadFigures:
    """Compute all figures of a load from its requests."""
    done = [each for each in result.requests if each.problem is None]
    failed = Counter(each.problem for each in result.requests if each.problem is not None)
    begun = min(each.begun for each in result.requests)
    seconds = max(each.ended for each in result.requests) - begun
    prompt_tokens = sum(each.prompt_tokens or 0 for each in done)
    output_tokens = sum(each.num_tokens for each in done)
    gaps = [later - earlier for each in done for earlier, later in pairwise(each.arrivals)]
    num_good = _num_good(load, done)
    return LoadFigures(
        seconds=seconds,
        num_completed=len(done),
        num_failed=failed.total(),
        errors=dict(failed.most_common()),
        prompt_tokens=prompt_tokens,
        output_tokens=output_tokens,
        requests_per_second=len(done) / seconds,
        prompt_tokens_per_second=prompt_tokens / seconds,
        output_tokens_per_second=output_tokens / seconds,
        good_requests=num_good,
        good_requests_per_second=None if num_good is None else num_good / seconds,
        first_token=_spread([each.first_token for each in done]),
        between_tokens=_spread(gaps),
        total=_spread([each.total for each in done]),
        client_cpu_per_token=result.cpu_seconds / output_tokens if output_tokens else None,
        client_cpu_share=result.cpu_seconds / seconds,
        most_late=result.most_late,
    )


def _num_good(load: Load, done: Sequence[RequestResult]) -> int | None:
    first, between = load.first_token_bound, load.between_tokens_bound
    if first is None and between is None:
        return None
    return sum(
        (first is None or each.first_token <= first)
        and (between is None or (each.per_token or 0.0) <= between)
        for each in done
    )


def _spread(values: list[float]) -> Spread | None:
    if not values:
        return None
    ordered = sorted(values)
    return Spread(
        mean=sum(values) / len(values),
        p50=_percentile(ordered, 0.5),
        p90=_percentile(ordered, 0.9),
        p99=_percentile(ordered, 0.99),
    )


def _percentile(ordered: Sequence[float], share: float) -> float:
    """Interpolate between the two nearest of the ordered values, as most tools do."""
    place = share * (len(ordered) - 1)
    below = int(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (place - below) * (ordered[above] - ordered[below])
