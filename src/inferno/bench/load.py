"""The load that a server is put under, and what its client saw: plain data."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from inferno.http_post import Target


class Endpoint(StrEnum):
    """The one of OpenAI's two routes that is asked."""

    COMPLETIONS = "completions"
    CHAT = "chat"


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """A load of streamed requests to one server.

    target          the route's URL; headers go with every request.
    request_rate    requests a second on average, each at a moment of its own (a Poisson process);
                    None: `concurrency` are open at any time.
    prompt_tokens, max_tokens   lengths, which vary evenly by the share `spread` of them.
    vocab_size      prompts are random token ids below it; None: random words, of a token or so.
    timeout         seconds after which a request counts as failed.
    first_token_bound, between_tokens_bound     seconds that a good request stays within, if given.
    """

    target: Target
    headers: dict[str, str]
    endpoint: Endpoint
    model: str
    num_requests: int
    request_rate: float | None
    concurrency: int
    prompt_tokens: int
    max_tokens: int
    spread: float
    vocab_size: int | None
    temperature: float
    ignore_eos: bool
    timeout: float
    seed: int
    first_token_bound: float | None
    between_tokens_bound: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestResult:
    """A request as its client saw it; times are time.perf_counter's.

    arrivals        when text came, event by event.
    prompt_tokens, completion_tokens    as the server counts them; None where it doesn't tell.
    problem         what went wrong, if something did.
    """

    begun: float
    ended: float
    arrivals: tuple[float, ...]
    prompt_tokens: int | None
    completion_tokens: int | None
    problem: str | None

    @property
    def num_tokens(self) -> int:
        """Return the number of new tokens; of events with text, if the server doesn't count."""
        counted = self.completion_tokens
        return len(self.arrivals) if counted is None else counted

    @property
    def first_token(self) -> float:
        """Return the seconds to the first text, or to the end where there was none."""
        return (self.arrivals[0] if self.arrivals else self.ended) - self.begun

    @property
    def total(self) -> float:
        """Return the seconds to the end."""
        return self.ended - self.begun

    @property
    def per_token(self) -> float | None:
        """Return the mean seconds from one token to the next; None of a single one."""
        if len(self.arrivals) < 2 or self.num_tokens < 2:
            return None
        return (self.arrivals[-1] - self.arrivals[0]) / (self.num_tokens - 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadResult:
    """The results of all requests of a load.

    cpu_seconds     that this client spent on them.
    most_late       seconds that a request began after its moment, at most.
    """

    requests: tuple[RequestResult, ...]
    cpu_seconds: float
    most_late: float
