"""A lock is renewed while someone works under it, for as long as the host's settings allow, and no longer."""

import asyncio
import contextlib
import logging
import math
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import UTC, datetime

from azure.servicebus.exceptions import ServiceBusError

from devstack.functions.listener import first_line

MIN_PAUSE_SECONDS = 0.05

_log = logging.getLogger(__name__)

Renew = Callable[[], Awaitable[datetime]]
"""Renews the lock; until when it is held now."""


@contextlib.asynccontextmanager
async def lock_kept(locked_until: datetime | None, renew: Renew, *, longest: float) -> AsyncIterator[None]:
    """Renew at half of the remaining time, for at most ``longest`` seconds (0: never, infinite: as long as it takes).

    A lock that is lost is logged and not renewed again; the work under it goes on, and its settlement will
    fail.
    """
    if longest <= 0 or locked_until is None:
        yield
        return
    over = asyncio.Event()
    renewing = asyncio.create_task(_renew_for(locked_until, renew, longest, over))
    try:
        yield
    finally:
        over.set()
        renewing.cancel()
        await asyncio.wait([renewing])


async def _renew_for(locked_until: datetime, renew: Renew, longest: float, over: asyncio.Event) -> None:
    # The SDK can lose a cancellation that comes as an answer does (``asyncio.wait_for`` of Python 3.11): a
    # renewal that went on would hold a session whose messages nobody gets.
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(None if math.isinf(longest) else longest):
            while not over.is_set():
                remaining = (locked_until - datetime.now(UTC)).total_seconds()
                await asyncio.sleep(max(remaining / 2, MIN_PAUSE_SECONDS))
                try:
                    locked_until = await renew()
                except (ServiceBusError, OSError, ValueError) as error:
                    _log.warning("a lock was not renewed: %s", first_line(error))
                    return
