"""Write docs/compatibility.md, what is tested together, from the tables that tests go through.

python scripts/make_compatibility.py
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from inferno.config.families import ARCHITECTURES
from inferno.engine.execution.probe import serving
from inferno.gguf.tensor_types import BY_NAME
from inferno.ops import BACKENDS, FORWARD_OPS
from inferno.quantization import FLOAT16, FORMATS, KEPT_BLOCKS, WeightFormat

ROOT = Path(__file__).resolve().parents[1]
DOCUMENT = ROOT / "docs" / "compatibility.md"
_HEAD = """# What is tested together

<!-- Written by scripts/make_compatibility.py from the tables of the tests: change those. -->

What a test compares with somebody else's implementation, or with a plain forward pass over the
same weights. A number counts variants: biases, windows, scaled positions and so on. `-` means that
no test does so; it may work all the same.
"""
_ARCHITECTURES = """## Architectures, formats and quantization on a CPU

- **safetensors, FP8, GGUF**: logits in float32 against `transformers`.
- **random**: models of random shapes, in float32, bfloat16 and float16, against plain maths.
- **int8, int4**: `--quantize`, against plain maths over the quantized weights.
- **llama.cpp**: GGUF files, logits and tokens against llama.cpp.
"""
_ON_CUDA = """## Architectures, formats and quantization by CUDA's kernels

