"""ik_llama.cpp as gguf_peers.py measures it: by its own programs, with `-rtr 1`.

PYTHON benchmarks/peer_ik.py, started by gguf_peers.py
"""

from __future__ import annotations

import json
import subprocess
import tempfile
from pathlib import Path

from peer_worker import serve


class Peer:
    """The programs, each of which loads the model anew; loading is not in the times."""

    def load(self, path: str, threads: int, programs: str) -> str:
        """Remember what to measure. Returns what computes."""
        self._path, self._threads, self._programs = path, str(threads), Path(programs)
        return "ik_llama.cpp with -rtr 1"

    def prefill(self, tokens: int) -> float:
        """Seconds from a prompt to its logits."""
        found = json.loads(
            self._run("llama-bench", "-p", str(tokens), "-n", "0", "-r", "1", "-o", "json")
        )
        return tokens / float(found[0]["avg_ts"])

    def begin(self, batch: int, context: int, steps: int) -> None:
        """Remember the case; `steps` are those of all rounds."""
        self._batch, self._context = str(batch), str(context)

    def decode(self, steps: int) -> float:
        """Seconds of so many steps of one token for each sequence, after its prompt."""
        said = self._run(
            "llama-batched-bench",
            *("-npp", self._context, "-ntg", str(steps), "-npl", self._batch),
            *("-c", str(int(self._batch) * (int(self._context) + steps + 32))),
        )
        # | PP | TG | B | N_KV | T_PP s | S_PP t/s | T_TG s | S_TG t/s | T s | S t/s |
        rows = [line.split("|") for line in said.splitlines() if line.startswith("|")]
        return float(rows[-1][7])

    def _run(self, program: str, *arguments: str) -> str:
        repack = ("-rtr", "1") if program == "llama-bench" else ("-rtr",)
        command = (
            *(str(self._programs / program), "-m", self._path, "-t", self._threads),
            *(*repack, *arguments),
        )
        # One prints its table among what it logs, the other by itself.
        log = subprocess.DEVNULL if program == "llama-bench" else subprocess.STDOUT
        # They write a log beside them.
        done = subprocess.run(
            command, check=True, stdout=subprocess.PIPE, stderr=log, cwd=tempfile.gettempdir()
        )
        return done.stdout.decode()


if __name__ == "__main__":
    peer = Peer()
    serve(
        {
            "load": peer.load,
            "prefill": peer.prefill,
            "begin": peer.begin,
            "decode": peer.decode,
        }
    )
