"""Compile kernels for chips that aren't here, and say what is wrong with the machine code.

    python -m tests.ops.cuda.compile_kernels [--chips 80 90] [--checked] [--processes 2] [--json]
        [--record FOLDER]

Triton compiles them as for a launch; what came out is told by its PTX and by `cuobjdump`, which
Triton brings. This runs in a process of its own, for tests have kernels interpreted.

All of them take long. FOLDER has a file for each version of Triton: a line for each form of which
nothing was wrong. What stands there is left out, and more is added, on this machine or another.
Whoever makes a rule stricter deletes the files.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib
import inspect
import json
import math
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from triton.runtime.jit import JITFunction, KernelInterface

from inferno.ops.cuda.chips import CHIPS, Chip
from inferno.ops.cuda.shipped import shipped_variants
from inferno.ops.cuda.variants import Variant

T = TypeVar("T")

ROOT = Path(__file__).resolve().parents[3]
CACHE = ROOT / "build" / "triton-cache"
RECORDED_DIGITS = 12  # of a form's digest: that two of some ten thousand are equal is improbable

# What tensor cores are called in PTX, by generation.
TENSOR_CORES = ("wgmma.mma_async", "tcgen05.mma", "mma.sync")


class Stack(NamedTuple):
    """The bytes of stack that a kernel may have, why, and on which chips: all where none stand."""

    num_bytes: int
    why: str
    chips: tuple[int, ...] = ()


# By patterns that names of variants begin with. A few bytes are the choice of the compiler, which
# stops at a number of registers with which one more block fits a multiprocessor.
ALLOWED_STACK: dict[str, Stack] = {
    "cos_sin": Stack(
        32, "libdevice, with Triton 3.6, reduces angles over 105615 by digits of pi there"
    ),
    r"add_rms_norm fp32 odd width 16384": Stack(32, "512 threads have 128 registers each", (89,)),
    r"(add_)?rms_norm .* odd width 16384": Stack(8, "512 threads have 128 registers each"),
    r"(prefill|decode)_attention_kernel \w+ \w+ (16|32) ": Stack(
        32, "stops at 128 or 168 registers"
    ),
    r"prefill_attention_kernel float32 (int8|float8_e4m3fn) (64|80|96|128) ": Stack(
        24, "stops at 128 or 168 registers; read once, after the loop over keys", (80, 89)
    ),
    r"prefill_attention_kernel float16 (int8|float8_e4m3fn) 256 64$": Stack(
        8, "stops at 128 registers; read once, after the loop over keys", (100,)
    ),
    r"decode_attention_kernel float32 \w+ (64|80|96|128) ": Stack(
        24, "stops at 96, 128 or 168 registers; not read in the loop over keys", (80, 89)
    ),
    r"prefill_attention_kernel float32 float32 (80|96) 16$": Stack(
        8, "stops at 80 registers; read once, after the loop over keys", (90, 100)
    ),
    r"decode_attention_kernel float16 (int8|float8_e4m3fn) 256 32$": Stack(
        32,
        "255 registers, for more than 16 heads a group; not read in the loop over keys",
        (90, 100),
    ),
    r"combine_splits_kernel \w+ \w+ 256 1$": Stack(
        8, "stops at 56 registers; read once, after the loop over splits", (100,)
    ),
    r"decode_attention_kernel \w+ (int8|float8_e4m3fn) ": Stack(
        8, "stops at 128 or at 255 registers"
    ),
    r"tiled_linear_(int8|mxfp4)_(bf16|fp16)_fp32_64$": Stack(
        16, "stops at 72 registers; at most one word for each chunk is read in the loop", (80,)
    ),
    r"tiled_linear_(fp8|mxfp4)_(bf16|fp16)_fp32_64$": Stack(
        8, "stops at 72 registers; read once, after the loop", (89,)
    ),
    r"split_linear_int4_bf16_bf16_16$": Stack(
        8, "stops at 80 registers; read once, after the loop", (80,)
    ),
    r"split_linear_int4_bf16_bf16_gated_.*16": Stack(16, "stops at 128 registers", (86, 89)),
    r"experts gate_up fp32 int4 16 rows odd unsorted": Stack(
        8, "stops at 80 registers; read once, after the loop", (80,)
    ),
    r"experts down fp32 int4 16 rows odd unsorted": Stack(
        8, "stops at 72 registers; read once, after the loop", (100,)
    ),
    r"experts (gate_up|down) \w+ \w+ (64|128) rows \w+ sorted": Stack(
        8, "stops at 128 or 255 registers", (80, 100)
    ),
}
# What Triton 3.6, which comes with PyTorch 2.11, takes besides. "Little" is a few words of a thread
# each time around a loop of hundreds of instructions.
ALLOWED_BY_3_6: dict[str, Stack] = {
    r"add_rms_norm fp16 odd width 8192": Stack(16, "no loop: read once", (90, 100)),
    r"prefill_attention_kernel (bfloat16 bfloat16|float16 float16) 64 128$": Stack(
        16, "stops at 128 registers; read once, after the loop over keys", (100,)
    ),
    r"prefill_attention_kernel float32 int8 64 16$": Stack(
        8, "stops at 128 registers; read once, after the loop over keys", (100,)
    ),
    r"decode_attention_kernel (bfloat16 bfloat16|float16 float16) (80|96) 32$": Stack(
        24, "stops at 128 registers; not read in the loop over keys", (100,)
    ),
    r"decode_attention_kernel float32 float32 128 16$": Stack(
        8, "stops at 96 registers; not read in the loop over keys", (100,)
    ),
    r"prefill_attention_kernel float32 \w+ (64|80|96|128) ": Stack(
        32, "stops at 80, 128 or 168 registers; read once, after the loop over keys", (80, 89)
    ),
    r"prefill_attention_kernel float16 float8_e4m3fn 256 32$": Stack(
        8, "255 registers; read once, after the loop over keys", (80,)
    ),
    r"decode_attention_kernel float32 float32 256 16$": Stack(
        24, "stops at 168 registers; little is read in the loop over keys", (90,)
    ),
    r"tiled_linear_(fp8|mxfp4)_(bf16|fp16)_(bf16|fp16|fp32)_64$": Stack(
        16, "stops at 72 registers; little is read in the loop", (80, 89)
    ),
    r"tiled_linear_(float|mxfp4)_(bf16|fp16)_(bf16|fp16|fp32)(_bias)?_128$": Stack(
        24, "stops at 128 registers; little is read in the loop", (89,)
    ),
    r"split_linear_mxfp4_bf16_(bf16|fp32)_16$": Stack(
        8, "stops at 80 registers; little is read in the loop", (89, 90, 100)
    ),
    r"split_linear_int4_bf16_bf16_gated_8$": Stack(
        16, "stops at 128 registers; little is read in the loop", (90, 100)
    ),
    r"experts (gate_up|down) fp16 mxfp4 16 rows even (un)?sorted$": Stack(
        16, "stops at 80 registers; read once, after the loop", (100,)
    ),
    r"experts gate_up fp32 mxfp4 16 rows odd sorted clamped": Stack(
        8, "stops at 80 registers; read once, after the loop", (100,)
    ),
    r"experts down bf16 int8 64 rows even sorted": Stack(
        24, "stops at 128 registers; read once, after the loop", (80, 89)
    ),
    r"experts gate_up fp16 int4 64 rows even sorted clamped": Stack(
        8, "stops at 128 registers; read once, after the loop", (89,)
    ),
    r"pick 4096 tokens \d+ rungs masks": Stack(8, "no loop: read once", (80, 90)),
}
# Variants that may load less than half of their bytes 128 bits at a time, and why.
ALLOWED_NARROW: dict[str, str] = {
    r"decode_attention_kernel \w+ \w+ (16|32|64) ": (
        "of such short keys, what finds and scales them is nearly as many bytes as they are"
    ),
    r"weigh 1024 tokens \d+ rungs$": (
        "with Triton 3.6 four numbers of a row are loaded twice; logits come 128 bits at a time"
    ),
    r"split_linear_(int8|int4|fp8|mxfp4)_.*_8$": (
        "all of the weight comes 128 bits at a time; rows, half of the bytes or more, 64, from the "
        "L2 cache"
    ),
}
# How many warps may make the same products of a kernel, and why.
ALLOWED_REPEATS: dict[str, tuple[int, str]] = {
    r"(prefill|decode)_attention_kernel \w+ \w+ 16 ": (
        4,
        "a tile of 16 or 32 rows of such short heads is two products or four",
    ),
    r"decode_attention_kernel \w+ (int8|float8_e4m3fn) (32|64|80|96|128) 32$": (
        2,
        "of more than 16 heads a group; parts of 64 values would not repeat, but float16's narrow "
        "loads would be more",
    ),
    r"prefill_attention_kernel \w+ (int8|float8_e4m3fn) 256 64$": (
        2,
        "on SM90, scores of all parts but the first; higher tiles spill registers",
    ),
}


@dataclass(frozen=True, slots=True)
class Compiled:
    """A variant's machine code, or the error that came instead.

    registers, stack_bytes, local_bytes   of a thread.
    shared_bytes      of a block of threads.
    tensor_cores      those of TENSOR_CORES that occur.
    wide_share        of the bytes that its text loads, those that come at least 128 bits at a time.
    repeats           the most warps that make one and the same product of matrices.
    num_stores        of the places where its text writes to the GPU's memory.
    copies_boxes      whether descriptors' boxes are copied by the chip's own instruction for them.
    problems          what should not be so.
    """

    name: str
    kernel: str
    capability: int
    form: str
    error: str = ""
    registers: int = 0
    stack_bytes: int = 0
    local_bytes: int = 0
    shared_bytes: int = 0
    tensor_cores: tuple[str, ...] = ()
    wide_share: float = 0.0
    repeats: int = 1
    num_stores: int = 1
    copies_boxes: bool = False
    seconds: float = 0.0
    problems: tuple[str, ...] = ()


def compile_variant(variant: Variant) -> Compiled:
    """Compile one, and look at it; what is known of the same form is not compiled again."""
    form = form_of(variant)
    kept = Path(os.environ["TRITON_CACHE_DIR"]) / "results" / f"{form}.json"
    names = {
        "name": variant.name,
        "kernel": variant.kernel.__name__,
        "capability": variant.chip.capability,
        "form": form,
    }
    found = json.loads(kept.read_text()) if kept.exists() else {}
    if "num_stores" in found:
        found["tensor_cores"] = tuple(found["tensor_cores"])
    else:
        begin = time.perf_counter()
        try:
            found = _measure(_compile(variant))
        except Exception as problem:
            # Whatever Triton raises is the result here.
            error = f"{type(problem).__name__}: {' '.join(_first_cause(problem).split())}"[-500:]
            seconds = time.perf_counter() - begin
            return Compiled(**names, error=error, seconds=seconds, problems=(error,))
        found["seconds"] = time.perf_counter() - begin
        kept.parent.mkdir(parents=True, exist_ok=True)
        part = kept.with_suffix(f".{os.getpid()}.part")
        part.write_text(json.dumps(found))
        part.replace(kept)  # another process may read it at this moment
    compiled = Compiled(**names, **found)
    return replace(compiled, problems=tuple(problems_of(variant, compiled)))


def form_of(variant: Variant) -> str:
    """Return the digest of all that a variant's code follows from."""
    form = (
        *(triton.__version__, text_of(variant.kernel), variant.chip.capability),
        *(sorted(variant.signature.items()), sorted(variant.constants.items(), key=str)),
        *(variant.num_warps, variant.num_stages, variant.has_fused_multiply_add),
    )
    return hashlib.sha256(repr(form).encode()).hexdigest()