Logits of models of one or two layers, against `transformers`, by the kernels in Triton's
interpreter on a CPU ([devices](#devices)).
"""
_TYPES = """## Types of weights

- **values**: bit for bit those of the `gguf` package.
- **CPU**: products of the compiled kernels against sums in float64. Where kernels don't compute
  with a type, its weights become floats when they are loaded ([gguf.md](gguf.md)).
- **CUDA**: the same of CUDA's kernels: *interpreted*, or only *compiled* to machine code, for
  Triton's interpreter rounds to bfloat16 wrongly. Where there is neither, PyTorch multiplies, with
  weights that are unpacked for each product.
- **llama.cpp**: logits of a whole model of that type.
"""
_DEVICES = """## Devices

What computes each op of a model: a *kernel*, at least for the usual types and shapes, or PyTorch.

- **CPU**: compiled kernels, run by the tests.
- **CUDA**: kernels in Triton. Without a GPU the tests run them in Triton's interpreter on a CPU, in
  float32 and float16, and compile some; `make gpu-static` compiles all of them for
  {chips}.
  **Nothing on this page was found on a GPU**; there, `pytest -m gpu` runs the same tests on it.
  What is measured on GPUs, and what isn't, stands in [cuda.md](cuda.md#how-it-is-tested).
- **MPS**: PyTorch, and no test runs on such a device.

"""


@dataclass(frozen=True, slots=True)
class Source:
    """A table that a test is parametrized by: the module that has it, its name, and the test's."""

    module: str
    name: str
    used_in: str = ""

    @property
    def user(self) -> str:
        """Return the module whose tests go through the table."""
        return self.used_in or self.module

    def load(self) -> Any:
        """Return the table."""
        return getattr(import_module(self.module), self.name)


SAFETENSORS = Source("tests.models.test_against_transformers", "VARIANTS")
GGUF = Source("tests.weights.test_gguf", "VARIANTS")
GGUF_GPT_OSS = Source("tests.weights.test_gguf_gpt_oss", "VARIANTS")
IN_FP8 = Source("tests.weights.test_fp8", "VARIANTS")
QUANTIZED = Source("tests.verify.test_quantized", "MODELS")
QUANTIZATIONS = Source("tests.verify.test_quantized", "KINDS")
LLAMA_CPP = Source("tests.verify.test_llamacpp", "SHAPES")
LLAMA_CPP_TYPES = Source("tests.verify.test_llamacpp", "TYPES")
CUDA_MODELS = Source("tests.ops.cuda.test_whole_models", "MODELS")
CUDA_INT8 = Source("tests.ops.cuda.test_whole_models", "INT8_SIZES")
CUDA_FP8 = Source("tests.ops.cuda.test_whole_models", "FP8_ERRORS")
CUDA_FP8_MODELS = Source("tests.ops.cuda.test_whole_models", "FP8_MODELS")
CUDA_KERNELS = Source("tests.ops.cuda.test_products", "FORMATS")
CUDA_CHIPS = Source("inferno.ops.cuda.chips", "CHIPS", "tests.ops.cuda.test_machine_code")
VALUES = Source("tests.ops.test_gguf_blocks", "DECODED")
KERNELS = Source("tests.ops.cpu.packed_weights", "KERNEL_FORMATS", "tests.ops.cpu.test_linear")
BLOCK_KERNELS = Source("tests.ops.cpu.test_block_formats", "FORMATS")
SOURCES = (
    *(
        SAFETENSORS,
        IN_FP8,
        GGUF,
        GGUF_GPT_OSS,
        QUANTIZED,
        QUANTIZATIONS,
        LLAMA_CPP,
        LLAMA_CPP_TYPES,
    ),
    *(VALUES, KERNELS, BLOCK_KERNELS),
    *(CUDA_MODELS, CUDA_INT8, CUDA_FP8, CUDA_FP8_MODELS, CUDA_KERNELS, CUDA_CHIPS),
)
_GGUF_FLOATS = {"float32": "F32", "float16": "F16", "bfloat16": "BF16"}
_IN_FP8 = " in FP8"  # how variants of CUDA's models are named
_RANDOM = Source("tests.verify.random_models", "FAMILIES")  # drawn from by their numbers


def main() -> None:
    DOCUMENT.write_text(make_page())


def make_page() -> str:
    """The whole page."""
    if str(ROOT) not in sys.path:
        sys.path.insert(0, str(ROOT))  # for tests
    chips = ", ".join(chip.name for chip in CUDA_CHIPS.load())
    parts = [
        *(_HEAD, _ARCHITECTURES, _architectures(), _ON_CUDA, _on_cuda(), _TYPES, _types()),
        _DEVICES.format(chips=chips) + _devices(),
    ]
    return "\n".join(parts)


def _architectures() -> str:
    counts: dict[str, Mapping[str, object]] = {
        "safetensors": _by_family(kind for kind, _ in SAFETENSORS.load().values()),
        "FP8": _by_family(kind for kind, *_ in IN_FP8.load()),
        "GGUF": _by_family(
            kind for table in (GGUF, GGUF_GPT_OSS) for kind, _ in table.load().values()
        ),
        "random": dict.fromkeys(_by_family(_RANDOM.load()), "yes"),
        **dict.fromkeys(QUANTIZATIONS.load(), _by_family(QUANTIZED.load())),
        "llama.cpp": _by_family(kind for kind, _ in LLAMA_CPP.load().values()),
    }
    return _table_of_architectures(counts)


def _on_cuda() -> str:
    names = [str(name) for name in CUDA_MODELS.load()]
    in_fp8 = [name for name in names if name.endswith(_IN_FP8)]
    counts: dict[str, Mapping[str, object]] = {
        "safetensors": _by_family(name for name in names if name not in in_fp8),
        "FP8": _by_family(in_fp8),
        "GGUF": {},
        "int8": _by_family(CUDA_INT8.load()),
        "int4": {},
        **dict.fromkeys(CUDA_FP8.load(), _by_family(CUDA_FP8_MODELS.load())),
    }
    return _table_of_architectures(counts)


def _table_of_architectures(counts: Mapping[str, Mapping[str, object]]) -> str:
    """Write a row for each architecture; a column has what it says of families by their names."""
    rows = [
        (hf, *(str(column.get(family.name, "-")) for column in counts.values()))
        for hf, family in ARCHITECTURES.items()
    ]
    return _table(("Architecture", *counts), rows)


def _by_family(variants: Iterable[str]) -> Mapping[str, int]:
    """Count variants by family; what follows a comma or a space tells variants apart."""
    counts: dict[str, int] = {}
    for variant in variants:
        family = variant.replace(",", " ").partition(" ")[0]
        counts[family] = counts.get(family, 0) + 1
    return counts


def _types() -> str:
    values, in_llama_cpp = set(VALUES.load()), {"F32", *LLAMA_CPP_TYPES.load()}
    kernels = {str(format) for format in (*KERNELS.load(), *BLOCK_KERNELS.load())}
    rows = []
    for format in FORMATS.values():
        if format.block is None and format.name != "float64":  # which only verify computes with
            also = _GGUF_FLOATS.get(format.name)
            where = "safetensors" if also is None else f"safetensors; GGUF: {also}"
            if format.steps is not None:
                where = "safetensors; `--quantize`" if format.parts else "`--quantize`"
            ticks = (_tick(str(format) in kernels), _on_gpu(format), _tick(also in in_llama_cpp))
            rows.append((format.name, where, f"{format.bits:g}", "-", *ticks))
    for name, each in BY_NAME.items():
        if name in values:
            bits = f"{8 * each.block_bytes / each.block_values:g}"
            kept = KEPT_BLOCKS[name].format
            has_kernel = kept.name == name.lower() and str(kept) in kernels
            on_gpu = _on_gpu(kept) if kept.name == name.lower() else "-"
            ticks = (_tick(has_kernel), on_gpu, _tick(name in in_llama_cpp))
            rows.append((name, "GGUF", bits, "yes", *ticks))
    return _table(("Type", "in", "bits a weight", "values", "CPU", "CUDA", "llama.cpp"), rows)


def _on_gpu(format: WeightFormat) -> str:
    """Return how CUDA's kernels of a format are tested."""
    interpreted = {FLOAT16.name if each is None else each.name for each in CUDA_KERNELS.load()}
    if format.name in (*interpreted, *CUDA_FP8.load()):
        return "interpreted"
    return "compiled" if BACKENDS["cuda"].has_kernels(format) else "-"


def _devices() -> str:
    columns = {kind: serving(kind) for kind in BACKENDS}
    rows = [
        (
            f"`{op}`",
            *("PyTorch" if found[op] == "reference" else "kernel" for found in columns.values()),
        )
        for op in FORWARD_OPS
    ]
    return _table(("Op", *(kind.upper() for kind in columns)), rows)


def _tick(is_tested: bool) -> str:
    return "yes" if is_tested else "-"


def _table(heading: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    return "".join(f"{line}\n" for line in _lines(heading, rows))


def _lines(heading: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    yield f"| {' | '.join(heading)} |"
    yield "|" + "---|" * len(heading)
    for row in rows:
        yield f"| {' | '.join(row)} |"


if __name__ == "__main__":
    main()
