"""Play an engine by a script, without weights, so that a server's tests choose words and faults."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncGenerator, Iterator
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from inferno.client import EngineFacts, EngineState, EngineStats, Recovery
from inferno.client.stream import EventStream
from inferno.errors import EngineDied, InvalidRequest, ModelError, NeverFits
from inferno.json_file import read_json
from inferno.requests import MAX_TOKEN_ID, FinishReason, Request, TokenEvent, TokenLogprobs

LOGPROB = -0.5  # of every token, where log-probabilities are asked for

Seconds = Annotated[float, Meta(ge=0, le=3600)]
Count = Annotated[int, Meta(ge=0, le=MAX_TOKEN_ID)]
Positive = Annotated[int, Meta(ge=1, le=MAX_TOKEN_ID)]


class Answer(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The scripted answer to one request: its tokens, their delays, and how it fails.

    token_ids       the output; None repeats the prompt. The request's own max_tokens, stop tokens
                    and eos tokens end it sooner.
    is_endless      the tokens begin again when they are used up; else the end is a `stop`.
    first_delay     seconds before the first token; delay: before each other one.
    num_cached_tokens   prompt tokens that are said to come from the prefix cache.
    refusal         a sentence: the request is refused, on account of `param`; never_fits refuses
                    it as too large.
    error_after     after so many tokens the request ends with finish reason `error`.
    dies_after      after so many tokens the engine dies, and is back after Script.restart_seconds.
    """

    token_ids: Annotated[tuple[Count, ...], Meta(min_length=1)] | None = None
    is_endless: bool = False
    first_delay: Seconds = 0.0
    delay: Seconds = 0.0
    num_cached_tokens: Count = 0
    refusal: str | None = None
    param: str | None = None
    never_fits: bool = False
    error_after: Count | None = None
    dies_after: Count | None = None


