"""Events go to a topic and to a partner's receiver: one that is away, refuses or crashes holds up no other."""

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta

import pytest

from cosmos_outbox.cli.publish_again import RepublishingPlan, republish
from cosmos_outbox.kernel.aggregate_key import AggregateKey
from cosmos_outbox.kernel.clock import new_id, utc_now
from cosmos_outbox.operations.leaving import wait_until_forwarded
from cosmos_outbox.outbox.errors import NoSuchDestination, NotParked
from cosmos_outbox.outbox.republish import RepublishingProgress, Span
from cosmos_outbox.settings.errors import NotErased, NotForwardedYet
from cosmos_outbox.settings.names import Names
from cosmos_outbox.wiring.erasing import wire_eraser
from cosmos_outbox.wiring.service import Service
from cosmos_outbox.worker import relay as relay_worker
from cosmos_outbox.worker.draining import Task, drain
from cosmos_outbox.worker.running import running
from devstack.testing import Service as Server
from devstack.testing import eventually
from examples.fastapi.person import Person
from tests.support.partner import ORIGIN, World, added, renamed, world_of

pytestmark = pytest.mark.needs_a_socket("the receiver of a webhook has one")


@pytest.fixture
async def world(cosmos_server: Server, servicebus_server: Server) -> AsyncIterator[World]:
    async with world_of(cosmos_server, servicebus_server) as made:
        yield made


async def test_one_that_is_away_holds_up_no_other_and_then_gets_all_in_order(world: World) -> None:
    async with running(world.service(), environment=world.settings, subscribers=False) as at_work:
        outbox = at_work.wired.outbox
        assert [part.name for part in at_work.health.parts] == ["relay", "relay to partner"]
        people = [await added(at_work.wired, "Ada", "Augusta") for _ in range(3)]
        for person in people:
            assert await world.on_topic(person, 3) == [1, 2, 3]

        async def known() -> bool:
            status = await outbox.status()
            waits = {each.destination: each.lag > 0 for each in status.leases}
            return waits == {"": False, "partner": True} and bool(status.failures)

        await eventually(known)
        status = await outbox.status()
        assert {each.destination for each in status.failures} == {"partner"}
        assert "events wait" in (await at_work.health.trouble() or "")
        assert world.taken == []
        await world.comes()
        await eventually(lambda: len(world.taken) >= 9)
        assert {person: world.taken_of(person) for person in people} == {key: [1, 2, 3] for key in people}


async def test_what_is_parked_for_one_is_parked_for_no_other(world: World) -> None:
    await world.comes()
    async with running(world.service(), environment=world.settings, subscribers=False) as at_work:
        wired, outbox = at_work.wired, at_work.wired.outbox
        sick = await added(wired)
        world.refused.add((sick, 2))
        for name in ("Ada", "Augusta"):
            await renamed(wired, sick, name)
        well = await added(wired)
        await eventually(lambda: world.taken_of(well) == [1])
        assert await world.on_topic(sick, 3) == [1, 2, 3]
        partner = outbox.towards("partner")

        async def both_parked() -> bool:
            return len((await partner.parking.page(10, None)).items) == 2

        await eventually(both_parked)
        assert (await outbox.parking.page(10, None)).items == []
        [first, _] = (await partner.parking.page(10, None)).items
        assert "no such" in first.reason
        with pytest.raises(NotParked):
            await outbox.parking.show(first.id)
        with pytest.raises(NotParked):
            await outbox.parking.replay(AggregateKey("person", sick))
        with pytest.raises(NoSuchDestination, match="it has: partner"):
            outbox.towards("other")
        assert (await outbox.status()).parked == {"person": 1}

        world.refused.clear()
        assert (await partner.parking.replay(AggregateKey("person", sick))).done
        assert world.taken_of(sick) == [1, 2, 3]
        assert (await outbox.status()).parked_events == 0


async def test_what_is_not_for_it_is_passed_over_and_its_order_stays(world: World) -> None:
    await world.comes()
    service = world.service(of=[Person], on=["PersonRenamedEvent"])
    async with running(service, environment=world.settings, subscribers=False) as at_work:
        wired, partner = at_work.wired, at_work.wired.outbox.towards("partner")
        person = await added(wired, "Ada")
        world.refused.add((person, 3))
        for name in ("Augusta", "Lovelace"):
            await renamed(wired, person, name)

        async def both_parked() -> bool:
            return len((await partner.parking.page(10, None)).items) == 2

        await eventually(both_parked)
        await wired.aggregates.change(Person, person, lambda each: each.delete(at=utc_now()), ORIGIN)
        assert await world.on_topic(person, 5) == [1, 2, 3, 4, 5]
        last = await added(wired, "Byron")
        await eventually(lambda: world.taken_of(last) == [2])
        assert [each.sequence for each in (await partner.parking.page(10, None)).items] == [3, 4]
        world.refused.clear()
        assert (await partner.parking.replay(AggregateKey("person", person))).done
        assert world.taken_of(person) == [2, 3, 4]


