"""The parts that all listeners share: logging an outage once, and having someone wait for work."""

import asyncio
import logging

import pytest

from devstack.functions.listener import Outage
from devstack.functions.receiver_pool import ReceiverPool
from devstack.testing import eventually


def test_an_outage_is_logged_once_and_again_after_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    now = [1000.0]
    outage = Outage("the service", lambda: now[0])
    for _ in range(5):
        outage.met(OSError("refused\nwith details"))
        now[0] += 12
    assert caplog.messages == ["waiting for the service: refused"]

    now[0] += 1
    outage.met(OSError("refused"))
    assert caplog.messages == ["waiting for the service: refused"] * 2


def test_another_reason_is_logged_unless_it_comes_at_once(caplog: pytest.LogCaptureFixture) -> None:
    now = [1000.0]
    outage = Outage("the service", lambda: now[0])
    outage.met(OSError("reset"))
    outage.met(OSError("refused"))
    now[0] += 11
    outage.met(OSError("no such entity"))

    assert caplog.messages == ["waiting for the service: reset", "waiting for the service: no such entity"]


def test_the_end_of_an_outage_is_logged_if_its_beginning_was(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    outage = Outage("the service")
    outage.over()
    outage.met(OSError("refused"))
    outage.over()
    outage.over()

    assert caplog.messages == ["waiting for the service: refused", "the service is there again"]


def test_the_pause_grows_to_its_longest_and_starts_again() -> None:
    outage = Outage("the service")
    pauses = []
    for _ in range(6):
        outage.met(OSError())
        pauses.append(outage.pause)
    assert pauses == [0.4, 0.8, 1.6, 2.0, 2.0, 2.0]

    outage.over()
    outage.met(OSError())
    assert outage.pause == 0.4


class Workers:
    """Workers that take a piece of work each, and end when there are too many of them."""

    def __init__(self, limit: int, spare: int) -> None:
        self.work: asyncio.Queue[asyncio.Event] = asyncio.Queue()
        self.pool = ReceiverPool(limit, spare, self._run)

    async def _run(self) -> None:
        while True:
            done = await self.work.get()
            with self.pool.busy():
                await done.wait()
            if self.pool.has_too_many:
                return

    async def close(self) -> None:
        self.pool.close()
        tasks = list(self.pool.tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


@pytest.mark.parametrize(
    ("pieces", "workers_then", "left"), [(0, 2, 0), (1, 3, 0), (2, 4, 0), (3, 4, 0), (6, 4, 2)]
)
async def test_someone_waits_while_others_are_busy_up_to_the_limit(
    pieces: int, workers_then: int, left: int
) -> None:
    workers = Workers(limit=4, spare=2)
    for _ in range(pieces):
        workers.work.put_nowait(asyncio.Event())

    await eventually(lambda: (len(workers.pool.tasks), workers.work.qsize()) == (workers_then, left))
    await workers.close()


async def test_workers_that_are_too_many_end() -> None:
    workers = Workers(limit=4, spare=1)
    done = asyncio.Event()
    for _ in range(4):
        workers.work.put_nowait(done)
    await eventually(lambda: len(workers.pool.tasks) == 4)

    done.set()

    await eventually(lambda: len(workers.pool.tasks) == 1)
    await workers.close()


async def test_a_closed_pool_adds_no_workers() -> None:
    workers = Workers(limit=4, spare=1)
    workers.pool.close()
    workers.work.put_nowait(asyncio.Event())
    await eventually(workers.work.empty)

    assert len(workers.pool.tasks) == 1
    await workers.close()
