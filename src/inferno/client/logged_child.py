"""Run a module as `python -m` does, with all log, warnings and errors as log lines.

The command is `python -m inferno.client.logged_child FORMAT LEVEL MODULE ARGUMENT...`.
"""

from __future__ import annotations

import logging
import os
import runpy
import sys
import threading
from types import TracebackType

from inferno.log_format import LogFormat, make_formatter
from inferno.out_of_memory import EXIT_CODE, RESERVE_BYTES, is_out_of_memory, out_of_memory
from inferno.torch_start import defer_tracing

_logger = logging.getLogger("inferno")


def main() -> None:
    """Run the module that the command line names."""
    _, log_format, level, module, *arguments = sys.argv
    _log_to_stderr(LogFormat(log_format), level.upper())
    sys.argv = [module, *arguments]
    defer_tracing()
    reserve = [bytearray(RESERVE_BYTES)]  # to say something with, once all else is taken
    try:
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    except Exception as problem:
        if not is_out_of_memory(problem):
            raise
        reserve.clear()
        _logger.critical("the process ends: %s", out_of_memory(problem))
        logging.shutdown()
        os._exit(EXIT_CODE)


def _log_to_stderr(log_format: LogFormat, level: str) -> None:
    """Log to standard error at once: nothing may be lost of a process that is about to die."""
    handler = logging.StreamHandler()
    # With what errors say: an engine knows token ids and nobody's words.
    handler.setFormatter(make_formatter(log_format, process="engine", with_messages=True))
    logging.basicConfig(handlers=[handler], level="ERROR" if level == "ERROR" else "WARNING")
    _logger.setLevel(level)
    logging.captureWarnings(True)
    sys.excepthook = _tell
    threading.excepthook = _tell_of_thread


def _tell(kind: type[BaseException], error: BaseException, _: TracebackType | None) -> None:
    _logger.critical("the process ends by an error", exc_info=error)


def _tell_of_thread(failed: threading.ExceptHookArgs) -> None:
    _logger.critical("a thread ends by an error", exc_info=failed.exc_value)


if __name__ == "__main__":
    main()