class Script(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A script: the i-th request gets the i-th answer, later ones the last; without any, an echo.

    load_error      a sentence: the engine can't be loaded.
    """

    answers: Annotated[tuple[Answer, ...], Meta(min_length=1)] = (Answer(),)
    vocab_size: Positive = MAX_TOKEN_ID
    max_model_len: Positive = 4096
    max_num_seqs: Positive = 64
    load_seconds: Seconds = 0.0
    load_error: str | None = None
    restart_seconds: Seconds = 0.5


def load_script(path: Path) -> Script:
    """Read a script from a JSON file, whose keys are the fields; ModelError for a bad file."""
    try:
        return msgspec.convert(read_json(path, error=ModelError), Script)
    except msgspec.ValidationError as problem:
        raise ModelError(f"{path} is no script: {problem}; correct it") from None


class ScriptedClient:
    """A ServedEngine that plays a script."""

    def __init__(self, script: Script | None = None) -> None:
        self._script = script or Script()
        self._state = EngineState.LOADING
        self._problem: str | None = None
        self._facts: EngineFacts | None = None
        self._answers = _in_turn(self._script.answers)
        self._streams: dict[str, EventStream] = {}
        self._players: dict[tuple[str, int], asyncio.Task[None]] = {}
        self._loading: asyncio.Task[None] | None = None
        self._revives_at = 0.0  # by the event loop's clock
        self._num_tokens = self._num_prompt_tokens = self._num_cached = self._num_deaths = 0

    @property
    def state(self) -> EngineState:
        return self._state

    @property
    def problem(self) -> str | None:
        return self._problem

    @property
    def recovery(self) -> Recovery | None:
        if self._state is not EngineState.RESTARTING:
            return None
        left = self._revives_at - asyncio.get_running_loop().time()
        return Recovery(self._num_deaths, max(0.0, left))

    @property
    def facts(self) -> EngineFacts | None:
        return self._facts

    @property
    def progress(self) -> float:
        return float(self._facts is not None)

    @property
    def stage(self) -> str:
        return "weights"

    @property
    def vocab_size(self) -> int:
        return self._known().vocab_size

    @property
    def max_model_len(self) -> int:
        return self._known().max_model_len

    def stats(self) -> EngineStats:
        """Return statistics of the scripted answers; each sequence counts as one block."""
        running = len(self._players)
        return EngineStats(
            steps=self._num_tokens,
            prompt_tokens=self._num_prompt_tokens,
            cached_tokens=self._num_cached,
            generated_tokens=self._num_tokens,
            restarts=self._num_deaths,
            running=running,
            blocks_free=max(0, self._script.max_num_seqs - running),
            blocks_used=running,
            batch_size=running,
            device_bytes={"weights": 0, "kv_cache": 0},
        )

    async def start(self) -> None:
        if self._loading is None:
            self._loading = asyncio.create_task(self._load())

    async def wait_ready(self) -> None:
        await self.start()
        assert self._loading is not None
        await asyncio.shield(self._loading)
        self._check_ready()

    async def generate(self, request: Request) -> AsyncGenerator[TokenEvent, None]:
        """Yield the next answer's events."""
        self._check_ready()
        answer = next(self._answers)
        self._refuse(request, answer)
        stream = self._streams[request.request_id] = EventStream(request)
        self._num_prompt_tokens += len(request.prompt_token_ids)
        for index in range(request.params.n):
            task = asyncio.create_task(self._play(request, index, answer, stream))
            self._players[request.request_id, index] = task
        try:
            async for event in stream.read():
                yield event
        finally:
            del self._streams[request.request_id]
            for index in range(request.params.n):
                self._stop(request.request_id, index)

    def abort(self, request_id: str, sequence_index: int) -> None:
        stream = self._streams.get(request_id)
        if stream is not None and self._stop(request_id, sequence_index):
            stream.put(_aborted(request_id, sequence_index))

    async def close(self) -> None:
        self._state = EngineState.CLOSED
        if self._loading is not None:
            self._loading.cancel()
        for request_id, index in list(self._players):
            self.abort(request_id, index)

    def _known(self) -> EngineFacts:
        if self._facts is None:
            raise EngineDied("the engine is not loaded yet; try again soon")
        return self._facts

    def _check_ready(self) -> None:
        if self._state is EngineState.FAILED:
            raise ModelError(self._problem)
        if self._state is not EngineState.READY:
            raise EngineDied(f"the engine is {self._state}; try again soon")

    def _refuse(self, request: Request, answer: Answer) -> None:
        if answer.refusal is not None:
            kind = NeverFits if answer.never_fits else InvalidRequest
            raise kind(answer.refusal, param=answer.param)
        if len(request.prompt_token_ids) >= self._script.max_model_len:
            raise NeverFits(
                f"the prompt has {len(request.prompt_token_ids)} tokens, the context "
                f"{self._script.max_model_len}",
                param="prompt",
            )
        if request.request_id in self._streams:
            raise InvalidRequest(f"{request.request_id} is in use", param="request_id")

    async def _load(self) -> None:
        await asyncio.sleep(self._script.load_seconds)
        if self._script.load_error is not None:
            self._state, self._problem = EngineState.FAILED, self._script.load_error
            return
        self._state, self._facts = EngineState.READY, _facts(self._script)

    async def _play(
        self, request: Request, index: int, answer: Answer, stream: EventStream
    ) -> None:
        room = self._script.max_model_len - len(request.prompt_token_ids)
        if request.params.max_tokens is not None:
            room = min(room, request.params.max_tokens)
        for number, event in enumerate(_events(request, index, answer, room)):
            await asyncio.sleep(answer.delay if number else answer.first_delay)
            if number == answer.dies_after:
                self._die()
                return
            self._num_tokens += len(event.token_ids)
            if event.finish_reason is not None:
                self._players.pop((request.request_id, index), None)
                self._num_cached += event.num_cached_tokens if index == 0 else 0
            stream.put(event)

    def _stop(self, request_id: str, index: int) -> bool:
        """Return whether that sequence was still playing."""
        player = self._players.pop((request_id, index), None)
        return player is not None and player.cancel()

    def _die(self) -> None:
        self._num_deaths += 1
        self._state, self._problem = EngineState.RESTARTING, "the script says that it dies"
        for stream in self._streams.values():
            stream.fail(EngineDied("the engine died; try again"))
        me = asyncio.current_task()
        for player in self._players.values():
            if player is not me:
                player.cancel()
        self._players.clear()
        loop = asyncio.get_running_loop()
        self._revives_at = loop.time() + self._script.restart_seconds
        loop.call_at(self._revives_at, self._revive)

    def _revive(self) -> None:
        if self._state is EngineState.RESTARTING:
            self._state, self._problem = EngineState.READY, None


def _in_turn(answers: tuple[Answer, ...]) -> Iterator[Answer]:
    return itertools.chain(answers, itertools.repeat(answers[-1]))


def _facts(script: Script) -> EngineFacts:
    return EngineFacts(
        vocab_size=script.vocab_size,
        max_model_len=script.max_model_len,
        device="none",
        dtype="none",
        kv_dtype="none",
        attention="none",
        fingerprint="5c7197ed",
        weight_bytes=0,
        cache_bytes=0,
        num_blocks=script.max_num_seqs,
        block_size=script.max_model_len,
        max_num_seqs=script.max_num_seqs,
    )


def _events(request: Request, index: int, answer: Answer, room: int) -> Iterator[TokenEvent]:
    """Yield one event per token, up to what ends the sequence; `room` tokens at most."""
    params = request.params
    token_ids = request.prompt_token_ids if answer.token_ids is None else answer.token_ids
    stops = set(params.stop_token_ids) | (set() if params.ignore_eos else request.eos_token_ids)
    whole = itertools.cycle(token_ids) if answer.is_endless else token_ids
    event = TokenEvent(request.request_id, index, num_cached_tokens=answer.num_cached_tokens)
    if params.prompt_logprobs is not None and index == 0:
        entries = (_logprobs(each, params.prompt_logprobs) for each in request.prompt_token_ids[1:])
        event = event._replace(prompt_logprobs=(None, *entries))
    number = 0
    for number, token_id in enumerate(itertools.islice(whole, room), start=1):
        if number - 1 == answer.error_after:
            yield event._replace(finish_reason=FinishReason.ERROR, error="the script says so")
            return
        is_stop = token_id in stops and number > params.min_tokens
        reason = FinishReason.STOP if is_stop else FinishReason.LENGTH if number == room else None
        logprobs = () if params.logprobs is None else (_logprobs(token_id, params.logprobs),)
        stop_token_id = token_id if is_stop else None
        yield event._replace(
            token_ids=(token_id,),
            logprobs=logprobs,
            finish_reason=reason,
            stop_token_id=stop_token_id,
        )
        event = event._replace(prompt_logprobs=None)
        if reason is not None:
            return
    reason = FinishReason.LENGTH if number == room else FinishReason.STOP
    yield event._replace(finish_reason=reason)


def _logprobs(token_id: int, num_top: int) -> TokenLogprobs:
    top = tuple((token_id + i, LOGPROB - i) for i in range(num_top))
    return TokenLogprobs(token_id, LOGPROB, top)


def _aborted(request_id: str, index: int) -> TokenEvent:
    return TokenEvent(request_id, index, finish_reason=FinishReason.ABORTED)
