"""Delivers the ready message to the URL of the command line, with bounded patience."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from inferno.http_post import Target, post

_MAX_ANSWER = 64 << 10

_log = logging.getLogger("inferno.worker")


@dataclass(frozen=True, slots=True, kw_only=True)
class Callback:
    """The address that the message goes to, and the number of tries.

    timeout         seconds of one attempt, from connecting to the answer.
    first_delay     before the second attempt, doubled after each, up to most_delay.
    """

    target: Target
    num_attempts: int = 10
    timeout: float = 10.0
    first_delay: float = 0.5
    most_delay: float = 30.0


async def deliver(
    callback: Callback,
    message: bytes,
    *,
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> bool:
    """Post the message until it is taken, which a status of 200 to 299 says; False if never."""
    for attempt in range(1, callback.num_attempts + 1):
        problem = await _attempt(callback, message)
        if problem is None:
            _log.info("callback taken", extra={"fields": {"attempt": attempt}})
            return True
        _log.warning("callback failed", extra={"fields": {"attempt": attempt, "why": problem}})
        if attempt < callback.num_attempts:
            await sleep(_delay(callback, attempt))
    _log.error("callback given up: the worker serves, but its receiver may not know of it")
    return False


async def _attempt(callback: Callback, message: bytes) -> str | None:
    """Post the message once; return why it was not taken, if so."""
    status, problem = None, None
    try:
        async with asyncio.timeout(callback.timeout), post(callback.target, message, {}) as answer:
            status = answer.status
            await answer.read(_MAX_ANSWER)  # so that the receiver can say all of it
    except TimeoutError:
        problem = f"no answer within {callback.timeout:g} seconds"
    except OSError as error:
        problem = str(error)
    if status is None:
        return problem
    if 200 <= status < 300:
        return None
    return f"status {status}" + (", and redirects are not followed" if status // 100 == 3 else "")


def _delay(callback: Callback, num_failures: int) -> float:
    """Return seconds to the next attempt, drawn so that many workers don't come at once."""
    doubled = callback.first_delay * 2.0 ** (num_failures - 1)
    return random.uniform(0.5, 1.0) * min(callback.most_delay, doubled)