@cache
def text_of(kernel: Any) -> str:
    """Return the text of a kernel, and all that it names: functions and constants.

    Triton's own key has numbers of lines too, so that a line more in a file would have all of its
    kernels compiled again.
    """
    texts: dict[str, str] = {}
    _collect_texts(kernel, texts)
    return repr(sorted(texts.items()))


def _collect_texts(kernel: Any, texts: dict[str, str]) -> None:
    function = kernel.fn
    place = f"{function.__module__}.{function.__qualname__}"
    if place in texts:
        return
    # What Triton has read, for the file may have changed since; interpreted kernels have no such.
    text = kernel.src if isinstance(kernel, JITFunction) else inspect.getsource(function)
    texts[place] = f"{text} {function.__defaults__}"
    for name in function.__code__.co_names:
        value = function.__globals__.get(name)
        if isinstance(value, tl.constexpr):
            texts[f"{function.__module__}.{name}"] = repr(value.value)
        elif isinstance(value, KernelInterface):
            _collect_texts(value, texts)


def _measure(binary: Any) -> dict[str, Any]:
    usage, ptx = _resources(binary.asm["cubin"]), binary.asm["ptx"]
    return {
        "registers": usage["REG"],
        "stack_bytes": usage["STACK"],
        "local_bytes": usage["LOCAL"],
        "shared_bytes": binary.metadata.shared,
        "tensor_cores": tuple(name for name in TENSOR_CORES if name in ptx),
        "wide_share": wide_share(ptx),
        "repeats": repeats(binary.asm["ttgir"]),
        "num_stores": len(_STORE.findall(ptx)),
        "copies_boxes": "cp.async.bulk.tensor" in ptx,
    }


