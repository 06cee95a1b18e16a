"""A lock is kept no longer than someone works under it, whatever becomes of its renewals."""

import asyncio
from datetime import UTC, datetime, timedelta

from devstack.functions.locks import lock_kept


async def test_a_renewal_that_loses_its_cancellation_is_the_last_one() -> None:
    """As azure-servicebus loses it, which reads with ``asyncio.wait_for``: that has this fault in Python 3.11."""
    asked, renewals = asyncio.Event(), 0

    async def renew() -> datetime:
        nonlocal renewals
        renewals += 1
        asked.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            asked.clear()
        return datetime.now(UTC)

    until = datetime.now(UTC) + timedelta(seconds=0.01)
    async with asyncio.timeout(5):
        async with lock_kept(until, renew, longest=60.0):
            await asked.wait()
    assert renewals == 1
