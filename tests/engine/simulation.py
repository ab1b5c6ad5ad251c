"""A device made of a dictionary, an oracle without a scheduler, and a checker of invariants.

The device stores at each slot what a real one's keys and values depend on: the group of layers, the
salt, and every token up to that position. It reads through the block tables, like attention, and
its next token is a pure function of what it read.
"""

from __future__ import annotations

import hashlib
import struct
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import pairwise

from inferno.engine.execution.known_sequences import KnownSequence, KnownSequences
from inferno.engine.kv.block_manager import BlockManager
from inferno.engine.scheduling.scheduler import Scheduler
from inferno.engine.scheduling.sequence import SequenceState, Status
from inferno.engine.scheduling.speculation import Proposer, Speculation
from inferno.engine.step_plan import DrawnTokens, ScheduledChunk, StepPlan, StepResult
from inferno.requests import FinishReason, Request, SamplingParams, TokenEvent, TokenLogprobs
from tests.engine.wire import over_the_wire

EOS = 0
VOCABULARY = 5

Windows = tuple[int | None, ...]
Slot = tuple[int, int]  # block, offset
SequenceKey = tuple[str, int]


@dataclass(frozen=True)
class Content:
    """What a slot holds: the KV of the last of these tokens, in one group's layers."""

    group: int
    owner: str
    tokens: tuple[int, ...]


def next_token(sequence_index: int, views: Iterable[Sequence[int]]) -> int:
    """The fake model: a token from all that each group's layers see."""
    seen = (sequence_index, *(tuple(view) for view in views))
    return zlib.crc32(repr(seen).encode()) % VOCABULARY


def first_visible(window: int | None, position: int) -> int:
    return 0 if window is None else max(0, position - window + 1)


