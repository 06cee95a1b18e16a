"""Who goes through many items lets others have their turns, and loses no time by it."""

import asyncio

from cosmos_outbox.kernel.clock import monotonic
from cosmos_outbox.outbox.paced import pace
from tests.support.virtual_time import in_virtual_time


async def _gone_through(items: range) -> tuple[list[int], int, float]:
    """The items as they came, how many turns another task had meanwhile, and how long it took."""
    turns = 0

    async def other() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    began, working = monotonic(), asyncio.create_task(other())
    found = [each async for some in pace(items) for each in some]
    working.cancel()
    return found, turns, monotonic() - began


def test_others_have_their_turns_between_many_items_and_no_time_passes() -> None:
    found, turns, seconds = in_virtual_time(_gone_through(range(1_000)))

    assert found == list(range(1_000))
    assert turns >= 10
    assert seconds == 0.0
