"""Put a plan into words: its table, what the cache holds, and what would fit instead."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from inferno.errors import InfernoError, NotEnoughMemory
from inferno.machine import readable_size
from inferno.options import EngineOptions
from inferno.plan.choices import GIB
from inferno.plan.memory import BLOCK_BOOK_BYTES, Plan, make_plan
from inferno.plan.shape import ModelShape
from inferno.quantization import FORMATS, QUANTIZATIONS, error_in_words

_COLUMN = 24
NO_CURE = "  nothing that was tried: give it more memory, or choose a smaller model"
_SHORTER = (1, 4, 16)  # parts of the context whose numbers of requests are shown
_LEAST_CONTEXT = 256
# Smaller values that still serve a chat or two; tried where quantizing alone isn't enough.
_SMALL = {"max_model_len": 2048, "max_num_seqs": 4, "max_num_batched_tokens": 128}


@dataclass(frozen=True, slots=True)
class Cure:
    """Options with which a model would fit, as the command line spells them, and its plan."""

    flags: str
    plan: Plan


def memory_table(plan: Plan) -> Iterator[str]:
    """Yield the lines of a plan's table: memory by part, and the memory there is."""
    for name, count in plan.weights.items():
        yield _line(f"weights, {name}", count)
    cache = f"KV cache, {plan.kv_dtype}"
    yield _line(cache, plan.cache_bytes) if plan.num_blocks else f"{cache:<{_COLUMN}}   no room"
    if plan.num_host_blocks:
        yield _line("swap space", plan.swap_bytes)
    if plan.draft is not None:
        for name, count in plan.draft.weights.items():
            yield _line(f"draft's weights, {name}", count)
        yield _line(f"draft's cache, {plan.draft.kv_dtype}", plan.draft.cache_bytes)
    of_draft = 0 if plan.draft is None else plan.draft.workspace
    yield _line("workspace", plan.workspace + of_draft)
    if plan.text:
        yield _line("tokenizer", plan.text)
    yield _line("Python, PyTorch" if plan.gpu_total is None else "CUDA, PyTorch", plan.base)
    yield _line("total, cache full", plan.total_bytes)
    yield _line("most while loading", plan.loading_bytes)
    if plan.gpu_total is None:
        name = "bound, --memory" if plan.is_bound else "available now"
    else:
        name = "share of the GPU" if plan.is_bound else "free on the GPU"
    yield f"{name:<{_COLUMN}}{'unknown':>10}" if plan.room is None else _line(name, plan.room)


def unpacked_lines(plan: Plan) -> Iterator[str]:
    """Yield a line for each of GGUF's types whose blocks are kept in another format."""
    for name, one in plan.unpacked.items():
        yield (
            f"{readable_size(one.file_bytes)} of {name} become "
            f"{one.kept_as}{error_in_words(one.error)}: {readable_size(one.kept_bytes)}"
        )


