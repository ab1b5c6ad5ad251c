"""Render chat templates in a child process, within bounds of time and memory."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import weakref
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from inferno.errors import InvalidRequest, TemplateError

CPU_SECONDS = 1.5
# Only for a machine too busy to give the child its time: the clock on the wall is unfair.
WALL_SECONDS = 10.0
MAX_CHARS = 4 * 2**20
_CHILD = Path(__file__).with_name("render_child.py")
_BYTES_PER_CHAR = 12  # a character outside the basic plane is two \uXXXX in JSON
_FRAME_BYTES = 8192


class TemplateRenderer:
    """One child process, started when first needed and again after it had to be stopped.

    cpu_seconds     what one rendering may take; it may make max_chars characters.
    """

    def __init__(self, *, cpu_seconds: float = CPU_SECONDS, max_chars: int = MAX_CHARS) -> None:
        self._cpu_seconds = cpu_seconds
        self._max_chars = max_chars
        self._lock = threading.Lock()
        self._child: subprocess.Popen[bytes] | None = None
        self._finalizer: weakref.finalize[..., TemplateRenderer] | None = None

    def render(self, template: str, variables: Mapping[str, Any]) -> str:
        """The template's text; TemplateError if it fails or takes too much.

        InvalidRequest if the template itself refuses the messages, by raise_exception.
        """
        request = {
            "template": template,
            "variables": variables,
            "cpu_seconds": self._cpu_seconds,
            "max_chars": self._max_chars,
        }
        with self._lock:
            answer = self._ask(json.dumps(request).encode() + b"\n")
        match _parse(answer):
            case {"text": str(text)}:
                return text
            case {"refused": str(words)}:
                raise InvalidRequest(
                    f"the model's chat template refuses these messages: {words}", param="messages"
                )
            case {"error": str(words)}:
                raise TemplateError(f"the model's chat template failed on these messages: {words}")
        raise TemplateError("the chat template's process gave no sensible answer")

    def close(self) -> None:
        """End the child process, if there is one. The next rendering starts another."""
        with self._lock:
            self._end_child()

    def _ask(self, request: bytes) -> bytes:
        child = self._running_child()
        assert child.stdin is not None
        assert child.stdout is not None
        answer = b""
        try:
            # A child that ends in mid-request breaks the pipe, and gives no answer.
            with _killed_after(WALL_SECONDS, child), suppress(BrokenPipeError):
                child.stdin.write(request)
                child.stdin.flush()
                answer = child.stdout.readline(self._max_chars * _BYTES_PER_CHAR + _FRAME_BYTES)
        finally:
            if not answer.endswith(b"\n"):
                self._end_child()
        if not answer.endswith(b"\n"):
            raise TemplateError(
                f"the model's chat template takes more than {self._cpu_seconds:g} seconds or too "
                "much memory and was stopped; give the model another chat_template.jinja"
            )
        return answer

    def _running_child(self) -> subprocess.Popen[bytes]:
        if self._child is None or self._child.poll() is not None:
            self._end_child()
            self._child = _start_child()
            self._finalizer = weakref.finalize(self, _end, self._child)
        return self._child

    def _end_child(self) -> None:
        if self._finalizer is not None:
            self._finalizer()
        self._child = None


def _start_child() -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        # -P: the modules beside the script don't pass for the standard library's.
        [sys.executable, "-P", str(_CHILD)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        process_group=0,  # Ctrl+C in the terminal is the parent's business
    )


def _end(child: subprocess.Popen[bytes]) -> None:
    child.kill()
    child.wait()
    for pipe in (child.stdin, child.stdout):
        with suppress(BrokenPipeError):  # what is left of a request has no reader
            if pipe is not None:
                pipe.close()


def _parse(answer: bytes) -> object:
    try:
        return json.loads(answer)
    except (ValueError, RecursionError):
        return None


@contextmanager
def _killed_after(seconds: float, child: subprocess.Popen[bytes]) -> Iterator[None]:
    timer = threading.Timer(seconds, child.kill)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()
