"""A time is published again whole, however far the replicas lag that are read, and however often partitions are split.

On a devstack of its own with several physical partitions, whose every read of items is as old as Session consistency
allows: only a session token of its own physical partition makes a read newer.
"""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from uuid import uuid4

import pytest
from azure.cosmos.aio import DatabaseProxy

from cosmos_changefeed import (
    ChangeFeedProcessor,
    physical_partitions,
)
from cosmos_outbox.cli import publish_again as command
from cosmos_outbox.cli.publish_again import RepublishingPlan
from cosmos_outbox.composition.writer import Outbox
from cosmos_outbox.cosmos.maintenance.event_list import CosmosEventHistory, Span
from cosmos_outbox.cosmos.store.consistent_reads import renew_tokens
from cosmos_outbox.cosmos.store.container import Container
from cosmos_outbox.kernel.clock import utc_now
from cosmos_outbox.operations.republish import RepublishingProgress
from cosmos_outbox.outbox.errors import Unavailable
from cosmos_outbox.outbox.feed import FeedEvent
from cosmos_outbox.service import Wired
from cosmos_outbox.settings.errors import Misconfigured, NotForwardedYet
from devstack.testing import Service, eventually
from infra.bootstrap import service as contact_service
from tests.changefeed.support import FAST
from tests.support.azure import CONTACTS, LEASES, contacts_database, cosmos_connection
from tests.support.feed import EVENTS, event_document

PARTITIONS = 3
SOME = [f"contact {number}" for number in range(24)]
AS_OLD_AS_CAN_BE = {"seconds": 600, "count": None, "container": CONTACTS}
ALL_TIMES = Span(0, 2**31)


@dataclass
class World:
    """The container of the events, as a process has it that has read and written nothing yet."""

    cosmos: Service
    database: DatabaseProxy
    wired: Wired

    @property
    def outbox(self) -> Outbox:
        return self.wired.outbox

    @property
    def container(self) -> Container:
        return self.outbox.container(CONTACTS)

    async def store(self, *names: str, sequence: int = 1) -> set[str]:
        """By another process. Returns the ids of the events."""
        stored = [event_document(name, sequence) for name in names]
        for document in stored:
            await self.database.get_container_client(CONTACTS).create_item(document)
        return {str(document["id"]) for document in stored}

    async def replicas_lag(self) -> None:
        await self.cosmos.faults.add("lag", **AS_OLD_AS_CAN_BE)

    async def split(self, partition: str) -> list[str]:
        return await self.cosmos.faults.split(self.database.id, CONTACTS, partition)

    async def published(self, session_token: str, at_once: int = 5) -> set[str]:
        """All events that the windows of a run show."""
        history = CosmosEventHistory(self.container, EVENTS, session_token, at_once)
        found: list[FeedEvent] = []
        reached = ALL_TIMES.since
        while reached < ALL_TIMES.to:
            window = await history.window(Span(reached, ALL_TIMES.to))
            found += window.events
            reached = window.end
        assert len(found) == len({event.id for event in found})
        return {event.id for event in found}


@pytest.fixture
async def world(cosmos: Service) -> AsyncIterator[World]:
    async with contacts_database(cosmos) as database:
        settings = {
            "COSMOS": cosmos_connection(cosmos),
            "COSMOS_DATABASE": database.id,
            "COSMOS_LEASE_CONTAINER": LEASES,
            "SERVICEBUS": "Endpoint=sb://127.0.0.1:1;SharedAccessKeyName=k;SharedAccessKey=AA==",
        }
        wired = contact_service.wire(settings)
        async with wired.resources:
            yield World(cosmos, database, wired)
        await cosmos.faults.clear()


async def renewed(world: World) -> str:
    return await renew_tokens(world.container, world.outbox.feed)


async def test_with_renewed_tokens_no_event_of_any_partition_is_missed(world: World) -> None:
    stored = await world.store(*SOME)
    await world.replicas_lag()
    assert await world.published("") == set(), "else this test shows nothing"

    assert await world.published(await renewed(world)) == stored
    assert world.container.renewals == PARTITIONS