def _first_cause(problem: BaseException) -> str:
    """Return the message of the innermost exception: those around it tell where it was called."""
    while problem.__cause__ is not None:
        problem = problem.__cause__
    return str(problem)


def _compile(variant: Variant) -> Any:
    """Compile as a launch of such arguments would."""
    arguments: list[str] = variant.kernel.arg_names
    given = {*variant.signature, *variant.constants}
    assert given == set(arguments), f"arguments, {sorted(given ^ set(arguments))} only on one side"
    types = {name: variant.signature.get(name, "constexpr").split(":")[0] for name in arguments}
    aligned = [i for i, name in enumerate(arguments) if _is_aligned(variant, name)]
    source = ASTSource(
        fn=variant.kernel,
        signature=types,
        constexprs=dict(variant.constants),
        attrs={(i,): [["tt.divisibility", 16]] for i in aligned},
    )
    options = {
        "num_warps": variant.num_warps,
        "num_stages": variant.num_stages,
        "enable_fp_fusion": variant.has_fused_multiply_add,
    }
    target = GPUTarget("cuda", variant.chip.capability, 32)
    return triton.compile(source, target=target, options=options)


def _is_aligned(variant: Variant, argument: str) -> bool:
    return variant.signature.get(argument, "").endswith(":16")


def _resources(cubin: bytes) -> dict[str, int]:
    """Return what `cuobjdump -res-usage` says."""
    program = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "cuobjdump"
    with tempfile.NamedTemporaryFile(suffix=".cubin") as code:
        code.write(cubin)
        code.flush()
        command = [str(program), "-res-usage", code.name]
        said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return {name: int(number) for name, number in re.findall(r"(\w+):(\d+)", said)}


