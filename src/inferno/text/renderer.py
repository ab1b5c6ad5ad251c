"""Render chat templates in child processes, within bounds of number, time and memory.

Short and long renderings don't wait for each other: each kind has child processes of its own. Every
rendering begins as a short one; when it takes too long, it is ended there and begun again as a long
one.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from concurrent.futures import Future
from datetime import datetime
from pathlib import Path
from typing import Any

from inferno.errors import InvalidRequest, Overloaded, TemplateError
from inferno.limited.pool import FIRST, LATER, Bounds, ChildProcesses, Job
from inferno.limited.process import Program
from inferno.text.special_token_escape import without_marks

CPU_SECONDS = 1.5
SHORT_CPU_SECONDS = 0.05
SHORT_UNKNOWN_CPU_SECONDS = 0.15  # with a template that comes with its messages and is compiled
SHORT_REQUEST_BYTES = 2**18
# Only for a machine too busy to give a child its time: the clock on the wall is unfair.
WALL_SECONDS = 10.0
LONG_WALL_SECONDS = 60.0
LONG_NICENESS = 2  # they compete with the engine for the processor
MAX_WAITING = 256
MAX_CHARS = 4 * 2**20
_BYTES_PER_CHAR = 12  # a character outside the basic plane is two \uXXXX in JSON
_FRAME_BYTES = 8192
_PROGRAM = Program(
    script=Path(__file__).resolve().with_name("render_child.py"),
    modules=("jinja2", "markupsafe", "inferno"),
    purpose="renders chat templates",
    error=TemplateError,
)


class TemplateRenderer:
    """The child processes that render templates, started when needed, and again when one ends.

    known           the model's own templates, which children compile before the first request.
    cpu_seconds     the time that one rendering may take; its text may have max_chars characters.

    It may be used from several threads; after a fork, the new process starts children of its own.
    """

    def __init__(
        self,
        known: Iterable[str] = (),
        *,
        cpu_seconds: float = CPU_SECONDS,
        max_chars: int = MAX_CHARS,
    ) -> None:
        self._known = frozenset(known)
        self._max_chars = max_chars
        self._children = ChildProcesses(
            _PROGRAM,
            _Outcomes(cpu_seconds),
            lambda: _bounds(cpu_seconds, max_chars),
            sorted(self._known),
        )

    @property
    def pids(self) -> list[int]:
        """Return the process ids of the children that render."""
        return self._children.pids

    @property
    def num_waiting(self) -> int:
        """Return how many renderings no child has begun."""
        return self._children.num_waiting

    def render(self, template: str, variables: Mapping[str, Any]) -> str:
        """Return the template's text; TemplateError if it fails or takes too much.

        Raises InvalidRequest if the template itself refuses the messages, by raise_exception, and
        Overloaded where too many renderings wait already.
        """
        return self.submit(template, variables).result()

    def submit(self, template: str, variables: Mapping[str, Any]) -> Future[str]:
        """Begin a rendering as `render` does, and return its future; raises Overloaded at once."""
        return self.start(self.prepare(template, variables))

    def prepare(self, template: str, variables: Mapping[str, Any]) -> Job:
        """Prepare a rendering to be started, which takes as long as the variables are large.

        Renderings of the model's own templates go before those of templates in requests.
        """
        is_known = template in self._known
        body = {
            "template": template,
            "variables": variables,
            "now": datetime.now().isoformat(),
            "max_chars": self._max_chars,
        }
        return self._children.job(
            json.dumps(body).encode(),
            SHORT_CPU_SECONDS if is_known else SHORT_UNKNOWN_CPU_SECONDS,
            FIRST if is_known else LATER,
        )

    def start(self, job: Job) -> Future[str]:
        """Have a job rendered, and return its future; raises Overloaded at once.

        Cancelling the future takes the job off the queue; a job under way goes on to its end.
        """
        return self._children.start(job)

    def close(self) -> None:
        """End the children and their renderings. The next rendering starts new children."""
        self._children.close()


class _Outcomes:
    """The outcomes of renderings that have no text; see `Outcomes`."""

    def __init__(self, cpu_seconds: float) -> None:
        self._cpu_seconds = cpu_seconds

    def text_of(self, answer: dict[str, Any]) -> str:
        match answer:
            case {"text": str(text)}:
                return text
            case {"refused": str(words)}:
                raise InvalidRequest(
                    f"the model's chat template refuses these messages: {without_marks(words)}",
                    param="messages",
                )
            case {"error": str(words)}:
                raise TemplateError(
                    "the model's chat template failed on these messages: " + without_marks(words)
                )
        raise TemplateError("the chat template's process gave no sensible answer")

    def took_too_much(self) -> TemplateError:
        return TemplateError(
            f"the model's chat template takes more than {self._cpu_seconds:g} seconds or too "
            "much memory and was stopped; give the model another chat_template.jinja"
        )

    def busy(self, num_waiting: int) -> Overloaded:
        return Overloaded(
            f"{num_waiting} conversations wait for the chat template already; try again"
        )

    def closed(self) -> TemplateError:
        return TemplateError("the model was closed while its chat template was being rendered")

    def failed(self, problem: Exception) -> TemplateError:
        return TemplateError(f"the chat template's process could not be asked: {problem}")


def _bounds(cpu_seconds: float, max_chars: int) -> Bounds:
    return Bounds(
        cpu_seconds=cpu_seconds,
        wall_seconds=(WALL_SECONDS, LONG_WALL_SECONDS),
        short_bytes=SHORT_REQUEST_BYTES,
        max_bytes=max_chars * _BYTES_PER_CHAR + _FRAME_BYTES,
        max_waiting=MAX_WAITING,
        long_niceness=LONG_NICENESS,
    )
