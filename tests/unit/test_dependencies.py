"""That a service is away is an answer, in words for an operator; many who ask cost one look."""

import asyncio

import pytest

from cosmos_outbox.operations import dependencies
from cosmos_outbox.operations.dependencies import Dependency
from cosmos_outbox.outbox.errors import Unavailable
from cosmos_outbox.settings.inspection import CannotCheck


class Service:
    def __init__(self) -> None:
        self.looks = 0
        self.failure: Exception | None = None
        self.answers = asyncio.Event()
        self.answers.set()

    async def check(self) -> None:
        self.looks += 1
        await self.answers.wait()
        if self.failure:
            raise self.failure


async def test_many_who_ask_cost_one_look() -> None:
    service = Service()
    dependency = Dependency("Cosmos DB", service.check, age_seconds=60)
    found = await asyncio.gather(*(dependency.health() for _ in range(5)))
    assert (service.looks, {(each.name, each.ok, each.detail) for each in found}) == (
        1,
        {("Cosmos DB", True, None)},
    )


async def test_those_who_waited_for_a_look_longer_than_its_age_take_its_answer() -> None:
    service = Service()
    service.answers.clear()
    dependency = Dependency("Service Bus", service.check, age_seconds=0.05)
    asking = [asyncio.create_task(dependency.health()) for _ in range(5)]
    await asyncio.sleep(0.1)
    service.answers.set()
    await asyncio.gather(*asking)
    assert service.looks == 1, "or each would wait for those before it"


@pytest.mark.parametrize("error", [Unavailable("the store is away"), CannotCheck("cannot be reached")])
async def test_a_service_that_is_away_is_told_until_it_is_back(error: Exception) -> None:
    service = Service()
    dependency = Dependency("Cosmos DB", service.check, age_seconds=0)
    service.failure = error
    assert [(each.ok, each.detail) for each in [await dependency.health()]] == [(False, str(error))]
    service.failure = None
    assert (await dependency.health()).ok


async def test_a_service_that_says_nothing_does_not_hold_the_answer_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(dependencies, "LOOK_SECONDS", 0.05)
    service = Service()
    service.answers.clear()
    found = await Dependency("Service Bus", service.check).health()
    assert (found.ok, found.detail) == (False, "does not answer within 0.05 s")


async def test_a_bug_is_not_taken_for_an_outage() -> None:
    service = Service()
    service.failure = TypeError("a bug")
    with pytest.raises(TypeError):
        await Dependency("Cosmos DB", service.check).health()


async def test_a_service_that_tells_its_round_trip_is_shown_by_it() -> None:
    async def check() -> float:
        await asyncio.sleep(0.05)  # opens a connection
        return 0.002

    found = await Dependency("Service Bus", check).health()
    assert (found.ok, found.milliseconds) == (True, 2)