async def test_a_relay_that_crashes_is_begun_again_and_the_other_goes_on(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    await world.comes()
    relayed, crashed = relay_worker.work, asyncio.Event()

    async def crashing(health: relay_worker.RelayHealth) -> None:
        if health.outbox.destination.name and not crashed.is_set():
            health.tried.set()
            crashed.set()
            raise ZeroDivisionError("a bug")
        await relayed(health)

    monkeypatch.setattr(relay_worker, "work", crashing)
    async with running(world.service(), environment=world.settings, subscribers=False) as at_work:
        await crashed.wait()
        person = await added(at_work.wired, "Ada")
        assert await world.on_topic(person, 2) == [1, 2]
        await eventually(lambda: world.taken_of(person) == [1, 2])


async def test_one_that_is_added_later_begins_with_what_is_stored_or_where_it_is_told(world: World) -> None:
    await world.comes()
    alone = Service("people", [Person], Names(container="people"))
    async with running(alone, environment=world.settings, subscribers=False) as at_work:
        before = await added(at_work.wired)
        assert await world.on_topic(before, 1) == [1]
    begin = utc_now()
    async with running(world.service(begin=begin), environment=world.settings, subscribers=False) as at_work:
        later = await added(at_work.wired)
        await eventually(lambda: world.taken_of(later) == [1])
        assert world.taken_of(before) == []
    anew = world.settings | {"RELAY_LEASE_PREFIX": "anew-"}
    async with running(world.service(), environment=anew, subscribers=False):
        await eventually(lambda: world.taken_of(before) == [1])


async def test_a_relay_that_drains_drains_each_and_says_which_waits(world: World) -> None:
    wired = world.service().wire(world.settings)
    person = await added(wired)
    done = await drain(wired, asyncio.Event(), None, Task(once=True, seconds=2))
    assert (done.forwarded, done.whole) == (1, False)
    assert done.reason.startswith("to partner: 2 s are over. ")
    assert await world.on_topic(person, 1) == [1]

    await world.comes()
    done = await drain(world.service().wire(world.settings), asyncio.Event(), None, Task(once=True))
    assert str(done).startswith("all is forwarded that was stored at the start; 1 event(s) forwarded")
    assert world.taken_of(person) == [1]


async def test_nothing_is_erased_before_it_has_left_for_each(world: World) -> None:
    async with running(world.service(), environment=world.settings, subscribers=False) as at_work:
        outbox = at_work.wired.outbox
        person = await added(at_work.wired)
        assert await world.on_topic(person, 1) == [1]
        token = outbox.container("people").seen(person) or ""
        key = AggregateKey("person", person)
        with pytest.raises(NotForwardedYet, match="the relay to partner has not"):
            await wait_until_forwarded(outbox.ways_out(), key, person, token, 0)
        await world.comes()
        await wait_until_forwarded(outbox.ways_out(), key, person, token, 30)
        assert world.taken_of(person) == [1]


async def test_what_is_parked_for_one_that_was_removed_is_not_forgotten_by_an_erasing(world: World) -> None:
    await world.comes()
    async with running(world.service(), environment=world.settings, subscribers=False) as at_work:
        partner = at_work.wired.outbox.towards("partner")
        person = await added(at_work.wired)
        world.refused.add((person, 2))
        await renamed(at_work.wired, person, "Ada")

        async def parked() -> bool:
            return len((await partner.parking.page(10, None)).items) == 1

        await eventually(parked)
        assert await world.on_topic(person, 2) == [1, 2]

    async def erase(service: Service) -> None:
        service.erases(
            Person,
            delete=lambda each, *, at: each.delete(at=at),
            remains=lambda state: state.model_copy(),
            kept=(),
        )
        async with running(service, environment=world.settings, subscribers=False) as at_work:
            eraser = wire_eraser(at_work.wired, service.erasables[0])
            async for _ in eraser.erase(AggregateKey("person", person), patience_seconds=30):
                pass

    with pytest.raises(NotErased, match="parked for partner, to which the service does not send any more"):
        await erase(Service("people", [Person], Names(container="people")))
    world.refused.clear()
    await erase(world.service())
    assert world.taken_of(person) == [1, 2, 3]


async def test_what_is_published_again_is_for_one_alone(world: World) -> None:
    await world.comes()
    service = world.service(on=["PersonRenamedEvent"])
    async with running(service, environment=world.settings, subscribers=False) as at_work:
        outbox = at_work.wired.outbox
        person = await added(at_work.wired, "Ada", "Augusta")
        await eventually(lambda: world.taken_of(person) == [2, 3])
        assert await world.on_topic(person, 3) == [1, 2, 3]
        now = int(utc_now().timestamp())
        plan, progress = RepublishingPlan(Span(0, now + 1), new_id()), RepublishingProgress()
        later = lambda: utc_now() + timedelta(seconds=10)  # noqa: E731 - the span is over by this clock
        await republish(outbox.towards("partner"), plan, progress, clock=later)
        assert (progress.published, progress.whole) == (2, True)
        assert world.taken_of(person) == [2, 3, 2, 3]
        assert await world.topic.receive_all(person, 0, of="person") == []
