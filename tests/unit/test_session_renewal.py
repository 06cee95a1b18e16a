"""A session is held no longer than it is worked on, whatever becomes of the renewals of its lock."""

import asyncio
from datetime import datetime, timedelta
from typing import Any, cast

from cosmos_outbox.kernel.clock import utc_now
from cosmos_outbox.servicebus.sessions import renewed


class Session:
    """Loses a cancellation, as azure-servicebus can: it reads with ``asyncio.wait_for``, where Python 3.11 loses it."""

    def __init__(self) -> None:
        self.asked = asyncio.Event()
        self.renewals = 0

    @property
    def locked_until_utc(self) -> datetime:
        return utc_now() + timedelta(seconds=0.01)

    async def renew_lock(self) -> None:
        self.renewals += 1
        self.asked.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.asked.clear()


async def test_a_renewal_that_loses_its_cancellation_is_the_last_one() -> None:
    session = Session()
    async with asyncio.timeout(5):
        async with renewed(cast(Any, session)):
            await session.asked.wait()
    assert session.renewals == 1