_LOAD = re.compile(r"\bld\.global[\w.:]*?(?:\.v(\d))?\.[a-z](\d+)\b")
_COPY = re.compile(r"\bcp\.async\.c[ag]\.shared\.global[^;]*?, (0x[0-9a-f]+|\d+)")


def wide_share(ptx: str) -> float:
    """Return which part of the bytes that PTX loads comes 128 bits at a time or more; 1 for none.

    Each load counts once, however often a loop runs it. What tensor descriptors load is wide.
    """
    sizes = [int(count or 1) * int(bits) // 8 for count, bits in _LOAD.findall(ptx)]
    sizes += [int(size, 0) for size in _COPY.findall(ptx)]
    sizes += [128] * ptx.count("cp.async.bulk.tensor")
    return sum(size for size in sizes if size >= 16) / sum(sizes) if sizes else 1.0


_STORE = re.compile(r"\b(?:st\.global|red\.|atom\.|cp\.async\.bulk\.tensor\S*\.global\.shared)")
_LAYOUT = re.compile(
    r"^(#mma\d*) = #ttg\.nvidia_mma<\{versionMajor = (\d).*"
    r"warpsPerCTA = \[([\d, ]+)\].*instrShape = \[([\d, ]+)\]",
    re.MULTILINE,
)
_PRODUCT = re.compile(r"\b(?:tt\.dot|ttng\.warp_group_dot)\b.*-> tensor<([\dx]+)xf32, (#mma\d*)>")


def repeats(ttgir: str) -> int:
    """Return the most warps that make one and the same product, by the layouts that Triton chose.

    Where a tile is smaller than what its warps take at once, some of them repeat what others do. A
    product in tensor memory is asked for by one thread.
    """
    layouts = {}
    for name, version, *shapes in _LAYOUT.findall(ttgir):
        warps, instruction = ([int(n) for n in shape.split(",")] for shape in shapes)
        # Ampere's instruction is [..., 16, 8]; Hopper's, of one of its four warps, [16, N, K].
        rows_columns = instruction[-2:] if version == "2" else instruction[:2]
        ones = [1] * (len(warps) - 2)
        layouts[name] = [n * size for n, size in zip(warps, ones + rows_columns, strict=True)]
    most = 1
    for shape, name in _PRODUCT.findall(ttgir):
        sizes = zip(map(int, shape.split("x")), layouts[name], strict=True)
        most = max(most, math.prod(max(1, taken // size) for size, taken in sizes))
    return most


def problems_of(variant: Variant, compiled: Compiled) -> Iterator[str]:
    """Yield what is wrong with a variant's machine code, in words."""
    if compiled.num_stores == 0:
        yield "it writes nothing: the compiler took its whole body for dead"
    limit = _allowed_stack(variant)
    taken = max(compiled.stack_bytes, compiled.local_bytes)
    if taken > limit:
        yield f"{taken} bytes of stack, where {limit} are allowed: registers were spilled"
    most = variant.chip.shared_bytes
    if compiled.shared_bytes > most:
        yield f"{compiled.shared_bytes} bytes of shared memory, where a block has {most}"
    wanted = [expected_tensor_cores(variant)] if variant.uses_tensor_cores else []
    if list(compiled.tensor_cores) != wanted:
        yield f"tensor cores: {list(compiled.tensor_cores)}, where {wanted} should be"
    has_descriptors = any(kind.startswith("tensordesc") for kind in variant.signature.values())
    if has_descriptors and not compiled.copies_boxes:
        yield "no cp.async.bulk.tensor copies the boxes of its descriptors"
    once, _ = _allowed(ALLOWED_REPEATS, variant.name, (1, ""))
    if compiled.repeats > once:
        yield f"{compiled.repeats} warps make the same products, where {once} may"
    is_narrow = compiled.wide_share < 0.5 and not _allowed(ALLOWED_NARROW, variant.name, "")
    if variant.is_bound_by_memory and is_narrow:
        yield f"{compiled.wide_share:.0%} of its bytes are loaded 128 bits at a time"


def _allowed_stack(variant: Variant) -> int:
    capability, table = variant.chip.capability, dict(ALLOWED_STACK)
    if triton.__version__.startswith("3.6."):
        table = ALLOWED_BY_3_6 | table
    here = {
        pattern: one for pattern, one in table.items() if not one.chips or capability in one.chips
    }
    return _allowed(here, variant.name, Stack(0, "")).num_bytes


def _allowed(table: Mapping[str, T], name: str, default: T) -> T:
    return next((value for pattern, value in table.items() if re.match(pattern, name)), default)


def expected_tensor_cores(variant: Variant) -> str:
    """Return the newest of TENSOR_CORES that its chip has and its tile is tall enough for."""
    if variant.tile_rows < 64 or not variant.chip.has_warpgroups:
        return "mma.sync"
    return "tcgen05.mma" if variant.chip.has_tensor_memory else "wgmma.mma_async"


def compile_in_processes(arguments: Sequence[str], num_processes: int = 1) -> Iterator[Compiled]:
    """Compile in processes of their own, and yield what they find; arguments as this module's."""
    environment = {**os.environ, "TRITON_CACHE_DIR": os.environ.get("TRITON_CACHE_DIR", str(CACHE))}
    environment.pop("TRITON_INTERPRET", None)
    command = [sys.executable, "-m", "tests.ops.cuda.compile_kernels", *arguments, "--json"]
    # All write whole lines into one pipe, so that none waits for another's to be read.
    reading, writing = os.pipe()
    workers = [
        subprocess.Popen(
            [*command, "--share", f"{i}/{num_processes}"], env=environment, cwd=ROOT, stdout=writing
        )
        for i in range(num_processes)
    ]
    os.close(writing)
    with os.fdopen(reading) as lines:
        yield from map(_read, lines)
    for worker in workers:
        # 1 tells of problems; what else there may be has been printed.
        assert worker.wait() in (0, 1), f"a compiler ended with {worker.returncode}"


def _read(line: str) -> Compiled:
    fields = json.loads(line)
    for name in ("tensor_cores", "problems"):
        fields[name] = tuple(fields[name])
    return Compiled(**fields)


def _wanted(arguments: argparse.Namespace) -> list[Variant]:
    module = importlib.import_module(arguments.module) if arguments.module else None
    listed = shipped_variants if module is None else module.variants
    chips: list[Chip] = [chip for chip in CHIPS if chip.capability in arguments.chips]
    variants = [variant for chip in chips for variant in listed(chip)]
    wanted = [v for v in variants if v.is_in_check or not arguments.checked]
    wanted = _without_twins([v for v in wanted if re.search(arguments.only, v.name)])
    if arguments.record is not None:
        known = set(_lines(_record_file(arguments.record)))
        wanted = [v for v in wanted if form_of(v)[:RECORDED_DIGITS] not in known]
    index, count = map(int, arguments.share.split("/"))
    return wanted[index::count]


def _record_file(folder: Path) -> Path:
    return folder / f"triton-{triton.__version__}.txt"


def _lines(path: Path) -> list[str]:
    return path.read_text().split() if path.exists() else []


def _record(path: Path, compiled: Compiled) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:  # at once, for this may be stopped at any time
        file.write(compiled.form[:RECORDED_DIGITS] + "\n")


def _without_twins(variants: list[Variant]) -> list[Variant]:
    """Leave out what SM86 and SM120 have in the same form as SM89.

    To SM89 only float8 is new, and SM120 has its shared memory and its tensor cores' instructions.
    """
    newer = {form_of(v): v.chip for v in variants if v.chip.capability == 89}
    chip = next(iter(newer.values()), None)
    return [
        v
        for v in variants
        if v.chip.capability not in (86, 120)
        or chip is None
        or form_of(replace(v, chip=chip)) not in newer
    ]


def main() -> int:
    """Compile what is asked for; return 1 where anything is wrong, 0 otherwise."""
    parser = argparse.ArgumentParser(description=__doc__)
    known = [chip.capability for chip in CHIPS]
    parser.add_argument("--chips", type=int, nargs="+", choices=known, default=known)
    parser.add_argument("--checked", action="store_true", help="what `make check` compiles")
    parser.add_argument("--only", default="", help="a pattern that names match")
    parser.add_argument("--module", help="of kernels, in place of those that ship")
    parser.add_argument("--share", default="0/1", help="I/N: every N-th, from the I-th on")
    parser.add_argument("--record", type=Path, help="a folder of what was read before")
    parser.add_argument("--json", action="store_true", help="a line of JSON for each")
    parser.add_argument("--processes", type=int, default=0, help="in which it is done")
    arguments = parser.parse_args()
    os.environ.setdefault("TRITON_CACHE_DIR", str(CACHE))
    if arguments.processes:
        found = compile_in_processes(_without(sys.argv[1:], "--processes"), arguments.processes)
    else:
        found = map(compile_variant, _wanted(arguments))
    num_compiled = num_wrong = 0
    for compiled in found:
        num_compiled += 1
        num_wrong += bool(compiled.problems)
        if arguments.json:
            # In one piece, also where Python doesn't buffer: others write to this pipe.
            sys.stdout.write(json.dumps(asdict(compiled)) + "\n")
            sys.stdout.flush()
            continue
        if arguments.record is not None and not compiled.problems:
            _record(_record_file(arguments.record), compiled)
        for problem in compiled.problems:
            print(f"SM{compiled.capability} {compiled.name}: {problem}", flush=True)
    if arguments.record is not None and not arguments.json and num_compiled > num_wrong:
        path = _record_file(arguments.record)
        path.write_text("".join(f"{line}\n" for line in sorted(set(_lines(path)))))
    if not arguments.json:
        print(f"Triton {triton.__version__}: {num_compiled} compiled, {num_wrong} with problems")
    return int(num_wrong > 0)


def _without(arguments: list[str], option: str) -> list[str]:
    at = arguments.index(option)
    return arguments[:at] + arguments[at + 2 :]


if __name__ == "__main__":
    # Triton reads it when kernels are defined, which is above.
    assert "TRITON_INTERPRET" not in os.environ, "unset TRITON_INTERPRET to compile kernels"
    sys.exit(main())
