"""Run steps before any request comes, so that kernels are compiled and graphs captured.

The steps are of requests like others, whose results nobody reads: prompts, the longest first, then
steps of ever more sequences, drawn and greedy, and one with log-probabilities.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from inferno.engine.engine import Engine
from inferno.engine.execution.static_batcher import PADDED_SIZES, table_reaches
from inferno.engine.sampling.constraints import Mask
from inferno.errors import EngineError
from inferno.ops.dispatch import telling_of_kernels
from inferno.options import EngineOptions
from inferno.plan.choices import SMALL_STEP
from inferno.requests import FinishReason, Request, SamplingParams

_PROMPTS = tuple(2**power for power in range(2, 15))  # kernels choose their tiles by such sizes
_SALT = "warm-up"  # whose blocks no request finds
_GREEDY = SamplingParams(temperature=0.0, max_tokens=1)
# A draw that needs ranks as well as masses, so that all of its kernels are there.
_DRAWN = SamplingParams(temperature=1.0, top_p=0.9, top_k=50, min_p=0.01, max_tokens=1)
# Other kernels draw where nothing is cut off, as is the default of most clients.
_PLAIN = SamplingParams(temperature=1.0, max_tokens=1)
_TOLD_TOKENS = 3
# And penalties have one more for tokens that follow one which the host hasn't read.
_TOLD = SamplingParams(temperature=0.0, frequency_penalty=0.5, logprobs=1, max_tokens=_TOLD_TOKENS)


@dataclass(frozen=True, slots=True)
class WarmUpStep:
    """A step of so many sequences, each with so many tokens to compute.

    reach       tokens that block tables reach at least, as in long requests.
    is_masked   tokens are drawn among those that a mask allows, as for answers with a shape.
    """

    num_seqs: int
    num_tokens: int
    params: SamplingParams
    reach: int = 0
    is_masked: bool = False


def warm_up_steps(options: EngineOptions, max_model_len: int) -> list[WarmUpStep]:
    """Return the steps after which an engine has met all of the usual sizes."""
    if max_model_len < 2:  # nothing can be computed after a prompt
        return []
    longest = min(options.max_num_batched_tokens, max_model_len - 1)
    sizes = sorted({*_up_to(PADDED_SIZES, options.max_num_seqs), options.max_num_seqs})
    kinds = (_GREEDY, _PLAIN, _DRAWN)
    prompts = sorted({*_up_to(_PROMPTS, longest), longest}, reverse=True)
    return [
        *(WarmUpStep(1, num_tokens, _GREEDY) for num_tokens in prompts),
        *(WarmUpStep(size, 1, params) for size in sizes for params in kinds),
        *(WarmUpStep(1, 1, params, is_masked=True) for params in kinds),
        *([WarmUpStep(1, 1, _TOLD)] if max_model_len > _TOLD_TOKENS else []),
    ]


def wide_steps(options: EngineOptions, max_model_len: int) -> list[WarmUpStep]:
    """Return steps with block tables of each width, by which kernels choose how they compute.

    For each width there is a prompt, a step of the fewest sequences, and one of the most.
    """
    first = warm_up_steps(options, max_model_len)
    chosen = [first[0], *(WarmUpStep(size, 1, _GREEDY) for size in _ends(options))] if first else []
    return [replace(step, reach=reach) for reach in table_reaches(max_model_len) for step in chosen]


def capture_steps(options: EngineOptions, max_model_len: int, most_tokens: int) -> list[WarmUpStep]:
    """Return steps after which a device's graphs of all padded sizes and table widths are captured.

    most_tokens  that the cache holds of a request.
    """
    first = warm_up_steps(options, min(max_model_len, most_tokens))
    if not first:
        return []
    longest = max(step.num_tokens for step in first)
    sizes = sorted({step.num_seqs for step in first})
    chunks = [*_up_to(PADDED_SIZES, min(SMALL_STEP, longest))]
    return [
        *first,
        *(
            step
            for reach in table_reaches(max_model_len)
            for step in (
                *(WarmUpStep(1, size, _GREEDY, reach) for size in chunks if size > 1),
                *(WarmUpStep(size, 1, _GREEDY, reach) for size in sizes),
            )
        ),
    ]


def fullest_steps(options: EngineOptions, max_model_len: int) -> list[WarmUpStep]:
    """Return the steps that take the most memory of all: a long prompt, and all rows drawn."""
    first = warm_up_steps(options, max_model_len)[:1]
    return [*first, WarmUpStep(options.max_num_seqs, 1, _DRAWN)] if first else []


@contextmanager
def telling_of_first_kernels(device: str, tell: Callable[[str, int], None]) -> Iterator[None]:
    """Have `tell` called with each kernel that is made ready on a device, and their count."""
    names: list[str] = []

    def note(name: str) -> None:
        names.append(name)
        tell(name, len(names))

    with telling_of_kernels(device.partition(":")[0], note):
        yield


def num_blocks_of(steps: Sequence[WarmUpStep], block_size: int, num_groups: int) -> int:
    """Return how many blocks of the cache the steps need, one after the other."""
    # A sequence's new token may begin a block, and nobody gets in who would fill the last one.
    needed = (one.num_seqs * (one.num_tokens // block_size + 2) for one in steps)
    return num_groups * max(needed, default=1)


def warm_up(
    engine: Engine, steps: Sequence[WarmUpStep], progress: Callable[[int, int], None] | None = None
) -> None:
    """Run steps; `progress(done, total)` counts them. No other request may be under way.

    Raises EngineError where one fails.
    """
    try:
        for number, step in enumerate(steps):
            if progress is not None:
                progress(number, len(steps))
            engine.widen_tables(step.reach)
            _run(engine, step)
    finally:
        engine.widen_tables(0)
    if progress is not None:
        progress(len(steps), len(steps))


def _run(engine: Engine, step: WarmUpStep) -> None:
    for number in range(step.num_seqs):
        token_ids = tuple((number + place) % engine.vocab_size for place in range(step.num_tokens))
        engine.add_request(
            Request(
                request_id=f"warm-up-{secrets.token_hex(8)}",
                prompt_token_ids=token_ids,
                params=step.params,
                cache_salt=_SALT,
                reads_prefix_cache=False,
            ),
            [_AnyToken()] if step.is_masked else None,
        )
    while engine.has_work:
        for event in engine.step():
            if event.finish_reason is FinishReason.ERROR:
                raise EngineError(event.error or "a step of the engine failed")


class _AnyToken:
    """A constraint that allows every token; see `Constraint`."""

    def mask_into(self, mask: Mask) -> None:
        mask.fill(-1)

    def forced(self, most: int) -> Sequence[int]:
        return ()

    def accept(self, token_ids: Sequence[int]) -> None:
        pass

    def rollback(self, num_tokens: int) -> None:
        pass

    @property
    def is_complete(self) -> bool:
        return True

    @property
    def num_to_end(self) -> int | None:
        return None

    def fits(self, num_tokens: int) -> bool:
        return True

    def next_to_end(self) -> int:
        return -1


def _ends(options: EngineOptions) -> list[int]:
    """Return the fewest sequences of a step, and the most."""
    return sorted({1, options.max_num_seqs})


def _up_to(sizes: Sequence[int], most: int) -> Iterator[int]:
    return (size for size in sizes if size <= most)
