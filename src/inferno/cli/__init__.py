"""The `inferno` command. Importing it imports nothing heavy: `inferno --help` starts at once."""

from __future__ import annotations

# Only modules that the interpreter has loaded by itself: until `main` runs, a Ctrl+C prints a
# traceback. (`signal` would import `enum`, which takes as long as all the rest.)
import _signal  # type: ignore[import-not-found]
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable


def main() -> None:
    """Run the command line; the entry point of the installed `inferno`."""
    _signal.signal(_signal.SIGINT, _leave_at_once)
    import gc  # noqa: PLC0415

    gc.disable()  # imports make no garbage, and looking for it takes a tenth of their time
    # Imported here so that an interrupt during the imports is met as well.
    from inferno.torch_start import defer_tracing  # noqa: PLC0415 - before PyTorch

    defer_tracing()
    from inferno.cli.app import app_for  # noqa: PLC0415

    app = app_for(sys.argv[1:])
    gc.enable()
    _run(app)


def worker_cpu() -> None:
    """Run `inferno-worker-cpu`, a worker that computes on the CPU."""
    _run_worker("cpu")


def worker_cuda() -> None:
    """Run `inferno-worker-cuda`, a worker that computes on a CUDA device."""
    _run_worker("cuda")


def worker_metal() -> None:
    """Run `inferno-worker-metal`, a worker that computes on a Metal device."""
    _run_worker("metal")


def _run_worker(device: str) -> None:
    _signal.signal(_signal.SIGINT, _leave_at_once)
    from inferno.torch_start import defer_tracing  # noqa: PLC0415 - before PyTorch

    defer_tracing()
    from inferno.cli.worker import run_bound  # noqa: PLC0415

    _run(lambda: run_bound(device, sys.argv[1:]))


def _run(command: Callable[[], object]) -> None:
    from inferno.cli.errors import describe, say  # noqa: PLC0415

    code: object = 0
    try:
        try:
            command()
        except SystemExit as end:
            code = end.code
        if sys.stdout is not None:
            sys.stdout.flush()
    except OSError as problem:  # of --help and --version: commands handle their own errors
        if "--debug" in sys.argv:
            raise
        if not code:
            code = 1
            if not isinstance(problem, BrokenPipeError):
                say(f"error: {describe(problem)}")
        # What could not be written would be tried again at the interpreter's end, and told of.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    sys.exit(code)  # type: ignore[arg-type]


def _leave_at_once(*_: object) -> None:
    """End on Ctrl+C with one line and exit code 1, without waiting for an import or a step.

    An exception won't do: some libraries swallow it while they are imported.
    """
    try:
        show_cursor = b"\x1b[?25h\n" if os.isatty(2) else b""  # a loading bar hides it
        os.write(2, show_cursor + b"interrupted\n")
    except OSError:
        pass  # nobody reads
    os._exit(1)
