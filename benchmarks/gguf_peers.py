"""How fast is inferno on this CPU beside llama.cpp and ik_llama.cpp, reading the same GGUF files?

    python benchmarks/gguf_peers.py --peer-python PYTHON --ik FOLDER [--model NAME ...]
        [--file Q4_K_M ...] [--activations bfloat16]

PYTHON has llama-cpp-python and gguf; FOLDER has ik_llama.cpp's `llama-bench` and
`llama-batched-bench` (without --ik it is left out). Models have real shapes and random weights.
llama.cpp makes the quantized files, so their tensors have the types of files in the wild.

Beside the file inferno also runs the model as its own int4 (int8 beside Q8_0), from safetensors:
then the bytes that are read a second compare its kernels. Bytes are those of the file's tensors,
and of keys and values, that a token reads. Engines take turns, round by round; ratios are medians
of the rounds' own. See cpu_peers.py for what is timed.

    python benchmarks/gguf_peers.py --start MODEL [MODEL ...]

times `inferno generate` alone: from the command to the first token, the second time and later. A
MODEL has a vocabulary, and is a GGUF file or whatever else the command takes.
"""

from __future__ import annotations

import argparse
import math
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from cpu_peers import PAUSE
from peer_shapes import CONFIGS
from peer_table import median_ratio
from peer_worker import Worker

from inferno.hub.facts import read_tensors
from inferno.machine import num_usable_cores, read_cpu
from inferno.quantization import BFLOAT16, BLOCK_FORMATS, FLOAT32

OWN = {"Q4_0": "int4", "Q4_K_M": "int4", "Q8_0": "int8"}
CONTEXT = 128
STEPS = 32  # of decoding, right after the prompts, in each round
PREFILLS = (512,)
BATCHES = (1, 8, 32)


def main() -> None:
    """Measure what is asked for, and print a table for each file."""
    arguments = _arguments()
    print(f"{read_cpu().name}, {arguments.threads} threads, {arguments.rounds} rounds")
    if arguments.start:
        print(
            "\n| model | seconds to the first token | of processors, until the end |\n|---|---|---|"
        )
        for name in arguments.start:
            measure_start(name, arguments.threads, arguments.rounds)
        return
    here = Path(__file__).parent
    for model in arguments.model:
        folder = arguments.work_dir / model
        peer = arguments.peer_python
        subprocess.run([peer, here / "peer_files.py", model, folder, "bf16"], check=True)
        source = folder / "bf16.gguf"
        subprocess.run([peer, here / "gguf_files.py", source, folder, *arguments.file], check=True)
        for name in arguments.file:
            measure(model, folder, name, arguments)


def measure(model: str, folder: Path, name: str, arguments: argparse.Namespace) -> None:
    """Print the times of one file's engines."""
    path, threads = folder / f"{name}.gguf", arguments.threads
    own, rounds = OWN[name], arguments.rounds
    with ExitStack() as stack:
        workers = {
            "inferno": Worker(sys.executable, "peer_inferno.py"),
            own: Worker(sys.executable, "peer_inferno.py"),
            "llama.cpp": Worker(arguments.peer_python, "peer_llama.py"),
        }
        batch = max(arguments.decode, default=1)
        most = max(batch * (CONTEXT + STEPS + batch), *arguments.prefill, 0)
        ours = {
            "threads": threads,
            "load_format": "safetensors",
            "context": most,
            "activations": arguments.activations,
        }
        if arguments.ik is not None:
            workers["ik"] = Worker(sys.executable, "peer_ik.py")
        for worker in workers.values():
            stack.enter_context(worker)
        workers["inferno"].ask("load", path=str(path), quantize="none", **ours)
        workers[own].ask("load", path=str(folder), quantize=own, **ours)
        workers["llama.cpp"].ask("load", path=str(path), threads=threads)
        if "ik" in workers:
            programs = str(arguments.ik)
            workers["ik"].ask("load", path=str(path), threads=threads, programs=programs)
        print(f"\n{model}, {name}\n\n| case | {' | '.join(workers)} | by | bytes/s, of {own}'s |")
        print("|" + "---|" * (len(workers) + 3))
        for tokens in arguments.prefill:
            taken = _rounds(workers, rounds, partial(_prefill, tokens=tokens))
            _print(f"prefill {tokens}", tokens, taken, "")
        for batch in arguments.decode:
            taken = _rounds(workers, rounds, partial(_decode, batch=batch))
            share = ""
            if batch == 1:
                ratio = median_ratio(taken[own], taken["inferno"])
                share = f"{ratio * _read_bytes(path) / _own_bytes(path, own):.2f}"
            _print(f"decode {batch}", batch * STEPS, taken, share)


