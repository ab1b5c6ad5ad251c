"""What does serving cost, and what does a server stand? Prints a table of figures and their bars.

    python benchmarks/server_load.py [MEASURE...] [--model FOLDER --load-format dummy ...]

Measures are cost, latency, throughput, health, idle, startup, endurance and overload; all but the
last two by default. The server is `inferno serve` with its engine's process, asked by this process
over the loopback. Offline runs are by an engine in this process, in turn with the server's.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator

from server_endurance import endurance, overload
from server_figures import Figure, Subject
from server_speed import cost, health, idle, latency, startup, throughput

MEASURES: dict[str, Callable[[Subject], Iterator[Figure]]] = {
    "cost": cost,
    "latency": latency,
    "throughput": throughput,
    "health": health,
    "idle": idle,
    "startup": startup,
    "endurance": endurance,
    "overload": overload,
}
_LONG = ("endurance", "overload")


def main() -> None:
    """Measure, and print each figure as it is found."""
    arguments = _arguments()
    subject = Subject(
        model=arguments.model,
        load_format=arguments.load_format,
        quantize=arguments.quantize,
        threads=arguments.threads,
        num_blocks=arguments.num_blocks,
        num_streams=arguments.streams,
        num_prompt_tokens=arguments.prompt_tokens,
        num_tokens=arguments.tokens,
        num_rounds=arguments.rounds,
        num_requests=arguments.requests,
    )
    names = arguments.measures or [name for name in MEASURES if name not in _LONG]
    for name in names:
        for figure in MEASURES[name](subject):
            print(figure.line(name), flush=True)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("measures", nargs="*", metavar="MEASURE", help=", ".join(MEASURES))
    parser.add_argument("--model", default="demo")
    parser.add_argument("--load-format", default="safetensors")
    parser.add_argument("--quantize", default="none")
    parser.add_argument("--threads", type=int, help="of the engine")
    parser.add_argument("--num-blocks", type=int, default=2048, help="of 16 tokens each")
    parser.add_argument("--streams", type=int, default=32, help="at a time")
    parser.add_argument("--prompt-tokens", type=int, default=32)
    parser.add_argument("--tokens", type=int, default=128, help="of each stream")
    parser.add_argument("--rounds", type=int, default=5, help="of which the median is told")
    parser.add_argument("--requests", type=int, default=20_000, help="of endurance")
    arguments = parser.parse_args()
    if unknown := set(arguments.measures) - set(MEASURES):
        parser.error(f"no measure: {', '.join(unknown)}; there are {', '.join(MEASURES)}")
    return arguments


if __name__ == "__main__":
    main()
