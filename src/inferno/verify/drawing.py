"""The sampler's checkpoint: tokens that the engine drew, from the logits it drew them by."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from inferno.engine.engine import Engine
from inferno.engine.runner import Runner
from inferno.engine.sampler import Sampled, Sampler, SampleRow
from inferno.requests import FinishReason, Request, SamplingParams
from inferno.verify.outcome import Row
from inferno.verify.plain_sampler import Draw, shaped, uniform

_NUM_NEW = 4
_NUM_SEEDS = 32  # tried on each row besides the one that the engine used
_MOST_TOLD = 3
_SEED = 0x5EED_0000_0000  # more than 32 bits, so that both halves of a key matter


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


def draw_tokens(engine: Engine, prompt: Sequence[int], num_new: int) -> list[Drawn]:
    """Let the engine continue the prompt in each way, as it does for everybody."""
    drawn: list[Drawn] = []
    for index, (how, params) in enumerate(settings(prompt).items()):
        asked = replace(
            params, seed=_SEED + index, max_tokens=min(num_new, _NUM_NEW), ignore_eos=True
        )
        with _watching() as steps:
            new_ids = _complete(engine, f"verify {how}", prompt, asked)
        history = list(prompt)
        for token, (logits, is_own) in zip(new_ids, steps, strict=False):
            drawn.append(Drawn(how, asked, tuple(history), len(prompt), logits, is_own, token))
            history.append(token)
    return drawn


def _complete(
    engine: Engine, name: str, prompt: Sequence[int], params: SamplingParams
) -> list[int]:
    """Return the new tokens, up to an error, which other checkpoints tell of."""
    engine.add_request(Request(request_id=name, prompt_token_ids=tuple(prompt), params=params))
    new_ids: list[int] = []
    while engine.has_work:
        for event in engine.step():
            if event.finish_reason is not FinishReason.ERROR:
                new_ids += event.token_ids
    return new_ids


@contextlib.contextmanager
def _watching() -> Iterator[list[tuple[Tensor, bool]]]:
    """Keep what the sampler is handed, and whether that is what the model made."""
    steps: list[tuple[Tensor, bool]] = []
    made: list[Tensor] = []
    logits_of, sample = Runner.logits, Sampler.sample

    def logits_watched(self: Runner, hidden_TE: Tensor, rows: Sequence[int]) -> Tensor:
        logits = logits_of(self, hidden_TE, rows)
        made[:] = [_plain(logits)]
        return logits

    def sample_watched(
        self: Sampler, logits_RV: Tensor, rows: Sequence[SampleRow]
    ) -> list[Sampled]:
        given = _plain(logits_RV)
        is_own = len(made) == 1 and torch.equal(given, made[0])
        steps.extend((row, is_own) for row in given)
        return sample(self, logits_RV, rows)

    Runner.logits, Sampler.sample = logits_watched, sample_watched  # type: ignore[method-assign]
    try:
        yield steps
    finally:
        Runner.logits, Sampler.sample = logits_of, sample  # type: ignore[method-assign]


def _plain(logits: Tensor) -> Tensor:
    return logits.detach().float().to("cpu", copy=True)


def sampling_row(drawn: Sequence[Drawn], device: torch.device) -> Row:
    """Build checkpoint 13: the engine's tokens, and those of more seeds by its sampler."""
    checks = [_Check(one) for one in drawn if one.logits.isfinite().all()]
    problems = [problem for check in checks for problem in check.problems(device)]
    num_tokens = sum(check.num_tokens for check in checks)
    ways = len({one.how for one in drawn})
    return Row(
        number="13",
        title="sampling",
        compared="tokens drawn in several ways, from the logits that they were drawn by",
        findings=() if problems else (f"{num_tokens} tokens drawn in {ways} ways are those due",),
        problems=tuple(problems[:_MOST_TOLD]),
    )


@dataclass(slots=True)
class _Check:
    """A row of logits, and all tokens that are drawn by it."""

    drawn: Drawn
    num_tokens: int = 0
    _draw: Draw = field(init=False)

    def __post_init__(self) -> None:
        one = self.drawn
        logits = shaped(one.logits.numpy(), one.params, one.history, one.num_prompt)
        self._draw = Draw.of(logits, one.params)

    def problems(self, device: torch.device) -> Iterator[str]:
        """Yield at most one problem: the first token that is not the one due."""
        one, position = self.drawn, len(self.drawn.history)
        if not one.is_own:
            yield (
                f"{one.how}: the sampler is given other logits for position {position} than the "
                f"model has made"
            )
            return
        seeds = [one.params.seed or 0, *range(_SEED + 100, _SEED + 100 + _NUM_SEEDS)]
        for seed, token in zip(seeds, (one.token, *self._more(seeds[1:], device)), strict=True):
            self.num_tokens += 1
            number = uniform(seed, position)
            if not self._draw.allows(token, number):
                yield (
                    f"{one.how}: position {position} gets token {token}, where its logits and "
                    f"random number make it {self._draw.due(number)}"
                )
                return

    def _more(self, seeds: Sequence[int], device: torch.device) -> list[int]:
        """Return the tokens that the engine's sampler draws by the same logits with other seeds."""
        one = self.drawn
        sampler = Sampler(len(one.logits), device)
        rows = [
            SampleRow(
                request_id=one.how,
                sample_index=0,
                params=one.params,
                seed=seed,
                position=len(one.history),
                token_ids=one.history,
                num_prompt_tokens=one.num_prompt,
            )
            for seed in seeds
        ]
        logits = one.logits.repeat(len(seeds), 1).to(device)
        return [sampled.token_id for sampled in sampler.sample(logits, rows)]