def context_table(plan: Plan, others: Sequence[tuple[str, Plan | None]] = ()) -> Iterator[str]:
    """Yield how many requests of how many tokens fit at once on each device.

    others  devices beside the CPU, with their plans; None: the model can't run there.
    """
    yield (
        f"A token takes {readable_size(plan.cache.token_bytes)} of the cache, "
        f"{readable_size(plan.cache.block_bytes)} a block of {plan.cache.block_size}. "
        "Requests at once:"
    )
    devices = [("cpu", plan), *others]
    yield f"{'context':>10}" + "".join(f"{name:>10}" for name, _ in devices)
    contexts = {max(1, plan.context // part) for part in _SHORTER} | {max(1, plan.longest)}
    for context in sorted(contexts):
        counts = (one.num_requests(context) if one else 0 for _, one in devices)
        yield f"{context:>10}" + "".join(f"{count or '-':>10}" for count in counts)


def cures(
    shape: ModelShape, options: EngineOptions, plan: Plan, draft: ModelShape | None = None
) -> Iterator[Cure]:
    """Yield changes of options with which the model fits, the ones that lose least first.

    draft   the shape of the draft model, which can be left out.
    """
    left_out = [] if draft is None else ["(no draft model)"]
    is_found = False
    for candidates in (
        _candidates(options, draft),
        _alone(options, plan),
        [_together(options, plan)],
        _all_together(options, plan),
    ):
        for flags, changed, kept in candidates:
            added = left_out if kept is None else []
            cure = _cure(shape, options, plan, [*added, *flags], changed, kept)
            if cure is not None:
                is_found = True
                yield cure
        if is_found:
            return


def _cure(
    shape: ModelShape,
    options: EngineOptions,
    plan: Plan,
    flags: list[str],
    changed: EngineOptions,
    draft: ModelShape | None,
) -> Cure | None:
    """Return the cure that changed options are, perhaps with fewer blocks or a shorter context."""
    other = _planned(shape, changed, plan, draft)
    if other is not None and not other.fits and options.num_blocks is not None:
        other = _planned(shape, replace(changed, num_blocks=None), plan, draft)
        if other is None or not 0 < other.num_blocks < options.num_blocks:
            return None
        flags = [*flags, f"--num-blocks {other.num_blocks}"]
    if not flags or other is None or not other.fits:
        return None
    if other.longest < min(_LEAST_CONTEXT, other.context):
        return None
    if other.longest < other.context:
        flags = [flag for flag in flags if not flag.startswith("--max-model-len")]
        flags.append(f"--max-model-len {other.longest}")
    return Cure(" ".join(flags), other)


def cure_lines(
    shape: ModelShape, options: EngineOptions, plan: Plan, draft: ModelShape | None = None
) -> Iterator[str]:
    """Yield lines of what to change, with each change's figures, or of what else to do."""
    found = list(cures(shape, options, plan, draft))
    for cure in found:
        yield (
            f"  {cure.flags:<60}{readable_size(cure.plan.total_bytes):>8}, "
            f"{cure.plan.num_requests(cure.plan.longest)} x {cure.plan.longest:,} tokens"
        )
    if not found:
        yield NO_CURE


def refusal(
    shape: ModelShape,
    options: EngineOptions,
    plan: Plan,
    draft: ModelShape | None = None,
    *,
    bound: str | None = None,
) -> NotEnoughMemory:
    """Return the error that a model doesn't fit, with its table and with what would fit.

    bound   the memory that it doesn't fit in, in words; None: the machine's.
    """
    room = "unknown" if plan.room is None else readable_size(plan.room)
    if bound is None:
        bound = (
            f"--memory {options.memory}"
            if plan.is_bound
            else f"the {room} of memory that are available"
        )
    first = f"the model doesn't fit in {bound}: expected is"
    if draft is not None:
        first = f"the model and its draft model don't fit in {bound}: expected is"
    lines = [first, *(f"  {line}" for line in memory_table(plan)), "what would fit:"]
    return NotEnoughMemory("\n".join(lines), cures=tuple(cure_lines(shape, options, plan, draft)))


def _planned(
    shape: ModelShape, options: EngineOptions, plan: Plan, draft: ModelShape | None
) -> Plan | None:
    """Return the plan with other options in the same room; None where they can't be."""
    try:
        return make_plan(
            shape,
            options,
            plan.room if options.memory is None else None,
            base=plan.base,
            has_text=plan.making_text > 0,
            others=_others(options, plan),
            gpu_total=plan.gpu_total,
            draft=draft,
        )
    except InfernoError:
        return None


_Candidate = tuple[list[str], EngineOptions, ModelShape | None]


def _candidates(options: EngineOptions, draft: ModelShape | None) -> Iterator[_Candidate]:
    """Yield options that take less, with their flags: none first, then one change, then more.

    A draft model is left out first of all, for nothing but speed is lost with it. The third is the
    one that is kept.
    """
    yield [], options, draft
    if draft is not None:
        yield [], options, None
    for flags, changed in _smaller(options):
        if flags:
            yield flags, changed, None


def _smaller(options: EngineOptions) -> Iterator[tuple[list[str], EngineOptions]]:
    """Yield options with which one model takes less, and their flags."""
    sizes: list[tuple[list[str], EngineOptions]] = [([], options)]
    if options.quantize == "none":
        # What kernels of every device read: FP8 takes as much as int8, and errs more.
        for name in (one for one in QUANTIZATIONS if FORMATS[one].packing is not None):
            changed = replace(options, quantize=name, dtype="auto")
            sizes.append(([f"--quantize {name}"], changed))
    for flags, changed in sizes:
        yield flags, changed
        if options.kv_dtype not in ("int8", "fp8"):
            yield [*flags, "--kv-dtype int8"], replace(changed, kv_dtype="int8")


def _reductions(options: EngineOptions, plan: Plan) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield flags, and the changes that they are, with which steps and requests take less."""
    if plan.num_host_blocks:
        yield "--preemption recompute", {"preemption": "recompute"}
    now = {"max_model_len": plan.context}
    for name, value in _SMALL.items():
        if value < now.get(name, getattr(options, name)):
            yield f"--{name.replace('_', '-')} {value}", {name: value}


def _alone(options: EngineOptions, plan: Plan) -> Iterator[_Candidate]:
    if plan.num_host_blocks and plan.room is not None:
        # Half of what the rest leaves, so that the cache has as much.
        of_host = plan.swap_bytes + plan.num_host_blocks * BLOCK_BOOK_BYTES
        left = plan.room - (plan.total_bytes - of_host - plan.cache_bytes)
        space = left * 50 // GIB / 100
        if space > 0:
            yield [f"--swap-space {space:g}"], replace(options, swap_space=space), None
    for flag, changes in _reductions(options, plan):
        yield [flag], replace(options, **changes), None


def _all_together(options: EngineOptions, plan: Plan) -> Iterator[_Candidate]:
    """Yield all reductions beside smaller weights, a smaller cache, or both."""
    for flags, changed in _smaller(options):
        added, reduced, _ = _together(changed, plan)
        yield [*flags, *added], reduced, None


def _together(options: EngineOptions, plan: Plan) -> _Candidate:
    flags = []
    for flag, changes in _reductions(options, plan):
        flags.append(flag)
        options = replace(options, **changes)
    return flags, options, None


def _others(options: EngineOptions, plan: Plan) -> int:
    """Return what a bound leaves to other processes."""
    if options.memory_bytes is None or plan.room is None:
        return 0
    return max(0, options.memory_bytes - plan.room)


def _line(name: str, count: int) -> str:
    return f"{name:<{_COLUMN}}{readable_size(count):>10}"
