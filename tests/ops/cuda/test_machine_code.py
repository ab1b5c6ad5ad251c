"""The machine code of kernels, compiled without a GPU for chips that aren't here."""

from __future__ import annotations

import linecache
import os
import re
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import triton
import triton.language as tl

from inferno.ops.cuda.chips import CHIPS, INTERPRETED, Chip
from inferno.ops.cuda.shipped import KERNEL_MODULES, shipped_variants
from tests.ops.cuda.compile_kernels import (
    ALLOWED_BY_3_6,
    ALLOWED_NARROW,
    ALLOWED_REPEATS,
    ALLOWED_STACK,
    ROOT,
    Compiled,
    compile_in_processes,
    form_of,
    repeats,
    wide_share,
)
from tests.ops.cuda.faulty_kernels import variants

pytestmark = pytest.mark.gpu


# One with the tensor cores of Ampere and one with Hopper's; `make gpu-static` takes all.
@pytest.mark.parametrize("capability", [80, 90])
def test_kernels_compile_as_they_should(capability: int) -> None:
    compiled = list(compile_in_processes(["--checked", "--chips", str(capability)]))
    assert compiled
    wrong = [f"{one.name}: {problem}" for one in compiled for problem in one.problems]
    assert not wrong, "\n".join(wrong)


@pytest.fixture(scope="module")
def faulty() -> dict[tuple[int, str], Compiled]:
    arguments = ["--module", "tests.ops.cuda.faulty_kernels", "--chips", "80", "90", "100"]
    return {(one.capability, one.name): one for one in compile_in_processes(arguments)}


def test_every_fault_is_found_on_every_chip(faulty: dict[tuple[int, str], Compiled]) -> None:
    expected = {
        "good": "",
        "good product": "",
        "narrow loads": "of its bytes are loaded 128 bits at a time",
        "spilled": "registers were spilled",
        "shared": "bytes of shared memory",
        "no tensor cores": "tensor cores: []",
        "tensor cores": "where [] should be",
        "repeated products": "2 warps make the same products",
        "idle": "it writes nothing",
        "no boxes": "no cp.async.bulk.tensor",
        "wrong": "16",
        "missing argument": "stride",
    }
    for (capability, name), one in faulty.items():
        if name == "few rows":
            continue
        problems = "; ".join(one.problems)
        assert expected[name] in problems, f"{capability} {name}: {problems}"
        assert bool(one.problems) is (expected[name] != ""), f"{capability} {name}: {problems}"
    assert {name for _, name in faulty} == {*expected, "few rows"}


def test_tall_tiles_are_told_from_flat_ones(faulty: dict[tuple[int, str], Compiled]) -> None:
    names = {80: "mma.sync", 90: "wgmma.mma_async", 100: "tcgen05.mma"}
    for capability, name in names.items():
        assert faulty[capability, "good product"].tensor_cores == (name,)
    assert not faulty[80, "few rows"].problems
    assert "mma.sync" in faulty[90, "few rows"].problems[0]


def test_a_weight_may_have_one_output() -> None:
    arguments = ["--module", "tests.ops.cuda.single_outputs", "--chips", "90"]
    errors = [one.error for one in compile_in_processes(arguments)]
    assert errors == [""] * 4


def test_the_share_of_wide_loads() -> None:
    assert wide_share("") == 1
    assert wide_share("ld.param.b64 %rd1, [p];") == 1
    assert wide_share("@%p1 ld.global.v4.b32 { %r1, %r2, %r3, %r4 }, [ %rd1 + 0 ];") == 1
    assert wide_share("ld.global.v2.b64 {%a, %b}, [%c]; ld.global.b32 %r, [%c];") == 0.8
    assert wide_share("ld.global.L1::evict_last.v4.b32 {%a}, [%c]; ld.global.b128 %r, [%c];") == 1
    assert wide_share("ld.global.nc.b16 %r, [%c];") == 0
    copies = "cp.async.cg.shared.global [ %r1 + 0 ], [ %rd1 + 0 ], 0x10, %r2;"
    assert wide_share(copies) == 1
    assert wide_share(copies + "cp.async.ca.shared.global [ %r1 ], [ %rd1 ], 0x4, %r2;") == 0.8
    assert wide_share("cp.async.bulk.tensor.2d.shared::cluster.global [%r1], [%rd1];") == 1


