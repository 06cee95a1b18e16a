"""Whoever waits for a sender gets the next free one; no failure, cancellation or close leaves anybody waiting."""

import asyncio
from typing import Any, TypeVar, cast

import pytest
from azure.servicebus.exceptions import ServiceBusConnectionError

from cosmos_outbox.servicebus.senders import Limits, Sender, Senders

T = TypeVar("T")

SOON = 2.0


class FakeBatch:
    max_size_in_bytes = 1_000


class FakeLink:
    """A sender of the SDK whose link opens, or fails to open, when the test says so."""

    _max_message_size_on_link = 2_000

    def __init__(self) -> None:
        self.opened: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.closed = False
        self.sending: asyncio.Future[None] | None = None

    async def create_message_batch(self) -> FakeBatch:
        await asyncio.shield(self.opened)
        return FakeBatch()

    async def send_messages(self, _message: Any, *, timeout: float) -> None:  # noqa: ASYNC109 - the SDK's parameter
        assert timeout > 0
        self.sending = asyncio.get_running_loop().create_future()
        await self.sending

    async def close(self) -> None:
        self.closed = True


class FakeClient:
    def __init__(self) -> None:
        self.links: list[FakeLink] = []

    def get_topic_sender(self, _topic: str) -> FakeLink:
        self.links.append(FakeLink())
        return self.links[-1]


class Pool:
    """Senders over a fake client."""

    def __init__(self, most: int) -> None:
        self.client = FakeClient()
        self.senders = Senders(cast(Any, self.client), "topic", most)

    async def opening(self, count: int) -> list[FakeLink]:
        await settled()
        assert len(self.client.links) == count
        return self.client.links

    async def with_one_open(self) -> Sender:
        """One sender, which the caller has taken."""
        taking = asyncio.create_task(self.senders.take())
        (link,) = await self.opening(1)
        link.opened.set_result(None)
        return await soon(taking)


async def soon(task: "asyncio.Future[T]") -> T:
    async with asyncio.timeout(SOON):
        return await task


async def settled() -> None:
    """Every task that can run has run."""
    for _ in range(20):
        await asyncio.sleep(0)


async def test_nobody_waits_for_a_connection_while_another_sender_becomes_free() -> None:
    pool = Pool(most=3)
    first = await pool.with_one_open()
    waiting = [asyncio.create_task(pool.senders.take()) for _ in range(2)]
    await pool.opening(3)

    await pool.senders.give_back(first)
    assert await soon(waiting[0]) is first
    await pool.senders.give_back(first)
    assert await soon(waiting[1]) is first


async def test_a_sender_whose_turn_was_not_needed_is_there_for_the_next() -> None:
    pool = Pool(most=2)
    first = await pool.with_one_open()
    waiting = asyncio.create_task(pool.senders.take())
    links = await pool.opening(2)
    await pool.senders.give_back(first)
    assert await soon(waiting) is first

    links[1].opened.set_result(None)
    await settled()
    assert (await soon(asyncio.create_task(pool.senders.take()))) is not first
    assert len(pool.client.links) == 2


async def test_there_are_never_more_than_the_most() -> None:
    pool = Pool(most=2)
    for _ in range(5):
        asyncio.create_task(pool.senders.take())  # noqa: RUF006 - the pool keeps what waits
    await settled()
    for link in pool.client.links:
        link.opened.set_result(None)
    await settled()
    assert len(pool.client.links) == 2
    await pool.senders.close()


async def test_when_no_link_can_be_opened_all_who_wait_hear_of_it() -> None:
    pool = Pool(most=2)
    waiting = [asyncio.create_task(pool.senders.take()) for _ in range(3)]
    links = await pool.opening(2)
    links[0].opened.set_exception(ServiceBusConnectionError())
    await settled()
    assert not any(task.done() for task in waiting), "the other link may still open"
    links[1].opened.set_exception(ServiceBusConnectionError())
    for task in waiting:
        with pytest.raises(ServiceBusConnectionError):
            await soon(task)
    assert all(link.closed for link in links)


async def test_one_open_sender_serves_all_when_the_broker_takes_no_more_connections() -> None:
    pool = Pool(most=2)
    first = await pool.with_one_open()
    waiting = asyncio.create_task(pool.senders.take())
    links = await pool.opening(2)
    links[1].opened.set_exception(ServiceBusConnectionError())
    await settled()
    assert not waiting.done()
    await pool.senders.give_back(first)
    assert await soon(waiting) is first


async def test_the_place_of_a_failed_sender_goes_to_whoever_waits() -> None:
    pool = Pool(most=1)
    first = await pool.with_one_open()
    waiting = asyncio.create_task(pool.senders.take())
    await settled()
    sending = asyncio.create_task(first.send([cast(Any, "message")]))
    await settled()
    sending.cancel()
    with pytest.raises(asyncio.CancelledError):
        await soon(sending)

    await pool.senders.give_back(first)
    links = await pool.opening(2)
    assert links[0].closed, "whether its send is still on its way is not known"
    links[1].opened.set_result(None)
    assert await soon(waiting) is not first


async def test_a_sender_that_comes_in_the_moment_of_a_cancellation_is_not_lost() -> None:
    pool = Pool(most=1)
    first = await pool.with_one_open()
    waiting = asyncio.create_task(pool.senders.take())
    await settled()
    await pool.senders.give_back(first)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await soon(waiting)
    assert await soon(asyncio.create_task(pool.senders.take())) is first


