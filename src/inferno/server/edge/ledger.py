"""The server's counts: plain numbers, kept by its event loop alone."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter

# In seconds: first token, between tokens, waiting and whole requests.
FIRST_TOKEN_BOUNDS = (
    *(0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75),
    *(1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0, 160.0, 640.0),
)
BETWEEN_TOKENS_BOUNDS = (
    *(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3),
    *(0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 10.0, 20.0, 40.0, 80.0),
)
REQUEST_BOUNDS = (
    *(0.01, 0.05, 0.1, 0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0),
    *(20.0, 30.0, 60.0, 120.0, 240.0, 480.0, 960.0, 1920.0, 3840.0),
)


class Histogram:
    """A histogram: how many values fell between each two bounds, and the sum of all."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)  # the last is for what is above them all
        self.total = 0.0

    def observe(self, value: float, times: int = 1) -> None:
        self.counts[bisect_left(self.bounds, value)] += times
        self.total += value * times


class Ledger:
    """Every count since the start; only exposition.py gives them names.

    num_open    HTTP requests that are with the endpoints now.
    http        answers by (route, method, status).
    rejected    requests that were refused before they ran, by why.
    finished    samples by finish reason.
    aborted     requests that ended early, by why.
    """

    def __init__(self) -> None:
        self.num_open = 0
        self.http: Counter[tuple[str, str, int]] = Counter()
        self.rejected: Counter[str] = Counter()
        self.finished: Counter[str] = Counter()
        self.aborted: Counter[str] = Counter()
        self.prompt_tokens = 0
        self.cached_tokens = 0
        self.generated_tokens = 0
        self.first_token = Histogram(FIRST_TOKEN_BOUNDS)
        self.between_tokens = Histogram(BETWEEN_TOKENS_BOUNDS)
        self.queued = Histogram(REQUEST_BOUNDS)
        self.whole = Histogram(REQUEST_BOUNDS)