def measure_start(model: str, threads: int, rounds: int) -> None:
    """Print the times of a model's start, once its files are in memory and its weights packed."""
    waited, used = [], []
    # An installed package's modules are compiled, and so are ours from the first start on.
    environment = os.environ | {"PYTHONDONTWRITEBYTECODE": ""}
    for number in range(rounds + 1):
        time.sleep(PAUSE)
        before, begun = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
        how = ["--prompt", "hi", "--max-tokens", "1", "--threads", str(threads)]
        command = [sys.executable, "-m", "inferno", "generate", "--model", model, *how]
        with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment) as process:
            assert process.stdout is not None
            is_there = process.stdout.read(1)
            taken = time.perf_counter() - begun
        if process.returncode or not is_there:
            sys.exit(f"{model}: `inferno generate` wrote no token")
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        if number:
            waited.append(taken)
            used.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    seconds = [
        f"{median(each):.2f} ({min(each):.2f} to {max(each):.2f})" for each in (waited, used)
    ]
    print(f"| {model} | {' | '.join(seconds)} |", flush=True)


def _prefill(worker: Worker, tokens: int) -> Any:
    return worker.ask("prefill", tokens=tokens)


def _decode(worker: Worker, batch: int) -> Any:
    worker.ask("begin", batch=batch, context=CONTEXT, steps=STEPS)
    return worker.ask("decode", steps=STEPS)


def _rounds(
    workers: dict[str, Worker], rounds: int, measure: Callable[[Worker], Any]
) -> dict[str, list[float]]:
    """Return each engine's seconds of each round, after one that warms up."""
    taken: dict[str, list[float]] = {name: [] for name in workers}
    for number in range(rounds + 1):
        for name in list(workers)[:: -1 if number % 2 else 1]:
            time.sleep(PAUSE)
            seconds = float(measure(workers[name]))
            if number:
                taken[name].append(seconds)
    return taken


def _print(case: str, num_tokens: int, taken: dict[str, list[float]], share: str) -> None:
    rates = [
        f"{num_tokens / median(seconds):.1f} ({num_tokens / max(seconds):.1f} to "
        f"{num_tokens / min(seconds):.1f})"
        for seconds in taken.values()
    ]
    peers = [name for name in ("llama.cpp", "ik") if name in taken]
    best = min(peers, key=lambda name: median(taken[name]))
    by = f"{median_ratio(taken[best], taken['inferno']):.2f} ({best})"
    print(f"| {case} | {' | '.join(rates)} | {by} | {share} |", flush=True)


def _read_bytes(path: Path) -> float:
    """Return the bytes of the file's weights that a token reads: all but a table beside a head."""
    tensors = {tensor.name: tensor for tensor in read_tensors(path)}
    has_head = "output.weight" in tensors
    return sum(
        math.prod(tensor.shape) * _format_bits(tensor.dtype) / 8
        for name, tensor in tensors.items()
        if not (has_head and name == "token_embd.weight")
    )


def _own_bytes(path: Path, own: str) -> float:
    """Return the bytes that the same model's weights take as int4 or int8, its table in int8."""
    tensors = {tensor.name: tensor for tensor in read_tensors(path)}
    has_head = "output.weight" in tensors
    total = 0.0
    for name, tensor in tensors.items():
        if has_head and name == "token_embd.weight":
            continue
        is_wide = own == "int8" or name in ("output.weight", "token_embd.weight")
        bits = 32 if len(tensor.shape) < 2 else 8.5 if is_wide else 4.5
        total += math.prod(tensor.shape) * bits / 8
    return total


def _format_bits(name: str) -> float:
    floats = {"F32": FLOAT32, "BF16": BFLOAT16}
    return floats[name].bits if name in floats else BLOCK_FORMATS[name].bits


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--peer-python", default=sys.executable, help="has llama_cpp and gguf")
    parser.add_argument("--ik", type=Path, help="the folder of ik_llama.cpp's programs")
    models = ["Qwen3-0.6B", "TinyLlama-1.1B"]
    parser.add_argument("--model", nargs="+", choices=CONFIGS, default=models)
    parser.add_argument("--file", nargs="+", choices=OWN, default=list(OWN))
    parser.add_argument("--prefill", nargs="*", type=int, default=PREFILLS, help="tokens")
    parser.add_argument("--decode", nargs="*", type=int, default=BATCHES, help="requests")
    parser.add_argument(
        "--activations", default="int8", help="inferno's: int8, or bfloat16 on a CPU with AMX"
    )
    parser.add_argument("--start", nargs="+", metavar="MODEL", help="time the start of these only")
    parser.add_argument("--threads", type=int, default=num_usable_cores())
    parser.add_argument("--rounds", type=int, default=5)
    folder = Path(tempfile.gettempdir()) / "inferno-peers"
    parser.add_argument("--work-dir", type=Path, default=folder, help=f"default: {folder}")
    return parser.parse_args()


if __name__ == "__main__":
    main()
