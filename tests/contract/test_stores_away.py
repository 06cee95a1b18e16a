"""What a subscriber keeps in Cosmos DB, and what it reads of a source there: StoreUnavailable if it cannot be used.

It names the container, and no caller takes it for an answer: for none stored, for a list that is empty, for a write
that another one beat.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import Any

import pytest
from azure.cosmos.aio import CosmosClient

from cosmos_outbox.cosmos.aggregates.unit_of_work import Lifetimes
from cosmos_outbox.cosmos.inbox.documents import SourceDocuments
from cosmos_outbox.cosmos.inbox.entries import CosmosEntries
from cosmos_outbox.cosmos.inbox.reaction_decision import (
    InOrder,
    ReactionOutcome,
    ReactionRecord,
    SeenTarget,
    TargetRef,
    ToWrite,
)
from cosmos_outbox.cosmos.inbox.reactions import CosmosReactions
from cosmos_outbox.cosmos.inbox.records import CosmosEffects, CosmosSetAside
from cosmos_outbox.cosmos.inbox.source import CosmosSource, OwnSource
from cosmos_outbox.cosmos.inbox.store import CosmosDatabase
from cosmos_outbox.cosmos.store.container import Container
from cosmos_outbox.cosmos.transaction import OnCommit
from cosmos_outbox.inbox.effect import EffectRecord, EffectState
from cosmos_outbox.inbox.entry import Entry, Stamp
from cosmos_outbox.inbox.errors import StoreUnavailable
from cosmos_outbox.inbox.set_aside import Record, RecordState
from cosmos_outbox.kernel.clock import monotonic
from cosmos_outbox.settings.errors import Misconfigured
from devstack.testing import Service
from tests.contract.test_entries import FORM, Thing
from tests.support.azure import CONTACTS, SET_ASIDE, contacts_database
from tests.support.inbox import KEY, NOON, delivery, event
from tests.support.reactions import Heap

MISSING = "missing"
LIVES = Lifetimes(600, 600, 600)
RECORD = replace(Record.of(delivery(event(1)), event(1), RecordState.WAITING, "", NOON), version='"1"')

Call = Callable[[], Awaitable[object]]


@pytest.fixture
async def missing(cosmos_server: Service) -> AsyncIterator[tuple[Container, Any]]:
    """A container that is not there, and what the SDK has of it."""
    async with (
        contacts_database(cosmos_server) as database,
        CosmosClient.from_connection_string(cosmos_server.connection_string) as client,
    ):
        yield Container(client, database.id, MISSING), database.get_container_client(MISSING)


async def errors_of(calls: Sequence[Call]) -> list[str]:
    """What each of them has raised."""
    texts = []
    for call in calls:
        with pytest.raises(StoreUnavailable) as away:
            await call()
        texts.append(str(away.value))
    return texts


async def every(found: AsyncIterator[object]) -> object:
    return [each async for each in found]


def of_entries(container: Container) -> list[Call]:
    entries = CosmosEntries(container, FORM, 600)
    entry, stamp = Entry(1, None, Thing(name="A")), Stamp(NOON, None)
    return [
        lambda: entries.read(KEY),
        lambda: entries.newest(KEY),
        lambda: entries.put(KEY, entry, stamp, over=None),
        lambda: entries.put(KEY, entry, stamp, over='"1"'),
        lambda: entries.remove(KEY, over='"1"'),
        lambda: entries.page(None),
        lambda: entries.page("where it was"),
        lambda: entries.mark(KEY, '"1"', NOON),
        entries.progress,
        lambda: entries.save_progress({}, over=None),
    ]


def of_effects(container: Container) -> list[Call]:
    effects = CosmosEffects(container, "mails", 600)
    record = EffectRecord("e-1", EffectState.STARTED, NOON)
    return [
        lambda: effects.find("e-1"),
        lambda: effects.write(record),
        lambda: effects.write(replace(record, version='"1"')),
    ]


def of_set_aside(container: Container) -> list[Call]:
    records = CosmosSetAside(container, "s", "t", closed_ttl_seconds=600)
    return [
        lambda: records.add(RECORD),
        lambda: records.waits(KEY),
        lambda: every(records.waiting()),
        lambda: every(records.waiting(KEY)),
        lambda: every(records.older(NOON)),
        lambda: records.page(10, None),
        lambda: records.count(RecordState.WAITING),
        lambda: records.get(RECORD.id),
        lambda: records.change(RECORD, RecordState.APPLIED, "", attempts=1),
    ]


def of_reactions(container: Container) -> list[Call]:
    reactions = CosmosReactions(container, Heap, "marks", InOrder.ANY, LIVES, OnCommit())
    place = TargetRef("record", "h-1", "h-1", "cursor")
    no = ReactionRecord(ReactionOutcome.REFUSED, "fingerprint", 1, "no")
    seen: SeenTarget[Heap] = SeenTarget()
    return [
        lambda: reactions.find(place),
        lambda: reactions.read(place),
        lambda: reactions.write(place, event(1), seen, ToWrite(no), monotonic() + 60),
    ]


def of_a_source(container: Container) -> list[Call]:
    source = CosmosSource(container, KEY.type, dict)
    return [lambda: source.read(KEY), lambda: source.newest(KEY), lambda: source.page(NOON, None)]


@pytest.mark.parametrize(
    "calls",
    [
        of_entries,
        of_effects,
        of_set_aside,
        of_reactions,
        of_a_source,
    ],
)
async def test_a_container_that_is_missing_is_a_store_that_is_away(
    missing: tuple[Container, Any], calls: Callable[[Container], list[Call]]
) -> None:
    container, _ = missing
    for each in await errors_of(calls(container)):
        assert f"container {MISSING} of database" in each


async def test_a_source_whose_container_is_missing_is_a_store_that_is_away(
    missing: tuple[Container, Any],
) -> None:
    container, feed = missing
    documents = SourceDocuments.of_library("thing")
    source = OwnSource(container, feed, documents, dict)
    for each in await errors_of([lambda: source.read(KEY), lambda: source.newest(KEY)]):
        assert f"container {MISSING} of database" in each


async def test_nothing_is_taken_for_gone_if_partitions_cannot_be_listed(
    cosmos_server: Service, missing: tuple[Container, Any]
) -> None:
    _, feed = missing
    async with (
        contacts_database(cosmos_server) as database,
        CosmosClient.from_connection_string(cosmos_server.connection_string) as client,
    ):
        container = Container(client, database.id, CONTACTS)
        documents = SourceDocuments.of_library("thing")
        for each in await errors_of([lambda: OwnSource(container, feed, documents, dict).newest(KEY)]):
            assert f"container {MISSING} of database" in each


async def test_a_store_without_its_container_of_records_does_not_answer_a_check(
    cosmos_server: Service,
) -> None:
    async with contacts_database(cosmos_server) as database, AsyncExitStack() as resources:
        environment = {"COSMOS": cosmos_server.connection_string, "COSMOS_DATABASE": database.id}
        await CosmosDatabase(set_aside=SET_ASIDE).open(environment, resources).check()
        with pytest.raises(Misconfigured, match=f"container {MISSING} of database"):
            await CosmosDatabase(set_aside=MISSING).open(environment, resources).check()
