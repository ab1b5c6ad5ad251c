"""Cause faults on purpose, for tests of what must survive: INFERNO_FAULTS="step:hang@3"."""

from __future__ import annotations

import logging
import os
import re
import time
from dataclasses import dataclass

from inferno.errors import InvalidRequest

VARIABLE = "INFERNO_FAULTS"
POINTS = ("load", "step", "ipc.send")
EXIT_CODE = 70
_logger = logging.getLogger("inferno")
_FAULT = re.compile(r"([a-z.]+):([a-z]+)(?:@([1-9][0-9]{0,8}))?")


class Fault(Exception):
    """An exception that a fault point raises when told to fail."""


@dataclass(slots=True)
class _Order:
    point: str
    action: str
    turn: int | None  # the visit at which it happens, or None for each


class Faults:
    """The faults that are to happen, each at some visit to a named point in the code.

    A fault is POINT:ACTION@TURN, or POINT:ACTION for every visit; faults are parted by semicolons.
    Actions are hang, exit (the process, at once), fail (an exception) and drop (what was to be
    sent). With @TURN a fault happens once, and not again in an engine that replaces one it killed.
    """

    def __init__(self, text: str, *, num_starts: int = 0) -> None:
        orders = [_parse(each) for each in text.split(";") if each.strip()]
        self._orders = [order for order in orders if order.turn is None or not num_starts]
        self._visits = dict.fromkeys(POINTS, 0)
        if orders:
            _logger.warning("%s is set: this engine fails on purpose (%s)", VARIABLE, text)

    def visit(self, point: str) -> bool:
        """Note that a point is reached; return whether what is to be sent there must be dropped."""
        if not self._orders:
            return False
        self._visits[point] += 1
        due = [order.action for order in self._orders if self._is_due(order, point)]
        if "hang" in due:
            while True:
                time.sleep(60)
        if "exit" in due:
            os._exit(EXIT_CODE)
        if "fail" in due:
            raise Fault(f"{VARIABLE} says that {point} fails")
        return "drop" in due

    def _is_due(self, order: _Order, point: str) -> bool:
        return order.point == point and order.turn in (None, self._visits[point])


def _parse(text: str) -> _Order:
    match = _FAULT.fullmatch(text.strip())
    actions = {"hang", "exit", "fail"} | ({"drop"} if match and match[1] == "ipc.send" else set())
    if match is None or match[1] not in POINTS or match[2] not in actions:
        raise InvalidRequest(
            f"{VARIABLE} holds {text.strip()!r}, which is no fault: expected POINT:ACTION@TURN, "
            f"with a point of {', '.join(POINTS)}, and hang, exit, fail or (for ipc.send) drop",
            param=VARIABLE,
        )
    return _Order(match[1], match[2], int(match[3]) if match[3] else None)
