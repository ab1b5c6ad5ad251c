"""Define SamplingParams, the table of sampling parameters: each one's default, bounds and help.

Their checks, the command line's options, and the bounds and texts of the server's fields follow
from it. A new one is a field here, a line in `SharedFields` (server/openai/request_types.py) and,
where it changes logits, a function in engine/sampling/logits_processors.py; one that changes the
draw from them begins in ops/drawing.py.
"""

from __future__ import annotations

import math
import reprlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from inferno.errors import InvalidRequest
from inferno.option_table import Group, OptionRow, option, table
from inferno.parameters import names_fields
from inferno.structured import StructuredOutput
from inferno.surrogates import check_whole

MAX_LOGPROBS = 20
MAX_LOGPROB_IDS = 128
MAX_PATTERN_SIZE = 256  # tokens of a repetition: each size is tried at each token
MAX_REPETITIONS = 1024
MAX_SEQUENCES = 128
MAX_STOPS = 16
MAX_STOP_LENGTH = 512
MAX_BAD_WORDS = 128
MAX_LISTED_IDS = 1 << 18  # of a list that steers sampling: no vocabulary is larger
MAX_TOKEN_ID = 2**31 - 1
MAX_SEED = 2**63 - 1
MAX_PENALTY = 2.0
MAX_LOGIT_BIAS = 100.0

_NO_BIASES: Mapping[int, float] = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class RepetitionDetection:
    """The rule by which an output that repeats itself ends; a bad value raises InvalidRequest.

    max_pattern_size, min_pattern_size  how many tokens are repeated, up to 256.
    min_count       how many times in a row they must come, 2 to 1024.
    """

    max_pattern_size: int
    min_pattern_size: int = 1
    min_count: int

    def __post_init__(self) -> None:
        for name, low, high in (
            ("max_pattern_size", 1, MAX_PATTERN_SIZE),
            ("min_pattern_size", 1, self.max_pattern_size),
            ("min_count", 2, MAX_REPETITIONS),
        ):
            try:
                _integer(low, high, is_optional=False)(name, getattr(self, name))
            except InvalidRequest as problem:
                field = "repetition_detection"
                raise InvalidRequest(f"{field}: {problem}", param=field) from None


