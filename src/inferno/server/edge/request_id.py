"""A request's name in answers and logs: the client's, if it is harmless, or our own."""

from __future__ import annotations

import random
import re

from inferno.server.edge.asgi import Scope, header_values

_HARMLESS = re.compile(rb"[A-Za-z0-9._:-]{1,128}")


def request_id(scope: Scope) -> str:
    """Return the x-request-id that came in, if it is one and harmless, or a new one."""
    given = header_values(scope, b"x-request-id")
    if len(given) == 1 and _HARMLESS.fullmatch(given[0]):
        return given[0].decode("ascii")
    return f"req-{random.getrandbits(96):024x}"  # no secret, and no call of the system