async def test_a_cancelled_wait_takes_no_turn() -> None:
    pool = Pool(most=1)
    first = await pool.with_one_open()
    gone, there = (asyncio.create_task(pool.senders.take()) for _ in range(2))
    await settled()
    gone.cancel()
    await settled()
    await pool.senders.give_back(first)
    assert await soon(there) is first


async def test_the_limits_are_asked_of_the_open_link() -> None:
    pool = Pool(most=1)
    asking = asyncio.create_task(pool.senders.limits())
    (link,) = await pool.opening(1)
    link.opened.set_result(None)
    assert await soon(asking) == Limits(batch_bytes=1_000, message_bytes=2_000)
    await soon(asyncio.create_task(pool.senders.limits()))
    assert len(pool.client.links) == 1


async def test_the_first_links_are_opened_side_by_side_for_the_batches_that_follow() -> None:
    pool = Pool(most=3)
    asking = asyncio.create_task(pool.senders.limits(batches=5))
    links = await pool.opening(3)
    links[1].opened.set_result(None)
    await soon(asking)
    for link in (links[0], links[2]):
        link.opened.set_result(None)
    await settled()

    taken = [await soon(asyncio.create_task(pool.senders.take())) for _ in range(3)]
    assert len(set(map(id, taken))) == 3
    assert len(pool.client.links) == 3
    await soon(asyncio.create_task(pool.senders.give_back(taken[0])))
    await soon(asyncio.create_task(pool.senders.limits(batches=5)))
    assert len(pool.client.links) == 3, "a link is open: what is needed besides is opened when it is needed"


async def test_while_the_topic_is_away_one_link_is_tried_at_a_time() -> None:
    pool = Pool(most=3)
    asking = asyncio.create_task(pool.senders.limits(batches=3))
    for link in await pool.opening(3):
        link.opened.set_exception(ServiceBusConnectionError())
    with pytest.raises(ServiceBusConnectionError):
        await soon(asking)

    asking = asyncio.create_task(pool.senders.limits(batches=3))
    links = await pool.opening(4)
    links[3].opened.set_result(None)
    await soon(asking)


async def test_a_cancelled_question_for_the_limits_loses_no_link_that_is_being_opened() -> None:
    pool = Pool(most=2)
    asking = asyncio.create_task(pool.senders.limits(batches=2))
    links = await pool.opening(2)
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await soon(asking)
    for link in links:
        link.opened.set_result(None)
    await settled()
    for _ in range(2):
        await soon(asyncio.create_task(pool.senders.take()))
    assert len(pool.client.links) == 2


async def test_a_close_closes_what_is_idle_and_what_is_being_opened() -> None:
    pool = Pool(most=2)
    await pool.senders.give_back(await pool.with_one_open())
    await soon(asyncio.create_task(pool.senders.take()))
    waiting = asyncio.create_task(pool.senders.take())
    links = await pool.opening(2)

    await pool.senders.close()
    with pytest.raises(ValueError, match="closed"):
        await soon(waiting)
    assert [link.closed for link in links] == [False, True], "what is lent is closed by whoever has it"


async def test_links_that_fail_in_the_same_moment_leave_nobody_waiting() -> None:
    pool = Pool(most=2)
    waiting = [asyncio.create_task(pool.senders.take()) for _ in range(3)]
    for link in await pool.opening(2):
        link.opened.set_exception(ServiceBusConnectionError())
    for task in waiting:
        with pytest.raises(ServiceBusConnectionError):
            await soon(task)


async def test_who_asks_again_at_once_after_a_failure_gets_a_new_attempt() -> None:
    pool = Pool(most=1)

    async def twice() -> Sender:
        with pytest.raises(ServiceBusConnectionError):
            await pool.senders.take()
        return await pool.senders.take()

    asking = asyncio.create_task(twice())
    (link,) = await pool.opening(1)
    link.opened.set_exception(ServiceBusConnectionError())
    links = await pool.opening(2)
    links[1].opened.set_result(None)
    await soon(asking)


async def test_who_waits_hears_that_there_can_be_no_sender(monkeypatch: pytest.MonkeyPatch) -> None:
    pool = Pool(most=1)

    def refuses(_topic: str) -> FakeLink:
        raise ValueError("the topic is not the one in the connection string")

    monkeypatch.setattr(pool.client, "get_topic_sender", refuses)
    with pytest.raises(ValueError, match="not the one"):
        await soon(asyncio.create_task(pool.senders.take()))


async def test_after_a_renewal_no_link_is_used_that_was_open_before() -> None:
    pool = Pool(most=2)
    lent, idle = await pool.with_one_open(), asyncio.create_task(pool.senders.take())
    links = await pool.opening(2)
    links[1].opened.set_result(None)
    await pool.senders.give_back(await soon(idle))

    await pool.senders.renew()
    assert [link.closed for link in links] == [False, True]
    await pool.senders.give_back(lent)
    assert links[0].closed

    taking = asyncio.create_task(pool.senders.take())
    links = await pool.opening(3)
    links[2].opened.set_result(None)
    sender = await soon(taking)
    await pool.senders.give_back(sender)
    assert await soon(asyncio.create_task(pool.senders.take())) is sender