def _parameter(default: Any, *, flags: tuple[str, ...] = (), **facts: Any) -> Any:
    """Return a field that is a sampling parameter; without flags no command has it."""
    return option(default, group=Group.SAMPLING, flags=flags, is_python_only=not flags, **facts)


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
    n               sequences per prompt.
    logprobs        the chosen token's log-probability and that many of the likeliest (0 to 20),
                    from the model's own distribution; None is off. prompt_logprobs likewise.
    logprob_token_ids  tokens whose log-probabilities are given at each new token, instead of the
                    likeliest tokens', if logprobs is on; up to 128.
    repetition_detection  a RepetitionDetection: an output that repeats itself ends; None is off.
    thinking_token_budget  tokens of reasoning at most, after which the model must answer; None sets
                    no bound. Where a model sets no reasoning apart, it means nothing.
    prediction      a text that the output may resemble, such as the file to edit: where the output
                    does, it comes faster. Its tokens are the same without a prediction; None
                    predicts nothing.
    structured      a JSON Schema, regular expression, choice or grammar that the output keeps to;
                    it ends with the document, whatever min_tokens and ignore_eos say.
    """

    temperature: float = _parameter(
        1.0,
        help="0 is greedy.",
        low=0,
        high=100,
        flags=("--temperature", "-t"),
        absent="the model's, or 1.0",
    )
    top_k: int = _parameter(
        0,
        help="Keep the k likeliest tokens; 0 keeps all.",
        low=0,
        high=MAX_TOKEN_ID,
        flags=("--top-k",),
        absent="the model's, or 0",
    )
    top_p: float = _parameter(
        1.0,
        help="Keep the likeliest tokens up to this probability; 0 keeps the likeliest.",
        low=0,
        high=1,
        flags=("--top-p",),
        absent="the model's, or 1.0",
    )
    min_p: float = _parameter(
        0.0,
        help="Drop tokens less likely than this share of the likeliest.",
        low=0,
        high=1,
        flags=("--min-p",),
        absent="the model's, or 0.0",
    )
    repetition_penalty: float = _parameter(
        1.0,
        help="Above 1.0 discourages tokens of prompt and output.",
        low=0,
        high=100,
        is_low_excluded=True,
        flags=("--repetition-penalty",),
        absent="the model's, or 1.0",
    )
    presence_penalty: float = _parameter(
        0.0, help="Taken once from tokens of the output.", low=-MAX_PENALTY, high=MAX_PENALTY
    )
    frequency_penalty: float = _parameter(
        0.0,
        help="Taken per occurrence from tokens of the output.",
        low=-MAX_PENALTY,
        high=MAX_PENALTY,
    )
    logit_bias: Mapping[int, float] = _parameter(
        _NO_BIASES, help="Token id to a number that is added to its logit."
    )
    allowed_token_ids: Sequence[int] | None = _parameter(
        None, help="Only these tokens may be chosen."
    )
    bad_words: Sequence[str] = _parameter((), help="Texts whose tokens are never completed.")
    max_tokens: int | None = _parameter(
        256,
        help="New tokens at most.",
        low=0,
        high=MAX_TOKEN_ID,
        flags=("--max-tokens",),
        absent="256",
    )
    min_tokens: int = _parameter(
        0, help="No end-of-sequence or stop token before so many.", low=0, high=MAX_TOKEN_ID
    )
    stop: str | Sequence[str] = _parameter(
        (), help="A text that ends the output.", flags=("--stop",)
    )
    stop_token_ids: Sequence[int] = _parameter((), help="Tokens that end the output.")
    include_stop_in_output: bool = _parameter(
        False, help="Whether the text keeps the stop that ended it."
    )
    ignore_eos: bool = _parameter(False, help="Go on past the end-of-sequence token.")
    skip_special_tokens: bool = _parameter(True, help="Leave special tokens out of the text.")
    seed: int | None = _parameter(
        None,
        help="Makes the random choices repeatable.",
        low=-MAX_SEED - 1,
        high=MAX_SEED,
        flags=("--seed",),
        absent="a random one",
    )
    n: int = _parameter(1, help="Choices per prompt.", low=1, high=MAX_SEQUENCES)
    logprobs: int | None = _parameter(
        None,
        help="Log-probabilities of the chosen token and of so many likeliest ones.",
        low=0,
        high=MAX_LOGPROBS,
    )
    prompt_logprobs: int | None = _parameter(
        None, help="Log-probabilities of the prompt's tokens.", low=0, high=MAX_LOGPROBS
    )
    logprob_token_ids: Sequence[int] = _parameter(
        (), help="Tokens whose log-probabilities are told in place of the likeliest."
    )
    repetition_detection: RepetitionDetection | None = _parameter(
        None, help="Ends an output in which a pattern of tokens comes so often in a row."
    )
    thinking_token_budget: int | None = _parameter(
        None, help="Tokens of reasoning at most.", low=0, high=MAX_TOKEN_ID
    )
    prediction: str | None = _parameter(
        None, help="A text that the output may be like, which then comes faster."
    )
    structured: StructuredOutput | None = _parameter(
        None, help="The shape that the output must have."
    )

    def __post_init__(self) -> None:
        for name, default, check in _CHECKS:
            value = getattr(self, name)
            if value is not default and (checked := check(name, value)) is not value:
                object.__setattr__(self, name, checked)  # frozen: only here
        if self.max_tokens is not None and self.min_tokens > self.max_tokens:
            raise _refuse("min_tokens", self.min_tokens, f"at most max_tokens ({self.max_tokens})")
        if self.logprob_token_ids and self.logprobs is None:
            raise InvalidRequest("logprob_token_ids needs logprobs", param="logprob_token_ids")

    def __repr__(self) -> str:
        """Return an expression that builds equal parameters, without defaults."""
        given = [(name, default, getattr(self, name)) for name, default, _ in _CHECKS]
        shown = [
            f"{name}={dict(value) if isinstance(value, Mapping) else value!r}"
            for name, default, value in given
            if value != default
        ]
        return f"SamplingParams({', '.join(shown)})"

    @property
    def stops(self) -> tuple[str, ...]:
        """Return the stop strings as a tuple, however `stop` was given."""
        return tuple(self.stop)


# Given a parameter's name and value, returns the value to keep; raises InvalidRequest.
_Check = Callable[[str, Any], Any]


def _refuse(name: str, value: object, expected: str) -> InvalidRequest:
    is_huge = isinstance(value, int) and value.bit_length() > 256  # repr() of it may refuse
    shown = "a huge integer" if is_huge else reprlib.repr(value)
    return InvalidRequest(f"{name} must be {expected}, not {shown}", param=name)


def _check_of(row: OptionRow) -> _Check:
    """Return the check of a parameter by its type and its bounds."""
    if row.name in _CHECKS_OF_COLLECTIONS:
        return _CHECKS_OF_COLLECTIONS[row.name]
    if row.kind is bool:
        return _boolean
    low, high = row.facts.low, row.facts.high
    assert low is not None, row.name
    assert high is not None, row.name
    if row.kind is int:
        return _integer(int(low), int(high), is_optional=row.is_optional)
    return _number(low, high, is_low_excluded=row.facts.is_low_excluded)


def _boolean(name: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise _refuse(name, value, "true or false")
    return value


def _number(low: float, high: float, *, is_low_excluded: bool) -> _Check:
    first = f"above {low:g} and up" if is_low_excluded else f"from {low:g}"
    expected = f"a number {first} to {high:g}"

    def check(name: str, value: Any) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise _refuse(name, value, expected)
        # Compared as given: a huge int must not reach float(), where it would overflow.
        inside = (low < value if is_low_excluded else low <= value) and value <= high
        if not inside or not math.isfinite(value):
            raise _refuse(name, value, expected)
        return float(value)

    return check


def _integer(low: int, high: int, *, is_optional: bool) -> _Check:
    expected = f"an integer from {low} to {high}"

    def check(name: str, value: Any) -> int | None:
        if value is None and is_optional:
            return None
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            raise _refuse(name, value, expected)
        return value

    return check


def _stops(name: str, value: object) -> tuple[str, ...]:
    return _texts(name, (value,) if isinstance(value, str) else value, MAX_STOPS)


def _bad_words(name: str, value: object) -> tuple[str, ...]:
    return _texts(name, value, MAX_BAD_WORDS)


def _texts(name: str, value: object, most: int) -> tuple[str, ...]:
    if isinstance(value, str) or not isinstance(value, Sequence):
        raise _refuse(name, value, "a list of texts")
    if len(value) > most:
        raise _refuse(name, f"{len(value)} texts", f"at most {most} texts")
    for text in value:
        if not isinstance(text, str) or not 0 < len(text) <= MAX_STOP_LENGTH:
            raise _refuse(name, text, f"texts of 1 to {MAX_STOP_LENGTH} characters")
        check_whole(text, name, param=name)
    return tuple(value)


def _prediction(name: str, value: object) -> str | None:
    if value is not None and not isinstance(value, str):
        raise _refuse(name, value, "a text")
    if value is not None:
        check_whole(value, name, param=name)
    return value


def _structured(name: str, value: object) -> StructuredOutput | None:
    if value is not None and not isinstance(value, StructuredOutput):
        raise _refuse(name, value, "a StructuredOutput")
    return value


def _token_ids(name: str, value: object) -> tuple[int, ...]:
    if isinstance(value, str | bytes) or not isinstance(value, Sequence):
        raise _refuse(name, value, "a list of token ids")
    if len(value) > MAX_LISTED_IDS:
        raise _refuse(name, f"{len(value)} token ids", f"at most {MAX_LISTED_IDS} token ids")
    for token_id in value:
        if not _is_token_id(token_id):
            raise _refuse(name, token_id, "a list of token ids")
    return tuple(value)


def _logprob_token_ids(name: str, value: object) -> tuple[int, ...]:
    ids = _token_ids(name, value)
    if len(ids) > MAX_LOGPROB_IDS:
        raise _refuse(name, f"{len(ids)} token ids", f"at most {MAX_LOGPROB_IDS} token ids")
    if len(set(ids)) < len(ids):
        raise _refuse(name, value, "token ids that differ")
    return ids


def _repetition_detection(name: str, value: object) -> RepetitionDetection | None:
    if value is not None and not isinstance(value, RepetitionDetection):
        raise _refuse(name, value, "a RepetitionDetection")
    return value


def _allowed_token_ids(name: str, value: object) -> tuple[int, ...] | None:
    if value is None:
        return None
    allowed = _token_ids(name, value)
    if not allowed:
        raise _refuse(name, "an empty list", "at least one token id")
    return allowed


def _biases(name: str, value: object) -> Mapping[int, float]:
    if not isinstance(value, Mapping):
        raise _refuse(name, value, "a mapping of token id to bias")
    if len(value) > MAX_LISTED_IDS:
        raise _refuse(name, f"{len(value)} biases", f"at most {MAX_LISTED_IDS} biases")
    for token_id, bias in value.items():
        if not _is_token_id(token_id):
            raise _refuse(name, token_id, "a mapping whose keys are token ids")
        is_number = isinstance(bias, int | float) and not isinstance(bias, bool)
        if not is_number or not -MAX_LOGIT_BIAS <= bias <= MAX_LOGIT_BIAS:
            raise _refuse(name, bias, f"biases within ±{MAX_LOGIT_BIAS:g}")
    return MappingProxyType({token_id: float(bias) for token_id, bias in value.items()})


def _is_token_id(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MAX_TOKEN_ID


_CHECKS_OF_COLLECTIONS: Mapping[str, _Check] = {
    "logit_bias": _biases,
    "allowed_token_ids": _allowed_token_ids,
    "bad_words": _bad_words,
    "stop": _stops,
    "stop_token_ids": _token_ids,
    "prediction": _prediction,
    "structured": _structured,
    "logprob_token_ids": _logprob_token_ids,
    "repetition_detection": _repetition_detection,
}
# Every parameter's name, default and check; a default itself needs none.
_CHECKS = tuple((row.name, row.default, _check_of(row)) for row in table(SamplingParams).values())
