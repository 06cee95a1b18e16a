"""A session is held no longer than it is worked on, whatever becomes of the renewals of its lock."""

import asyncio
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, cast

import pytest
from azure.servicebus.exceptions import ServiceBusConnectionError

from cosmos_outbox.kernel.clock import utc_now
from cosmos_outbox.servicebus.sessions import renewed
from tests.support.virtual_time import in_virtual_time


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


@dataclass
class Locked:
    """Its lock lasts for 30 seconds. ``refuses``: so many of the first renewals fail."""

    refuses: int = 0
    locked_until_utc: datetime = field(default_factory=lambda: utc_now() + timedelta(seconds=30))
    asked: list[float] = field(default_factory=list)

    async def renew_lock(self) -> None:
        self.asked.append(asyncio.get_running_loop().time())
        if len(self.asked) <= self.refuses:
            raise ServiceBusConnectionError
        self.locked_until_utc = utc_now() + timedelta(seconds=30)


@pytest.mark.parametrize(
    ("refuses", "asked"), [(0, [10, 20, 30, 40, 50, 60, 70, 80, 90]), (2, [10, 16.7, 21.1, 31.1])]
)
def test_a_lock_is_renewed_at_a_third_of_its_time_for_as_long_as_a_message_is_handled(
    refuses: int, asked: list[float]
) -> None:
    async def story() -> list[float]:
        session = Locked(refuses)
        async with renewed(cast(Any, session)):
            await asyncio.sleep(asked[-1] + 5)
        await asyncio.sleep(60)
        return session.asked

    assert in_virtual_time(story()) == pytest.approx(asked, abs=0.1), "and no more once it is handled"


def test_a_renewal_that_takes_a_moment_to_end_has_ended_before_its_session_is_closed() -> None:
    @dataclass
    class Slow(Locked):
        ended: bool = False

        async def renew_lock(self) -> None:
            try:
                await asyncio.Event().wait()
            finally:
                await asyncio.sleep(1)
                self.ended = True

    async def story() -> None:
        session = Slow()
        async with renewed(cast(Any, session)):
            await asyncio.sleep(15)
        assert session.ended

    in_virtual_time(story())
