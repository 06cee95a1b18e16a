"""Health that is asked for often looks at the store seldom, and does not call an old answer a new one."""

import asyncio
import traceback

import pytest

from cosmos_outbox.operations.recent import Recent
from cosmos_outbox.outbox.errors import Throttled, Unavailable
from cosmos_outbox.settings.errors import Misconfigured


class Store:
    looks = 0
    away = False

    async def check(self) -> None:
        self.looks += 1
        await asyncio.sleep(0)
        if self.away:
            raise Unavailable("away")


async def test_many_at_once_and_many_in_a_row_are_one_look() -> None:
    store = Store()
    recent = Recent(store.check, seconds=60)
    await asyncio.gather(*(recent() for _ in range(50)))
    for _ in range(50):
        await recent()
    assert store.looks == 1


async def test_a_failure_is_told_to_all_and_looked_at_again() -> None:
    store = Store()
    store.away = True
    recent = Recent(store.check, seconds=0)
    with pytest.raises(Unavailable):
        await recent()
    store.away = False
    await recent()
    patient = Recent(store.check, seconds=60)
    store.away = True
    for _ in range(3):
        with pytest.raises(Unavailable):
            await patient()
    assert store.looks == 3


async def test_a_failure_that_is_told_often_stays_as_small_as_it_is() -> None:
    """One error that is raised again and again gets a line more of its traceback each time, and keeps all callers."""
    store = Store()
    store.away = True
    recent, told = Recent(store.check, seconds=60), list[Unavailable]()
    for _ in range(3):
        with pytest.raises(Unavailable, match="away") as raised:
            await recent()
        told.append(raised.value)
    assert len({len(list(traceback.walk_tb(error.__traceback__))) for error in told}) == 1
    assert len(set(map(id, told))) == 3, "two callers at once would change one another's"


@pytest.mark.parametrize(
    "failure", [Throttled("slow down", retry_after_seconds=7.0), Misconfigured("a setting")]
)
async def test_a_failure_is_told_with_all_it_says(failure: Exception) -> None:
    async def failing() -> None:
        raise failure

    with pytest.raises(type(failure)) as raised:
        await Recent(failing, seconds=60)()
    assert (str(raised.value), vars(raised.value)) == (str(failure), vars(failure))


async def test_a_bug_is_raised_each_time() -> None:
    async def broken() -> None:
        raise ZeroDivisionError

    recent = Recent(broken, seconds=60)
    for _ in range(2):
        with pytest.raises(ZeroDivisionError):
            await recent()


async def test_those_who_waited_for_a_look_longer_than_its_age_take_its_answer() -> None:
    answers, looks = asyncio.Event(), []

    async def slow() -> None:
        looks.append(1)
        await answers.wait()

    recent = Recent(slow, seconds=0.05)
    asking = [asyncio.create_task(recent()) for _ in range(5)]
    await asyncio.sleep(0.1)
    answers.set()
    await asyncio.gather(*asking)
    assert len(looks) == 1, "or each would wait for those before it, while the store is away"
