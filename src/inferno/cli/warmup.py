"""`inferno warmup`: compile a model's kernels for a GPU, and run steps of all sizes, ahead."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated, Any

import typer

from inferno.cli.download import fetch_draft_if_absent, fetch_if_absent
from inferno.cli.errors import one_line_errors
from inferno.cli.model_options import MODEL_HELP, Debug, Revision, Verbose, Yes, log_to_stderr
from inferno.cli.options import options_of, takes_options
from inferno.cli.terminal import loading_bar, print_text
from inferno.hub.find import find_model_folder
from inferno.options import EngineOptions

# What changes no kernel and no size of a step.
_WITHOUT = ("activations", "chat_template", "priority_aging", "step_target_ms")


@takes_options(EngineOptions, without=_WITHOUT)
def warmup(
    model: Annotated[str, typer.Argument(help=MODEL_HELP)],
    revision: Revision = None,
    yes: Yes = False,
    verbose: Verbose = False,
    debug: Debug = False,
    **given: Any,
) -> None:
    """Compile a model's kernels for a GPU ahead, and try steps of all sizes, with what they take.

    Triton keeps the kernels, so later starts with the same options find them. Use it when a machine
    or a container's image is set up.
    """
    with one_line_errors(debug=debug):
        asked = options_of(EngineOptions, given)
        device = EngineOptions(model=Path(model), **asked).device  # nothing has been fetched yet
        if not device.startswith("cuda"):
            print_text(
                f"{device}: there is nothing to compile ahead; kernels for a GPU are, with "
                "--device cuda\n"
            )
            return
        if verbose:
            log_to_stderr()
        fetch_if_absent(model, revision, yes=yes, options=asked)
        fetch_draft_if_absent(asked, yes=yes)
        _warm_up(EngineOptions(model=find_model_folder(model, revision), **asked))


def _warm_up(options: EngineOptions) -> None:
    # Imported now: they bring PyTorch, which --help doesn't wait for.
    from inferno.engine.build import build_engine  # noqa: PLC0415
    from inferno.engine.warm_up import (  # noqa: PLC0415
        telling_of_first_kernels,
        warm_up,
        warm_up_steps,
        wide_steps,
    )

    began, num_kernels, num_steps = time.monotonic(), 0, 0
    with loading_bar() as bar:

        def note_kernel(name: str, count: int) -> None:
            nonlocal num_kernels
            num_kernels = count
            bar.tell(f"making kernels ready: {count}, {name}")

        def note_step(done: int, total: int) -> None:
            nonlocal num_steps
            num_steps = total
            bar.tell(f"trying step {min(done + 1, total)} of {total}")

        with telling_of_first_kernels(options.device, note_kernel):
            engine = build_engine(options, bar, captures=bar.note_capture)
            try:
                length = engine.max_model_len
                steps = [*warm_up_steps(options, length), *wide_steps(options, length)]
                warm_up(engine, steps, note_step)
                footprint = engine.footprint
            finally:
                engine.close()
    print_text(
        f"{footprint.device}: {num_kernels} kernels are ready, {num_steps} kinds of steps were "
        f"tried, in {time.monotonic() - began:.1f} s\n"
    )
