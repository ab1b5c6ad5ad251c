"""The data of a request, and of the events that answer it: frozen, and checked when built."""

from __future__ import annotations

import math
import reprlib
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields
from enum import StrEnum
from types import MappingProxyType
from typing import Any, NamedTuple

from inferno.errors import InvalidRequest
from inferno.parameters import names_fields

MAX_LOGPROBS = 20
MAX_SAMPLES = 128
MAX_STOPS = 16
MAX_STOP_LENGTH = 512
MAX_BAD_WORDS = 128
MAX_LISTED_IDS = 1 << 18  # of a list that steers sampling: no vocabulary is larger
MAX_TOKEN_ID = 2**31 - 1
MAX_SEED = 2**63 - 1
MAX_PENALTY = 2.0
MAX_LOGIT_BIAS = 100.0


class FinishReason(StrEnum):
    """The reason why a request ended."""

    STOP = "stop"  # an end-of-sequence token, a stop token or a stop string
    LENGTH = "length"  # max_tokens, or the end of the context
    ABORTED = "aborted"  # its owner ended it
    ERROR = "error"  # a step failed


@names_fields
@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class SamplingParams:
    """The rules for choosing tokens and for stopping; a bad value raises InvalidRequest.

    temperature     0 is greedy; otherwise logits are divided by it.
    top_k           keep the k likeliest tokens; 0 keeps all.
    top_p           keep the smallest set whose probability reaches it; 1.0 keeps all, 0.0 the
                    likeliest token.
    min_p           drop tokens less likely than min_p times the likeliest; 0.0 drops none.
    repetition_penalty  divide positive and multiply negative logits of tokens in prompt or output
                    (CTRL, arXiv:1909.05858); 1.0 is off.
    presence_penalty, frequency_penalty  subtracted once, and once per occurrence, from logits of
                    tokens in the output (OpenAI's definition); 0.0 is off.
    logit_bias      token id -> number added to its logit, within ±100.
    allowed_token_ids  only these may be sampled; None allows all.
    bad_words       texts whose tokens, alone or after a space, are never completed; the same
                    letters cut into other tokens are not found.
    max_tokens      new tokens at most; None goes on to the end of the context, or of the cache.
    min_tokens      no end-of-sequence or stop token before this many.
    stop            texts that end the output; stop_token_ids: tokens that do.
    ignore_eos      go on past the end-of-sequence token.
    seed            the same request and seed give the same random numbers; None draws one.
    n               samples per prompt.
    logprobs        the chosen token's log-probability and that many of the likeliest (0 to 20),
                    from the model's own distribution; None is off. prompt_logprobs likewise.
    """

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: Mapping[int, float] = field(default_factory=dict)
    allowed_token_ids: Sequence[int] | None = None
    bad_words: Sequence[str] = ()
    max_tokens: int | None = 256
    min_tokens: int = 0
    stop: str | Sequence[str] = ()
    stop_token_ids: Sequence[int] = ()
    include_stop_in_output: bool = False
    ignore_eos: bool = False
    skip_special_tokens: bool = True
    seed: int | None = None
    n: int = 1
    logprobs: int | None = None
    prompt_logprobs: int | None = None

    def __post_init__(self) -> None:
        _number(self, "temperature", 0.0, 100.0)
        _integer(self, "top_k", 0, MAX_TOKEN_ID)
        _number(self, "top_p", 0.0, 1.0)
        _number(self, "min_p", 0.0, 1.0)
        _number(self, "repetition_penalty", 0.0, 100.0, open_low=True)
        _number(self, "presence_penalty", -MAX_PENALTY, MAX_PENALTY)
        _number(self, "frequency_penalty", -MAX_PENALTY, MAX_PENALTY)
        _integer(self, "max_tokens", 0, MAX_TOKEN_ID, optional=True)
        _integer(self, "min_tokens", 0, MAX_TOKEN_ID)
        _integer(self, "seed", -MAX_SEED - 1, MAX_SEED, optional=True)
        _integer(self, "n", 1, MAX_SAMPLES)
        _integer(self, "logprobs", 0, MAX_LOGPROBS, optional=True)
        _integer(self, "prompt_logprobs", 0, MAX_LOGPROBS, optional=True)
        for name in ("include_stop_in_output", "ignore_eos", "skip_special_tokens"):
            if not isinstance(getattr(self, name), bool):
                raise _refuse(name, getattr(self, name), "true or false")
        if self.max_tokens is not None and self.min_tokens > self.max_tokens:
            raise _refuse("min_tokens", self.min_tokens, f"at most max_tokens ({self.max_tokens})")
        self._freeze_collections()

    def _freeze_collections(self) -> None:
        stop = (self.stop,) if isinstance(self.stop, str) else self.stop
        _set(self, "stop", _texts("stop", stop, MAX_STOPS, MAX_STOP_LENGTH))
        _set(self, "bad_words", _texts("bad_words", self.bad_words, MAX_BAD_WORDS, MAX_STOP_LENGTH))
        _set(self, "stop_token_ids", _token_ids("stop_token_ids", self.stop_token_ids))
        if self.allowed_token_ids is not None:
            allowed = _token_ids("allowed_token_ids", self.allowed_token_ids)
            if not allowed:
                raise _refuse("allowed_token_ids", "an empty list", "at least one token id")
            _set(self, "allowed_token_ids", allowed)
        _set(self, "logit_bias", _bias(self.logit_bias))

    def __repr__(self) -> str:
        """Return the expression that builds it again, without fields that have their defaults."""
        given = [(each, getattr(self, each.name)) for each in fields(self)]
        shown = [
            f"{each.name}={dict(value) if isinstance(value, Mapping) else value!r}"
            for each, value in given
            if value != (each.default if each.default is not MISSING else {})
        ]
        return f"SamplingParams({', '.join(shown)})"

    @property
    def stops(self) -> tuple[str, ...]:
        """Return the stop strings, however `stop` was given."""
        return tuple(self.stop)


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A request to the engine: token ids in, token ids out.

    eos_token_ids   tokens that end the output unless params.ignore_eos is set.
    bad_words_ids   params.bad_words as token ids: the last token of each is never chosen after the
                    others.
    priority        higher runs first; then the earlier arrival.
    cache_salt      prefix-cache blocks are shared only between requests with the same salt.
    reads_prefix_cache  False computes every prompt token, so that all their logits exist.
    """

    request_id: str
    prompt_token_ids: tuple[int, ...]
    params: SamplingParams
    eos_token_ids: frozenset[int] = frozenset()
    bad_words_ids: tuple[tuple[int, ...], ...] = ()
    priority: int = 0
    cache_salt: str = ""
    reads_prefix_cache: bool = True


@dataclass(frozen=True, slots=True)
class TokenLogprobs:
    """One token's log-probability, and the likeliest tokens at its position, likeliest first.

    rank        the token's own place among all, from 1; told of a prompt's tokens.
    """

    token_id: int
    logprob: float
    top: tuple[tuple[int, float], ...]
    rank: int | None = None


class TokenEvent(NamedTuple):
    """The news of one sample of a request: tokens, an ending, or both.

    token_ids       new tokens since the last event; a stop token that ended it is the last of them.
    logprobs        one entry per token, when asked for.
    prompt_logprobs one entry per prompt token (None for the first), once, with the first tokens.
    num_cached_tokens   prompt tokens that the prefix cache spared.
    stop_token_id   the token that ended it, when one did.
    error           what went wrong, when finish_reason is `error`.
    queue_seconds   how long the sample waited before its first step.

    (A NamedTuple, because one is built per token: four times faster than a frozen dataclass.)
    """

    request_id: str
    sample_index: int = 0
    token_ids: tuple[int, ...] = ()
    logprobs: tuple[TokenLogprobs, ...] = ()
    prompt_logprobs: tuple[TokenLogprobs | None, ...] | None = None
    num_cached_tokens: int = 0
    finish_reason: FinishReason | None = None
    stop_token_id: int | None = None
    error: str | None = None
    queue_seconds: float = 0.0


def _set(params: SamplingParams, name: str, value: object) -> None:
    object.__setattr__(params, name, value)  # frozen: only __post_init__ may


def _refuse(name: str, value: object, expected: str) -> InvalidRequest:
    is_huge = isinstance(value, int) and value.bit_length() > 256  # repr() of it may refuse
    shown = "a huge integer" if is_huge else reprlib.repr(value)
    return InvalidRequest(f"{name} must be {expected}, not {shown}", param=name)


def _number(
    params: SamplingParams, name: str, low: float, high: float, *, open_low: bool = False
) -> None:
    value: Any = getattr(params, name)
    first = f"above {low:g} and up" if open_low else f"from {low:g}"
    expected = f"a number {first} to {high:g}"
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise _refuse(name, value, expected)
    # Compared as given: a huge int must not reach float(), where it would overflow.
    inside = (low < value if open_low else low <= value) and value <= high
    if not inside or not math.isfinite(value):
        raise _refuse(name, value, expected)
    _set(params, name, float(value))


def _integer(
    params: SamplingParams, name: str, low: int, high: int, *, optional: bool = False
) -> None:
    value: Any = getattr(params, name)
    if value is None and optional:
        return
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise _refuse(name, value, f"an integer from {low} to {high}")


def _texts(name: str, value: object, most: int, longest: int) -> tuple[str, ...]:
    if isinstance(value, str) or not isinstance(value, Sequence):
        raise _refuse(name, value, "a list of texts")
    if len(value) > most:
        raise _refuse(name, f"{len(value)} texts", f"at most {most} texts")
    for text in value:
        if not isinstance(text, str) or not 0 < len(text) <= longest:
            raise _refuse(name, text, f"texts of 1 to {longest} characters")
    return tuple(value)


def _token_ids(name: str, value: object) -> tuple[int, ...]:
    if isinstance(value, str | bytes) or not isinstance(value, Sequence):
        raise _refuse(name, value, "a list of token ids")
    if len(value) > MAX_LISTED_IDS:
        raise _refuse(name, f"{len(value)} token ids", f"at most {MAX_LISTED_IDS} token ids")
    for token_id in value:
        if not _is_token_id(token_id):
            raise _refuse(name, token_id, "a list of token ids")
    return tuple(value)


def _bias(value: object) -> Mapping[int, float]:
    if not isinstance(value, Mapping):
        raise _refuse("logit_bias", value, "a mapping of token id to bias")
    if len(value) > MAX_LISTED_IDS:
        raise _refuse("logit_bias", f"{len(value)} biases", f"at most {MAX_LISTED_IDS} biases")
    for token_id, bias in value.items():
        if not _is_token_id(token_id):
            raise _refuse("logit_bias", token_id, "a mapping whose keys are token ids")
        is_number = isinstance(bias, int | float) and not isinstance(bias, bool)
        if not is_number or not -MAX_LOGIT_BIAS <= bias <= MAX_LOGIT_BIAS:
            raise _refuse("logit_bias", bias, f"biases within ±{MAX_LOGIT_BIAS:g}")
    return MappingProxyType({token_id: float(bias) for token_id, bias in value.items()})


def _is_token_id(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MAX_TOKEN_ID
