"""The oracle that is llama.cpp: logits, token ids and text of a GGUF file, and nothing between.

The library runs in a process of its own (`llamacpp_child.py`), with keys and values in float32.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from importlib import metadata
from pathlib import Path
from typing import IO, Any, cast

import torch
from torch import Tensor

from inferno.errors import InvalidRequest
from inferno.extras import install_command
from inferno.gguf.file import is_gguf_name
from inferno.verify.options import Tell
from inferno.verify.oracles import Choices
from inferno.verify.oracles.plain_maths import Rounding
from inferno.verify.runs.taps import Taps
from inferno.weights.checkpoint import Checkpoint

CHILD = (sys.executable, "-P", str(Path(__file__).with_name("llamacpp_child.py")))

_PACKAGE, _DISTRIBUTION, _EXTRA = "llama_cpp", "llama-cpp-python", "llama-cpp"
_LONGEST_COMPLAINT = 300
_NO_DEBUGGER = {"GGML_NO_BACKTRACE": "1"}  # which it starts where it crashes
# What llama.cpp rounds the inputs of a product to, by the type of the weight: int8 with a scale for
# so many values (its Q8_0, Q8_1 and Q8_K), or the weight's own 16 bits. Source: ggml-cpu's traits.
_INT8_GROUPS = {
    **dict.fromkeys(("Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "IQ4_NL", "MXFP4"), 32),
    **dict.fromkeys(("Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K", "IQ4_XS"), 256),
}
_FLOATS = (torch.bfloat16, torch.float16)


class LlamaCppOracle:
    """An oracle that asks llama.cpp, in a new process each time.

    rounding  what it rounds in a model of these weights; None: nothing but float32.
    command   the child's, with no arguments.

    Every method raises InvalidRequest where llama.cpp can't load or run the file.
    """

    def __init__(
        self,
        file: Path,
        rounding: Rounding | None,
        threads: int,
        tell: Tell,
        *,
        version: str,
        command: Sequence[str] = CHILD,
    ) -> None:
        self.name = f"llama.cpp ({_DISTRIBUTION} {version})"
        self.rounding = rounding
        self._file = file
        self._threads = threads
        self._tell = tell
        self._command = command

    def taps(self, token_ids: Sequence[int], layers: Sequence[int], choices: Choices) -> Taps:
        [logits] = self.logits([token_ids])
        return {"logits": logits}

    def logits(self, texts: Sequence[Sequence[int]]) -> Iterator[Tensor]:
        self._tell("running llama.cpp")
        with self._asked({"ask": "logits", "texts": [list(text) for text in texts]}) as answers:
            size = self._read_line(answers)["vocab_size"]
            for text in texts:
                yield self._read_logits(answers, len(text), size)

    def encode(self, text: str) -> list[int] | None:
        with self._asked({"ask": "encode", "text": text}) as answers:
            return cast(list[int] | None, self._read_line(answers))

    def decode(self, token_ids: Sequence[int]) -> str | None:
        with self._asked({"ask": "decode", "ids": list(token_ids)}) as answers:
            return cast(str | None, self._read_line(answers))

    @contextlib.contextmanager
    def _asked(self, question: dict[str, Any]) -> Iterator[IO[bytes]]:
        """Start the child and give it the question; yield what it answers, and end it."""
        question |= {"model": str(self._file), "threads": self._threads}
        with tempfile.TemporaryFile() as complaints:
            child = subprocess.Popen(
                self._command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=complaints,
                env={**os.environ, **_NO_DEBUGGER},
            )
            assert child.stdin is not None, "it is a pipe"
            assert child.stdout is not None, "it is a pipe"
            try:
                with contextlib.suppress(BrokenPipeError), child.stdin:
                    child.stdin.write(json.dumps(question).encode())
                yield child.stdout
            except _CutShort:
                raise self._refusal(child.wait(), complaints) from None
            finally:
                child.kill()
                child.wait()
                child.stdout.close()

    def _read_line(self, answers: IO[bytes]) -> Any:
        line = answers.readline()
        if not line.endswith(b"\n"):
            raise _CutShort
        return json.loads(line)

    def _read_logits(self, answers: IO[bytes], num_tokens: int, vocab_size: int) -> Tensor:
        logits = torch.empty(num_tokens, vocab_size)
        left = logits.view(-1).view(torch.uint8).numpy().data
        while left:
            count = cast(Any, answers).readinto(left)
            if not count:
                raise _CutShort
            left = left[count:]
        return logits

    def _refusal(self, exit_code: int, complaints: IO[bytes]) -> InvalidRequest:
        complaints.seek(0)
        lines = complaints.read().decode(errors="replace").split("\n")
        said = " ".join(" ".join(lines).split())[-_LONGEST_COMPLAINT:]
        ended = f"it ended with exit code {exit_code}"
        return InvalidRequest(
            f"--against llama.cpp: it gave no answer for {self._file}: {said or ended}; choose "
            "another oracle, or leave --against out",
            param="against",
        )


class _CutShort(Exception):
    """The end of the child's answers before they were complete."""


def open_llama_cpp(file: Path, checkpoint: Checkpoint, threads: int, tell: Tell) -> LlamaCppOracle:
    """Return the oracle over a GGUF file.

    Raises InvalidRequest for what is no GGUF file, and where llama-cpp-python is not installed.
    """
    if not is_gguf_name(file):
        raise InvalidRequest(
            f"--against llama.cpp reads GGUF files only, and {file} is none; leave --against out, "
            "or choose transformers",
            param="against",
        )
    if importlib.util.find_spec(_PACKAGE) is None:
        raise InvalidRequest(
            f"--against llama.cpp needs the package {_DISTRIBUTION}, which is built when it is "
            f"installed: {install_command(_EXTRA)}, or leave --against out",
            param="against",
        )
    version = metadata.version(_DISTRIBUTION)
    return LlamaCppOracle(file, rounding_of(checkpoint), threads, tell, version=version)


def rounding_of(checkpoint: Checkpoint) -> Rounding | None:
    """Return how llama.cpp rounds what meets these weights, by the coarsest of their types."""
    matrices = [info for info in checkpoint.tensors.values() if len(info.shape) > 1]
    types = {info.coding.type.name for info in matrices if info.coding is not None}
    groups = [_INT8_GROUPS[name] for name in types if name in _INT8_GROUPS]
    if groups:
        return Rounding(mxfp4=True, matrices=True, group=max(groups))
    dtypes = {info.dtype for info in matrices}
    inputs = next((dtype for dtype in _FLOATS if dtype in dtypes), None)
    return None if inputs is None else Rounding(inputs=inputs)
