"""A sender that comes, fails or is closed in the very moment of something else leaves nobody waiting for ever."""

import asyncio

import pytest
from azure.servicebus.exceptions import ServiceBusConnectionError

from cosmos_outbox.servicebus.senders import Sender
from tests.unit.test_senders import Pool, settled, soon


async def test_who_asks_in_the_moment_in_which_a_link_opens_gets_a_link_of_its_own() -> None:
    pool = Pool(most=2)

    async def two() -> tuple[Sender, Sender]:
        return await pool.senders.take(), await pool.senders.take()

    asking = asyncio.create_task(two())
    (link,) = await pool.opening(1)
    link.opened.set_result(None)
    links = await pool.opening(2)
    links[1].opened.set_result(None)
    first, second = await soon(asking)
    assert first is not second


@pytest.mark.parametrize("steps", range(12))
async def test_who_is_cancelled_about_the_moment_in_which_an_opening_fails_is_cancelled(steps: int) -> None:
    pool = Pool(most=1)
    waiting = asyncio.create_task(pool.senders.take())
    (link,) = await pool.opening(1)
    link.opened.set_exception(ServiceBusConnectionError())
    for _ in range(steps):
        await asyncio.sleep(0)
    has_not_heard = waiting.cancel()
    with pytest.raises(asyncio.CancelledError if has_not_heard else ServiceBusConnectionError):
        await soon(waiting)


async def test_one_that_waits_no_more_keeps_no_other_from_hearing_that_there_is_no_sender() -> None:
    pool = Pool(most=1)
    gone, there = (asyncio.create_task(pool.senders.take()) for _ in range(2))
    (link,) = await pool.opening(1)
    gone.cancel()
    link.opened.set_exception(ServiceBusConnectionError())
    with pytest.raises(ServiceBusConnectionError):
        await soon(there)


async def test_a_question_for_the_limits_that_is_broken_off_leaves_no_link_that_is_half_open() -> None:
    """The service had closed the link while it was idle: the question opens it anew."""
    pool = Pool(most=1)
    await pool.senders.give_back(await pool.with_one_open())
    [link] = pool.client.links
    link.opened = asyncio.get_running_loop().create_future()
    asking = asyncio.create_task(pool.senders.limits())
    await settled()
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await soon(asking)
    assert link.closed
    asyncio.create_task(pool.senders.take())  # noqa: RUF006 - the pool keeps what waits
    await pool.opening(2)


async def test_after_an_outage_that_is_over_links_are_opened_side_by_side_again() -> None:
    pool = Pool(most=3)
    asking = asyncio.create_task(pool.senders.limits())
    (link,) = await pool.opening(1)
    link.opened.set_exception(ServiceBusConnectionError())
    with pytest.raises(ServiceBusConnectionError):
        await soon(asking)

    taking = asyncio.create_task(pool.senders.take())
    links = await pool.opening(2)
    links[1].opened.set_result(None)
    sender = await soon(taking)
    sender.usable = False  # as after a send that got no answer
    await pool.senders.give_back(sender)
    asyncio.create_task(pool.senders.limits(batches=3))  # noqa: RUF006 - the pool keeps what waits
    await pool.opening(2 + 3)


async def test_a_close_closes_what_is_idle() -> None:
    pool = Pool(most=1)
    await pool.senders.give_back(await pool.with_one_open())
    await pool.senders.close()
    assert [link.closed for link in pool.client.links] == [True]


async def test_who_asks_after_a_close_does_not_wait_for_an_opening_that_the_close_has_ended() -> None:
    """A page that is still under way then: the client that was closed tells it at once that there is no link."""
    pool = Pool(most=1)
    waiting = asyncio.create_task(pool.senders.take())
    await pool.opening(1)
    await pool.senders.close()
    with pytest.raises(ValueError, match="closed"):
        await soon(waiting)
    again = asyncio.create_task(pool.senders.take())
    links = await pool.opening(2)
    links[1].opened.set_exception(ValueError("the client was closed"))
    with pytest.raises(ValueError, match="closed"):
        await soon(again)


async def test_the_places_of_all_that_were_closed_after_a_failure_are_free_again() -> None:
    pool = Pool(most=2)
    failing, idle = await pool.with_one_open(), asyncio.create_task(pool.senders.take())
    links = await pool.opening(2)
    links[1].opened.set_result(None)
    await pool.senders.give_back(await soon(idle))
    failing.usable = False  # as after a send that got no answer
    await pool.senders.give_back(failing)
    assert [link.closed for link in links] == [True, True]

    taking = [asyncio.create_task(pool.senders.take()) for _ in range(2)]
    for link in (await pool.opening(4))[2:]:
        link.opened.set_result(None)
    for task in taking:
        await soon(task)
    asyncio.create_task(pool.senders.take())  # noqa: RUF006 - the pool keeps what waits
    await pool.opening(4)
