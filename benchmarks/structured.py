"""What do shapes cost, those who ask for them and those beside them? Prints a table.

    python benchmarks/structured.py FOLDER [--streams N] [--hostile N] [--first N] [--at-once N]
        [--threads N]

FOLDER has config.json and tokenizer.json of a model, such as Qwen3-0.6B; weights are random, int4.
The engine is in a process of its own, as behind a server. Measured are

- the gaps between the tokens of plain streams: alone, while the first shape of all has the
  tokenizer read, beside requests without a shape that come one after the other, and beside hostile
  shapes (tests/engine/sampling/hostile_shapes.py) that do,
- how long each of those takes until it is refused or begins,
- the time to the first token of one request: without a shape, with a schema of 2 KB that is new,
  and with one that is known,
- tokens a second of many streams, with one schema and without.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import statistics
import sys
import time
from contextlib import aclosing
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from inferno.client.process import ProcessClient
from inferno.errors import InvalidRequest, Overloaded
from inferno.options import EngineOptions
from inferno.requests import Request, SamplingParams
from inferno.structured import StructuredOutput
from tests.engine.sampling.hostile_shapes import shapes

EOS = 151645
_NUMBERS = itertools.count()


def request(shape: StructuredOutput | None, max_tokens: int, num_prompt: int = 32) -> Request:
    number = next(_NUMBERS)
    params = SamplingParams(
        max_tokens=max_tokens, seed=number, structured=shape, ignore_eos=shape is None
    )
    prompt = tuple(1000 + (number * 37 + i * 11) % 9000 for i in range(num_prompt))
    return Request(
        request_id=f"r{number}",
        prompt_token_ids=prompt,
        params=params,
        eos_token_ids=frozenset({EOS}),
    )


def schema_of_2_kb(number: int) -> StructuredOutput:
    """Return a schema of an order, as a program might send it; each number's is another."""
    text = {"type": "string", "maxLength": 40}
    item = {
        "type": "object",
        "properties": {
            f"name_{number}": text,
            "kind": {"enum": ["book", "film", "game", "tool"]},
            "price": {"type": "number", "minimum": 0},
            "count": {"type": "integer", "minimum": 1, "maximum": 99},
            "tags": {"type": "array", "items": text, "maxItems": 5},
        },
        "required": [f"name_{number}", "kind", "price", "count"],
        "additionalProperties": False,
    }
    schema: dict[str, Any] = {
        "type": "object",
        "properties": {"items": {"type": "array", "items": item, "minItems": 1, "maxItems": 9}},
        "required": ["items"],
        "additionalProperties": False,
    }
    while len(json.dumps(schema)) < 2048:
        name = f"field_{len(schema['properties'])}"
        schema["properties"][name] = {"anyOf": [text, {"type": "integer"}, {"type": "null"}]}
        schema["required"].append(name)
    return StructuredOutput(json=schema)


async def first_token(client: ProcessClient, shape: StructuredOutput | None) -> float:
    """Return the seconds to the first token of a request, which is then left."""
    began = time.perf_counter()
    async with aclosing(client.generate(request(shape, 200))) as events:
        await anext(events)
        return time.perf_counter() - began


async def outcome(client: ProcessClient, shape: StructuredOutput) -> tuple[float, str]:
    """Return the seconds until a shape's answer begins or is refused, and which of both."""
    began = time.perf_counter()
    try:
        await first_token(client, shape)
        said = "begun"
    except InvalidRequest as problem:
        said = "stopped" if "to compile it takes" in str(problem) else "refused"
    except Overloaded:
        said = "busy"
    return time.perf_counter() - began, said


