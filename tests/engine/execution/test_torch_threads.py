"""A program's own PyTorch has its threads back when the last LLM is gone."""

from __future__ import annotations

import subprocess
import sys
from textwrap import dedent

# Each begins with three threads, in a process of their own: PyTorch has one number for all.
PROGRAMS = {
    "closed": """
        with LLM("demo", threads=1):
            during = torch.get_num_threads()
        assert during == 1
    """,
    "two at once": """
        first, second = LLM("demo", threads=1), LLM("demo", threads=1)
        second.close()
        second.close()
        assert torch.get_num_threads() == 1
        first.close()
    """,
    "one after another": """
        LLM("demo", threads=1).close()
        torch.set_num_threads(2)
        LLM("demo", threads=1).close()
        assert torch.get_num_threads() == 2
        torch.set_num_threads(3)
    """,
    "forgotten": """
        llm = LLM("demo", threads=1)
        del llm
        gc.collect()
    """,
    "never opened": """
        for options in ({"num_blocks": 0}, {"max_model_len": 10**6}):
            try:
                LLM("demo", threads=1, **options)
            except InfernoError:
                pass
            gc.collect()
    """,
}


def test_torch_has_its_threads_back() -> None:
    source = ["import gc, torch", "from inferno import LLM, InfernoError"]
    for name, program in PROGRAMS.items():
        source += [
            "torch.set_num_threads(3)",
            dedent(program),
            f"assert torch.get_num_threads() == 3, ({name!r}, torch.get_num_threads())",
        ]
    command = [sys.executable, "-c", "\n".join(source)]
    done = subprocess.run(command, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()