def test_the_warps_that_repeat_a_product() -> None:
    def of(version: int, warps: str, instruction: str, product: str) -> int:
        layout = f"warpsPerCTA = [{warps}], instrShape = [{instruction}]"
        return repeats(
            f"#mma = #ttg.nvidia_mma<{{versionMajor = {version}, versionMinor = 0, {layout}}}>\n"
            f"  %0 = {product}xf32, #mma> loc(#loc)\n"
        )

    dot = "tt.dot %a, %b, %c : tensor<{}x64xf16, #a> * tensor<64x{}xf16, #b> -> tensor<{}x{}"
    assert repeats("") == 1
    assert of(2, "4, 1", "16, 8", dot.format(64, 16, 64, 16)) == 1
    assert of(2, "4, 1", "16, 8", dot.format(16, 64, 16, 64)) == 4
    assert of(2, "1, 4", "16, 8", dot.format(16, 16, 16, 16)) == 2
    assert of(2, "1, 4", "16, 8", dot.format(16, 32, 16, 32)) == 1
    assert of(2, "8, 1, 1", "1, 16, 8", "tt.dot %a, %b, %c -> tensor<8x16x16") == 1
    of_hopper = "ttng.warp_group_dot %a, %b, %c : !ttg.memdesc<64x64xf16> -> tensor<64x32"
    assert of(3, "4, 2", "16, 16, 16", of_hopper) == 1
    assert of(3, "8, 1", "16, 32, 16", of_hopper) == 2


def test_a_form_is_all_that_the_code_follows_from() -> None:
    """Two variants of one form are compiled once, so nothing else may tell their code apart."""
    first = next(variants(CHIPS[0]))
    one = replace(first, kernel=_kernel("return helper(x) + ONE"))
    others = [
        replace(one, kernel=_kernel("return helper(x) + TWO")),
        replace(one, kernel=_kernel("return helper(x) + ONE", helper="return x + x")),
        replace(one, kernel=_kernel("return helper(x) + ONE", number=2)),
        replace(one, signature={**one.signature, "x": "*fp16:16"}),
        replace(one, signature={**one.signature, "x": "*bf16"}),
        replace(one, constants={**one.constants, "SIZE": 512}),
        replace(one, chip=CHIPS[1]),
        replace(one, num_warps=8),
        replace(one, num_stages=3),
        replace(one, has_fused_multiply_add=False),
    ]
    assert len({form_of(each) for each in (one, *others)}) == 1 + len(others)
    assert form_of(replace(one, name="another", is_in_check=False)) == form_of(one)
    lower = _kernel("return helper(x) + ONE", num_lines=9)
    assert form_of(replace(one, kernel=lower)) == form_of(one)


def test_what_was_found_right_is_not_read_again(tmp_path: Path) -> None:
    record = tmp_path / f"triton-{triton.__version__}.txt"
    for num_compiled in (2, 1):
        said = _read_good_and_spilled(tmp_path)
        assert f"{num_compiled} compiled, 1 with problems" in said
        assert len(record.read_text().split()) == 1
    record.write_text("of-another-form\n")
    assert "2 compiled" in _read_good_and_spilled(tmp_path)
    assert len(record.read_text().split()) == 2, "what others wrote is kept"


def _read_good_and_spilled(record: Path) -> str:
    arguments = ["--chips", "80", "--only", "^(good|spilled)$", "--record", str(record)]
    command = [sys.executable, "-m", "tests.ops.cuda.compile_kernels", *arguments]
    command += ["--module", "tests.ops.cuda.faulty_kernels"]
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    done = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 1, done.stderr
    return done.stdout


def _kernel(body: str, helper: str = "return x", number: int = 1, num_lines: int = 1) -> Any:
    """A kernel of a module that is written so: num_lines empty ones, a helper, a kernel."""
    text = "\n" * num_lines + f"def helper(x):\n    {helper}\n\n\ndef kernel(x):\n    {body}\n"
    module: dict[str, Any] = {"__name__": "written", "ONE": tl.constexpr(number)}
    file_name = f"<{hash(text)}>"
    linecache.cache[file_name] = (len(text), None, text.splitlines(keepends=True), file_name)
    exec(compile(text, file_name, "exec"), module)
    module["helper"] = triton.jit(module["helper"])
    return triton.jit(module["kernel"])


@pytest.mark.parametrize("chip", CHIPS, ids=lambda chip: chip.name)
def test_every_kernel_is_listed(chip: Chip) -> None:
    counts = Counter(variant.name for variant in shipped_variants(chip))
    assert [name for name, count in counts.items() if count > 1] == []
    assert all(variant.chip is chip for variant in shipped_variants(chip))


def test_what_is_allowed_is_allowed_to_kernels_that_there_are() -> None:
    names = {variant.name for chip in CHIPS for variant in shipped_variants(chip)}
    patterns = [*ALLOWED_STACK, *ALLOWED_BY_3_6, *ALLOWED_NARROW, *ALLOWED_REPEATS]
    assert [one for one in patterns if not any(re.match(one, name) for name in names)] == []


@pytest.mark.parametrize("module", KERNEL_MODULES, ids=lambda module: module.__name__)
def test_every_launched_kernel_has_variants_and_one_in_the_check(module: object) -> None:
    """A kernel is a function that is launched: one whose name ends so."""
    kernels = {name for name in vars(module) if name.endswith("_kernel")}
    variants = list(module.variants(INTERPRETED))  # type: ignore[attr-defined]
    assert kernels <= {variant.kernel.__name__ for variant in variants}
    assert kernels <= {variant.kernel.__name__ for variant in variants if variant.is_in_check}