@dataclass
class Device:
    """Runs plans in order, of which it gets the bytes; it appends what it draws to what it knows.

    salts       by request, of those that have one: plans don't tell, for no executor needs them.
    """

    block_size: int
    windows: Windows
    shares_between_requests: bool = True
    slots: dict[Slot, Content] = field(default_factory=dict)
    salts: dict[str, str] = field(default_factory=dict)
    sequences: KnownSequences = field(default_factory=KnownSequences)
    written: dict[ScheduledChunk, list[Slot]] = field(default_factory=dict)  # by the last plan
    host: dict[Slot, Content] = field(default_factory=dict)
    num_copied: Counter[str] = field(default_factory=Counter)

    def run(self, plan: StepPlan) -> Sequence[StepResult]:
        plan = over_the_wire(plan)
        chunks, sequences = self.sequences.follow(plan)
        self._copy(plan)
        parts = list(zip(chunks, sequences, strict=True))
        self.written = {chunk: self._write(chunk, sequence) for chunk, sequence in parts}
        written = [slot for slots in self.written.values() for slot in slots]
        assert len(written) == len(set(written)), "two chunks write to the same slot"
        results = [self._result(chunk, sequence) for chunk, sequence in parts]
        if plan.next is None:
            return results
        return DrawnTokens([token_id for result in results for token_id in result.token_ids])

    def spoil(self, chunk: ScheduledChunk) -> None:
        """Leave what a failed step leaves behind; it must be the last one."""
        for slot in self.written[chunk]:
            del self.slots[slot]

    def _copy(self, plan: StepPlan) -> None:
        self.num_copied += Counter(out=len(plan.copies.out), back=len(plan.copies.back))
        for pairs, source, target in (
            (plan.copies.out, self.slots, self.host),
            (plan.copies.back, self.host, self.slots),
        ):
            assert len({to for _, to in pairs}) == len(pairs), "two blocks go to the same place"
            for one, other in pairs:
                for offset in range(self.block_size):
                    content = source.get((one, offset))
                    target.pop((other, offset), None)
                    if content is not None:
                        target[other, offset] = content

    def owner(self, request_id: str) -> str:
        return self.salts.get(request_id, "") if self.shares_between_requests else request_id

    def _write(self, chunk: ScheduledChunk, sequence: KnownSequence) -> list[Slot]:
        owner = self.owner(chunk.request_id)
        written = []
        for group, table in enumerate(sequence.block_tables):
            for position in range(chunk.start, chunk.start + chunk.num_tokens):
                slot = self._slot(table, position)
                tokens = tuple(_tokens(chunk, sequence)[: position + 1])
                self.slots[slot] = Content(group, owner, tokens)
                written.append(slot)
        return written

    def _slot(self, table: Sequence[int], position: int) -> Slot:
        block = table[position // self.block_size]
        assert block != 0, f"position {position} lies in the scratch block"
        return block, position % self.block_size

    def _result(self, chunk: ScheduledChunk, sequence: KnownSequence) -> StepResult:
        views = [self._read(chunk, sequence, group) for group in range(len(self.windows))]
        end = chunk.start + chunk.num_tokens
        tokens: list[int] = []
        for row in range(end - chunk.num_sampled_rows, end):
            visible = [
                view[max(0, first_visible(window, row) - first_visible(window, chunk.start)) :][
                    : row + 1 - first_visible(window, row)
                ]
                for view, window in zip(views, self.windows, strict=True)
            ]
            tokens.append(next_token(chunk.sequence_index, visible))
            if tokens != list(chunk.proposed_token_ids[: len(tokens)]):
                break
        sequence.token_ids += tokens
        logprobs = tuple(TokenLogprobs(token, -1.0, ()) for token in tokens)
        return StepResult(tuple(tokens), logprobs, self._prompt_logprobs(chunk, sequence))

    def _read(self, chunk: ScheduledChunk, sequence: KnownSequence, group: int) -> list[int]:
        """The tokens that the chunk sees, checked to be its own in every respect."""
        end = chunk.start + chunk.num_tokens
        owner = self.owner(chunk.request_id)
        view = []
        for position in range(first_visible(self.windows[group], chunk.start), end):
            found = self.slots.get(self._slot(sequence.block_tables[group], position))
            expected = Content(group, owner, tuple(_tokens(chunk, sequence)[: position + 1]))
            assert found == expected, f"{chunk.request_id} reads {found}, not {expected}"
            view.append(found.tokens[-1])
        return view

    def _prompt_logprobs(
        self, chunk: ScheduledChunk, sequence: KnownSequence
    ) -> tuple[TokenLogprobs | None, ...]:
        if not chunk.wants_prompt_logprobs:
            return ()
        entries: list[TokenLogprobs | None] = [None] if chunk.start == 0 else []
        predicted = sequence.token_ids[chunk.start + 1 : sequence.num_prompt_tokens]
        entries += [TokenLogprobs(token, -2.0, ()) for token in predicted[: chunk.num_tokens]]
        return tuple(entries)


def oracle(
    request: Request, sequence_index: int, windows: Windows, max_model_len: int
) -> tuple[list[int], FinishReason]:
    """What one sample must give, computed alone and without any cache."""
    params = request.params
    stops = set(params.stop_token_ids)
    if not params.ignore_eos:
        stops |= request.eos_token_ids
    tokens = list(request.prompt_token_ids)
    output: list[int] = []
    while len(tokens) < max_model_len and len(output) != params.max_tokens:
        views = [tokens[first_visible(window, len(tokens) - 1) :] for window in windows]
        token = next_token(sequence_index, views)
        tokens.append(token)
        output.append(token)
        if token in stops and len(output) > params.min_tokens:
            return output, FinishReason.STOP
    return output, FinishReason.LENGTH


def _tokens(chunk: ScheduledChunk, sequence: KnownSequence) -> list[int]:
    """Return the tokens of which a chunk computes some: the sequence's, and what is proposed."""
    end = chunk.start + chunk.num_tokens - len(chunk.proposed_token_ids)
    return [*sequence.token_ids[:end], *chunk.proposed_token_ids]


class StandIn:
    """What every proposer has, for those of tests, which keep nothing."""

    name = "test"
    takes_passes = False
    num_bytes = 0

    def serves(self, sequence: SequenceState) -> bool:
        return True

    def forget(self, sequence: SequenceState) -> None:
        pass

    def clear(self) -> None:
        pass


def always(proposer: Proposer | None) -> Speculation:
    """Return a speculation that computes all that a proposer proposes, whether it pays or not."""
    return Speculation() if proposer is None else Speculation([proposer], num_tokens=1000)


@dataclass
class Guesser(StandIn):
    """A proposer that is right now and then: it knows the model, and is told how long to be right.

    sizes, hits     of each proposal in turn, how many tokens, and how many of them are right.
    """

    windows: Windows
    sizes: Callable[[], int]
    hits: Callable[[], int]

    def propose(
        self, sequences: Sequence[SequenceState], most: Sequence[int]
    ) -> Sequence[Sequence[int]]:
        return [
            self._guess(sequence, min(self.sizes(), room))
            for sequence, room in zip(sequences, most, strict=True)
        ]

    def _guess(self, sequence: SequenceState, size: int) -> list[int]:
        tokens, hits = list(sequence.token_ids), self.hits()
        for place in range(size):
            views = [tokens[first_visible(window, len(tokens) - 1) :] for window in self.windows]
            right = next_token(sequence.sequence_index, views)
            tokens.append(right if place < hits else (right + 1) % VOCABULARY)
        return tokens[len(sequence.token_ids) :]


def commit(scheduler: Scheduler, plan: StepPlan, results: Sequence[StepResult]) -> list[TokenEvent]:
    """Take in what came of a plan, and return what happened."""
    scheduler.commit(plan, results)
    return scheduler.take_events()


def fail(scheduler: Scheduler, plan: StepPlan, message: str) -> list[TokenEvent]:
    """Let the step of a plan fail, and return what happened."""
    scheduler.fail(plan, message)
    return scheduler.take_events()


def chunks_of(scheduler: Scheduler, plan: StepPlan) -> Sequence[ScheduledChunk]:
    """Return the chunks of the plan that was made last, in whatever form it tells them."""
    return plan.chunks if plan.next is None else scheduler._in_flight.newest.chunks


class Clock:
    """Seconds that pass when somebody says so."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@dataclass(frozen=True)
class Prices:
    """What steps cost on a machine: a step reads all weights, or computes, whichever takes longer.

    chunk       of a row of logits and its draw; pair: of a token and a key that it sees.
    step        of any step, whatever it computes.
    """

    weights: float
    token: float
    chunk: float
    pair: float
    step: float = 0.0

    def seconds(self, chunks: Sequence[ScheduledChunk]) -> float:
        num_tokens = sum(chunk.num_tokens for chunk in chunks)
        num_pairs = sum(
            chunk.num_tokens * chunk.start + chunk.num_tokens * (chunk.num_tokens + 1) / 2
            for chunk in chunks
        )
        num_rows = sum(chunk.wants_token for chunk in chunks)
        compute = max(self.weights, num_tokens * self.token)
        return self.step + compute + num_rows * self.chunk + num_pairs * self.pair

    def seconds_of_prompt(self, num_tokens: int) -> float:
        """Of a step with so many tokens at a prompt's beginning."""
        compute = max(self.weights, num_tokens * self.token)
        return self.step + compute + num_tokens**2 / 2 * self.pair


@dataclass
class TimedEngine:
    """Runs a scheduler against a clock; tokens are all the same, and come when their step ends."""

    scheduler: Scheduler
    clock: Clock
    prices: Prices
    arrivals: dict[str, float] = field(default_factory=dict)
    prompt_lengths: dict[str, int] = field(default_factory=dict)
    tokens_at: dict[str, list[float]] = field(default_factory=dict)
    num_prompt_tokens: int = 0

    def add(self, request_id: str, num_tokens: int, max_tokens: int = 1, priority: int = 0) -> None:
        """Add a request whose prompt is like no other's."""
        prompt = [1 + len(self.arrivals), *[0] * (num_tokens - 1)]
        self.arrivals[request_id] = self.clock()
        self.prompt_lengths[request_id] = num_tokens
        self.tokens_at[request_id] = []
        self.scheduler.add(
            make_request(
                request_id, prompt, max_tokens=max_tokens, ignore_eos=True, priority=priority
            )
        )

    def step(self) -> StepPlan:
        """Run a step, let its time pass, and teach the scheduler."""
        plan = self.scheduler.plan()
        chunks = chunks_of(self.scheduler, plan)
        seconds = self.prices.seconds(chunks)
        self.clock.now += seconds
        self.scheduler.costs.observe(plan.work, seconds)
        for chunk in chunks:
            num_left = self.prompt_lengths[chunk.request_id] - chunk.start
            self.num_prompt_tokens += max(0, min(num_left, chunk.num_tokens))
        results = [StepResult((1,) if chunk.wants_token else ()) for chunk in chunks]
        for event in commit(self.scheduler, plan, results):
            self.tokens_at[event.request_id] += [self.clock()] * len(event.token_ids)
        return plan

    def first_token(self, request_id: str) -> float:
        """Seconds from a request's arrival to its first token, stepping until it comes."""
        while not self.tokens_at[request_id]:
            self.step()
        return self.tokens_at[request_id][0] - self.arrivals[request_id]

    def gaps(self, request_id: str) -> list[float]:
        """Seconds between a stream's tokens."""
        times = self.tokens_at[request_id]
        return [later - earlier for earlier, later in pairwise(times)]


class Ledger:
    """Everything that the events told, put together by sample."""

    def __init__(self) -> None:
        self.tokens: dict[SequenceKey, list[int]] = {}
        self.endings: dict[SequenceKey, TokenEvent] = {}
        self.first_events: dict[SequenceKey, TokenEvent] = {}

    def note(self, events: Iterable[TokenEvent]) -> None:
        for event in events:
            sample = (event.request_id, event.sequence_index)
            assert sample not in self.endings, f"news of {sample} after its end"
            assert event.token_ids or event.finish_reason, "an event without news"
            assert len(event.logprobs) in (0, len(event.token_ids))  # none of DrawnTokens
            if event.token_ids:
                self.first_events.setdefault(sample, event)
            self.tokens.setdefault(sample, []).extend(event.token_ids)
            if event.finish_reason is not None:
                self.endings[sample] = event


def run_all(scheduler: Scheduler, device: Device, max_steps: int = 10_000) -> Ledger:
    """Step until nothing is left to do, checking on the way."""
    ledger = Ledger()
    for _ in range(max_steps):
        if not scheduler.has_work:
            return ledger
        plan = scheduler.plan()
        check_invariants(scheduler, device)
        ledger.note(commit(scheduler, plan, device.run(plan)))
        check_invariants(scheduler, device)
        check_known(scheduler, device)
    raise AssertionError(f"still at work after {max_steps} steps")


def make_request(
    request_id: str,
    prompt: Sequence[int],
    *,
    priority: int = 0,
    cache_salt: str = "",
    reads_prefix_cache: bool = True,
    **params: object,
) -> Request:
    return Request(
        request_id=request_id,
        prompt_token_ids=tuple(prompt),
        params=SamplingParams(**{"seed": 0, **params}),  # type: ignore[arg-type]
        eos_token_ids=frozenset({EOS}),
        priority=priority,
        cache_salt=cache_salt,
        reads_prefix_cache=reads_prefix_cache,
    )


def check_invariants(scheduler: Scheduler, device: Device) -> None:
    """Everything that holds between any two operations, worked out from the tables anew."""
    blocks: BlockManager = scheduler._blocks
    check_accounts(blocks, scheduler._running)
    check_sharing(scheduler._running, blocks)
    check_cache(blocks, device)
    check_offload(scheduler, device)
    check_queues(scheduler)


def check_accounts(blocks: BlockManager, running: Sequence[SequenceState]) -> None:
    pool = blocks.pool
    held = Counter(
        block for sample in running for table in sample.tables.groups for block in table if block
    )
    free, idle = list(pool._free), list(pool._idle)
    assert sorted([*free, *idle, *held]) == list(range(1, pool.num_blocks + 1))
    assert all(pool._ref_counts[block] == held[block] for block in range(1, pool.num_blocks + 1))
    assert not set(free) & set(pool._keys), "a free block can't be cached"
    assert set(idle) <= set(pool._keys), "an idle block is cached"
    assert {block: key for key, block in pool._cached.items()} == pool._keys
    assert pool.num_available == len(free) + len(idle)


def check_sharing(running: Sequence[SequenceState], blocks: BlockManager) -> None:
    """A block in two tables is full in both, and holds the same tokens of the same group."""
    keys = blocks.pool._keys
    uses: dict[int, tuple[int, int, bytes]] = {}
    for sample in running:
        for group, table in enumerate(sample.tables.groups):
            for index, block in enumerate(table):
                # Of restored tables no block is committed yet, but the cache has some.
                digest = sample.tables.digests[index : index + 1]
                is_found = bool(digest) and keys.get(block) == (group, digest[0])
                if block in uses:
                    is_full = is_found or index < sample.tables.num_committed
                    assert is_full, "a partial block is shared"
                    assert uses[block] == (group, index, sample.tables.digests[index])
                elif block and (is_found or index < sample.tables.num_committed):
                    uses[block] = (group, index, sample.tables.digests[index])
                elif block:
                    uses[block] = (group, index, b"not to be shared")


def check_offload(scheduler: Scheduler, device: Device) -> None:
    """What preempted sequences keep is theirs, on the host or still on the device."""
    offload, blocks = scheduler.offload, scheduler._blocks
    keeping = [
        (sample, sample.offloaded)
        for sample in [*scheduler._running, *scheduler._waiting]
        if sample.offloaded is not None
    ]
    held = Counter(host for _, kept in keeping for group in kept.groups for host in group)
    assert sorted([*offload._free, *held]) == list(range(offload.num_host_blocks))
    assert all(count == held[host] for host, count in enumerate(offload._ref_counts))
    assert {key: host for host, key in offload._keys.items()} == offload._by_key
    assert set(offload._keys) | offload._filled | set(offload._due) <= set(held)
    for sample, kept in keeping:
        owner = device.owner(sample.request.request_id)
        entries_of_groups = blocks.visible_entries(kept.num_tokens)
        for group, entries in enumerate(entries_of_groups):
            for index, host in zip(entries, kept.groups[group], strict=True):
                place: tuple[dict[Slot, Content], int | None] = device.host, host
                if host not in offload._filled:
                    place = device.slots, blocks.pool.find(offload._keys[host])
                elif host in offload._due:
                    place = device.slots, offload._due[host]
                slots, block = place
                assert block is not None, "what nobody copied is still to be found"
                first = index * blocks.block_size
                # Of tokens in flight nothing is known yet.
                known = min(kept.num_tokens, len(sample.token_ids))
                for position in range(first, min(first + blocks.block_size, known)):
                    expected = Content(group, owner, tuple(sample.token_ids[: position + 1]))
                    assert slots[block, position - first] == expected


def check_cache(blocks: BlockManager, device: Device) -> None:
    """What is cached was computed, and its key says from which tokens."""
    size = blocks.block_size
    for block, (group, digest) in blocks.pool._keys.items():
        contents = [device.slots[block, offset] for offset in range(size)]
        last = contents[-1]
        assert last.group == group
        assert len(last.tokens) % size == 0
        for content, missing in zip(contents, reversed(range(size)), strict=True):
            assert content.group == group
            assert content.owner == last.owner
            assert content.tokens == last.tokens[: len(last.tokens) - missing]
        if device.shares_between_requests:
            assert digest == chained_digest(last.owner, last.tokens, size)


@cache
def chained_digest(salt: str, tokens: tuple[int, ...], block_size: int) -> bytes:
    digest = hashlib.sha256(salt.encode()).digest()
    for start in range(0, len(tokens), block_size):
        packed = struct.pack(f"<{block_size}I", *tokens[start : start + block_size])
        digest = hashlib.sha256(digest + packed).digest()
    return digest


def check_queues(scheduler: Scheduler) -> None:
    running, waiting = scheduler._running, scheduler._waiting
    assert len(running) <= scheduler._limits.max_num_seqs
    assert all(sample.status is Status.RUNNING for sample in running)
    assert all(sample.status in (Status.WAITING, Status.PREEMPTED) for sample in waiting)
    assert running == sorted(running, key=lambda sample: sample.rank)
    assert waiting == sorted(waiting, key=lambda sample: sample.rank)
    unfinished = [
        sample
        for samples in scheduler._requests.values()
        for sample in samples
        if sample.status is not Status.FINISHED
    ]
    assert {id(s) for s in unfinished} == {id(s) for s in [*running, *waiting]}
    promised = {digest for sample in unfinished for digest in sample.claimed}
    assert scheduler._prompts.claimed <= promised, "a promise that nobody keeps"
    streams = [each for each in running if each.is_stream and not each.num_in_flight]
    assert not any(sample.claimed for sample in [*waiting, *streams])
    for sample in unfinished:
        assert 0 <= sample.num_computed_tokens <= len(sample.token_ids) <= sample.max_length
        assert sample.num_computed_tokens <= sample.num_planned_tokens
        if not sample.num_in_flight:
            assert sample.num_planned_tokens == sample.num_computed_tokens
            assert (sample.num_pending_tokens, sample.has_proposals) == (0, False)
    for sample in waiting:
        held = (sample.num_computed_tokens, sample.num_planned_tokens, sample.tables.num_held)
        assert held == (0, 0, 0)


def check_known(scheduler: Scheduler, device: Device) -> None:
    """Who the device knows has a place or will be called gone, or else the next plan tells all."""
    known = [each for each in scheduler._running if each.known_epoch == scheduler._epoch]
    if device.sequences._epoch != scheduler._epoch:
        assert not known
        assert not scheduler._gone
        return
    expected = [*scheduler._gone, *(sample.sequence_id for sample in known)]
    assert sorted(device.sequences.ids) == sorted(expected)
