"""Do engines that generate at once get in each other's way? Prints tokens/s, and the ratio.

    python benchmarks/two_engines.py [MODEL] [--engines N] [--threads N] [--rounds N] [--prompts N]

Each engine generates in a thread of its own, with a model of its own. Rounds of one engine alone
and of all at once take turns, so that whatever else the machine does hits both. The ratio is the
median of the rounds' ratios.
"""

from __future__ import annotations

import argparse
import statistics
import threading
import time
from collections.abc import Sequence

from inferno import LLM, SamplingParams

_TOKENS = SamplingParams(temperature=0.0, max_tokens=300, ignore_eos=True)


def main() -> None:
    """Measure in turn, and print both and their ratio."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", nargs="?", default="demo")
    parser.add_argument("--engines", type=int, default=2)
    parser.add_argument("--threads", type=int)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--prompts", type=int, default=1, help="of each engine, together")
    options = parser.parse_args()
    llms = [LLM(options.model, threads=options.threads) for _ in range(options.engines)]
    for llm in llms:
        measure([llm], options.prompts)
    alone, together = [], []
    for round_index in range(options.rounds):
        alone.append(measure([llms[round_index % len(llms)]], options.prompts))
        together.append(measure(llms, options.prompts))
    ratios = [many / one for one, many in zip(alone, together, strict=True)]
    print(f"alone     {_summary(alone)} tokens/s")
    print(f"together  {_summary(together)} tokens/s")
    print(f"ratio     {statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})")
    for llm in llms:
        llm.close()


def measure(llms: Sequence[LLM], num_prompts: int) -> float:
    """Tokens a second of these together."""

    def generate(llm: LLM) -> None:
        llm.generate(["Once upon a time"] * num_prompts, _TOKENS)

    threads = [threading.Thread(target=generate, args=(llm,)) for llm in llms]
    start = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    num_tokens = len(llms) * num_prompts * (_TOKENS.max_tokens or 0)
    return num_tokens / (time.perf_counter() - start)


def _summary(values: Sequence[float]) -> str:
    low, high = min(values), max(values)
    return f"{statistics.median(values):7.0f} ({low:.0f} to {high:.0f})"


if __name__ == "__main__":
    main()