class Streams:
    """Plain streams, and the gaps between their tokens."""

    def __init__(self, client: ProcessClient, count: int) -> None:
        self.gaps: list[float] = []
        self._tasks = [asyncio.create_task(self._read(client)) for _ in range(count)]

    async def _read(self, client: ProcessClient) -> None:
        while True:
            last = 0.0
            async with aclosing(client.generate(request(None, 1000))) as events:
                async for event in events:
                    now = time.perf_counter()
                    if event.token_ids and last:
                        self.gaps.append(now - last)
                    last = now

    def take(self) -> str:
        """Return the gaps since the last call, in words."""
        gaps, self.gaps = sorted(self.gaps), []
        at = {name: gaps[int(part * len(gaps))] for name, part in (("p50", 0.5), ("p99", 0.99))}
        at["longest"] = gaps[-1]
        return ", ".join(f"{name} {value * 1e3:.0f} ms" for name, value in at.items())

    async def end(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


async def speed(client: ProcessClient, shape: StructuredOutput | None, count: int) -> float:
    """Return the tokens a second of so many requests at once."""

    async def read() -> int:
        events = client.generate(request(shape, 160))
        return sum([len(event.token_ids) async for event in events])

    began = time.perf_counter()
    num_tokens = sum(await asyncio.gather(*(read() for _ in range(count))))
    return num_tokens / (time.perf_counter() - began)


def own_bytes(pid: int) -> int:
    """Return a process's resident bytes but for large mappings: weights and the cache.

    The cache's pages are made ready bit by bit, which is no growth that a shape has caused.
    """
    total = size = 0
    name = ""
    for line in Path(f"/proc/{pid}/smaps").read_text().splitlines():
        first, *rest = line.split()
        if "-" in first and not first.endswith(":"):
            begin, end = (int(each, 16) for each in first.split("-"))
            size, name = end - begin, rest[-1]
        elif first == "Rss:" and (size < 64 << 20 or name == "[heap]"):
            total += int(rest[0]) << 10
    return total


async def measure(arguments: argparse.Namespace) -> None:
    numbers = range(arguments.first, arguments.first + arguments.hostile)
    # Made before anything is measured, as it takes a second.
    hostile = iter(list(enumerate(shapes(numbers.stop)))[numbers.start :])
    options = EngineOptions(
        model=arguments.folder,
        load_format="dummy",
        quantize="int4",
        threads=arguments.threads,
        num_blocks=640,
        max_model_len=2048,
    )
    client = ProcessClient(options)
    await client.wait_ready()
    await speed(client, None, 4)  # first steps are slow
    streams = Streams(client, 2)
    await asyncio.sleep(arguments.seconds)
    print(f"2 plain streams alone: gaps {streams.take()}", flush=True)
    assert client.pid is not None
    before = own_bytes(client.pid)
    seconds = await first_token(client, StructuredOutput(choice=("yes", "no")))
    await asyncio.sleep(1)
    grown = (own_bytes(client.pid) - before) / 2**20
    print(f"while the first shape is served: gaps {streams.take()}")
    print(f"  its first token after {seconds:.2f} s; the engine grows by {grown:.0f} MB")
    known = schema_of_2_kb(0)
    beside = [await first_token(client, schema_of_2_kb(i)) for i in range(9)]
    print(f"new schemas of 2 KB beside them: first token {statistics.median(beside) * 1e3:.0f} ms")
    streams.take()
    others = iter(range(arguments.hostile))

    async def ask_plainly() -> None:
        for _ in others:
            await first_token(client, None)

    await asyncio.gather(*(ask_plainly() for _ in range(arguments.at_once)))
    print(f"beside {arguments.hostile} requests without a shape: gaps {streams.take()}", flush=True)
    ends: list[tuple[float, str]] = []
    slowest: list[tuple[float, int, str]] = []
    before = client.stats().rss_bytes

    async def ask() -> None:
        for number, shape in hostile:
            seconds, said = await outcome(client, shape)
            ends.append((seconds, said))
            slowest.append((seconds, number, said))

    await asyncio.gather(*(ask() for _ in range(arguments.at_once)))
    grown = (client.stats().rss_bytes - before) / 2**20
    asked = f"{arguments.hostile} hostile shapes, {arguments.at_once} at a time"
    print(f"beside {asked}: gaps {streams.take()}")
    for said in ("begun", "refused", "stopped", "busy"):
        if times := sorted(each for each, how in ends if how == said):
            print(
                f"  {said}: {len(times)}, p50 {times[len(times) // 2]:.2f} s, max {times[-1]:.2f} s"
            )
    for seconds, number, said in sorted(slowest, reverse=True)[:8]:
        print(f"  of the slowest, number {number} was {said} after {seconds:.2f} s")
    print(f"  the engine has grown by {grown:.0f} MB", flush=True)
    if arguments.streams == 0:
        await streams.end()
        await client.close()
        return
    await streams.end()
    await asyncio.sleep(0.5)
    rounds = [
        (
            await first_token(client, None),
            await first_token(client, schema_of_2_kb(100 + i)),
            await first_token(client, known),
        )
        for i in range(15)
    ]
    plain, new, again = (statistics.median(times) * 1e3 for times in zip(*rounds, strict=True))
    print(
        f"first token: plain {plain:.0f} ms, new schema {new:.0f} ms, known schema {again:.0f} ms"
    )
    for _ in range(3):
        free = await speed(client, None, arguments.streams)
        bound = await speed(client, known, arguments.streams)
        print(
            f"{arguments.streams} streams: {free:.0f} tokens/s without a shape, "
            f"{bound:.0f} with one schema ({bound / free:.0%})"
        )
    await client.close()


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--streams", type=int, default=32, help="0: none, the end.")
    parser.add_argument("--hostile", type=int, default=500)
    parser.add_argument("--at-once", type=int, default=2, help="Hostile shapes at a time.")
    parser.add_argument("--first", type=int, default=0, help="Number of the first hostile shape.")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=5.0)
    asyncio.run(measure(parser.parse_args()))


if __name__ == "__main__":
    main()