async def test_partitions_that_are_split_after_the_renewal_hide_nothing(world: World) -> None:
    stored = await world.store(*SOME)
    await world.replicas_lag()
    session_token = await renewed(world)
    for partition in "02":
        for child in await world.split(partition):
            await world.split(child)

    assert await world.published(session_token) == stored


async def test_a_partition_that_is_split_between_two_renewals_is_renewed_anew(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its key lies in one of the halves: the other half would have no token."""
    stored = await world.store(*SOME)
    await world.replicas_lag()
    renew_token, splits = world.container.renew_token, iter(["1"])

    async def split_before(partition_key: str) -> None:
        for partition in splits:
            await world.split(partition)
        await renew_token(partition_key)

    monkeypatch.setattr(world.container, "renew_token", split_before)
    session_token = await renewed(world)

    named = {each.partition(":")[0] for each in session_token.split(",")}
    assert named == {each.id for each in await physical_partitions(world.outbox.feed)}
    assert await world.published(session_token) == stored


@pytest.mark.parametrize("operation", [pytest.param("feed", marks=pytest.mark.long), "batch"])
async def test_a_store_refusing_partitions_or_consistent_reads_is_misconfigured(
    world: World, operation: str
) -> None:
    await world.cosmos.faults.add("refuse", operation=operation, count=None, container=CONTACTS)
    with pytest.raises(Misconfigured, match=r"refuses a request of this service .*400.*preflight"):
        await renewed(world)


async def test_a_partition_for_which_no_key_is_found_is_unavailable(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    [first, *_] = await physical_partitions(world.outbox.feed)

    async def in_the_first(*_: object) -> str:
        return first.feed_range.min

    monkeypatch.setattr("cosmos_changefeed.effective_key", in_the_first)
    with pytest.raises(Unavailable, match="no partition key was found"):
        await renewed(world)


async def test_republishing_waits_for_lagging_replicas_and_leaves_nothing_out(world: World) -> None:
    stored = await world.store(*SOME)
    session_token = await renewed(world)
    await world.cosmos.faults.add("session-not-available", operation="query", count=None, container=CONTACTS)
    with pytest.raises(Unavailable):
        await world.published(session_token)
    await world.cosmos.faults.clear()
    assert await world.published(session_token) == stored


def relay(world: World) -> ChangeFeedProcessor:
    async def forward(*_: object) -> None:
        """All of it."""

    return ChangeFeedProcessor(
        world.outbox.feed,
        world.wired.relay.leases,
        forward,
        instance_name="relay",
        lease_prefix=world.wired.operator.observer.lease_prefix,
        options=FAST,
    )


async def nothing_waits(world: World) -> bool:
    leases = (await world.wired.operator.observer.status()).leases
    return len(leases) == PARTITIONS and all(lease.lag == 0 for lease in leases)


@pytest.mark.long
async def test_an_event_that_no_replica_shows_yet_is_not_taken_for_forwarded(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would be published under the id of the run before the relay has sent it under its own."""
    await world.store(*SOME)
    async with relay(world):
        await eventually(lambda: nothing_waits(world))
    over, later = int(utc_now().timestamp()) + 60, utc_now() + timedelta(seconds=120)
    plan = RepublishingPlan(Span(0, over), uuid4(), dry_run=True)
    republish = partial(command.republish, world.wired, plan, clock=lambda: later)
    progress = RepublishingProgress()
    await republish(progress)
    assert progress.published == len(SOME)

    await world.store("one more")
    await world.cosmos.faults.add("lag", versions=1, count=None, container=CONTACTS)
    assert await nothing_waits(world), "else this test shows nothing"
    monkeypatch.setattr(command, "PATIENCE_SECONDS", 0.0)
    with pytest.raises(NotForwardedYet, match="has not forwarded"):
        await republish(RepublishingProgress())


async def test_a_time_that_may_go_on_by_another_clock_is_refused(world: World) -> None:
    now = utc_now()
    plan = RepublishingPlan(Span(0, int(now.timestamp())), uuid4(), dry_run=True)
    with pytest.raises(NotForwardedYet, match="is not over"):
        await command.republish(world.wired, plan, RepublishingProgress(), clock=lambda: now)
