"""What a walk goes over in Cosmos DB: page by page, from where it was, and noted at the version that was read."""

from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import timedelta

import pytest
from azure.cosmos.aio import CosmosClient

from cosmos_outbox.cosmos.inbox.entries import CosmosEntries
from cosmos_outbox.cosmos.inbox.walk_lists import CosmosLists
from cosmos_outbox.cosmos.store.container import Container, StoreFailed
from cosmos_outbox.cosmos.store.errors import Failure, Kind
from cosmos_outbox.inbox.entry import Entry, Stamp
from cosmos_outbox.inbox.errors import EntryChanged, StoreAway
from cosmos_outbox.inbox.progress import SeenPage, WalkProgress
from cosmos_outbox.kernel.aggregate_key import AggregateKey
from cosmos_outbox.testing.documents import Documents, MemoryContainer
from devstack.testing import Service
from tests.contract.test_entries import FORM, Thing
from tests.support.azure import DIRECTORY, contacts_database
from tests.support.inbox import NOON


@pytest.fixture
async def lists(cosmos_server: Service, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[CosmosLists]:
    """Of three entries: one more than a page."""
    monkeypatch.setattr("cosmos_outbox.cosmos.inbox.walk_lists._PAGE", 2)
    async with (
        contacts_database(cosmos_server) as database,
        CosmosClient.from_connection_string(cosmos_server.connection_string) as client,
    ):
        container = Container(client, database.id, DIRECTORY)
        entries = CosmosEntries(container, FORM, 600)
        for number in range(3):
            key = AggregateKey("thing", str(number))
            await entries.put(key, Entry(1, None, Thing(name="A")), Stamp(NOON, None), over=None)
        yield CosmosLists(container, None, None, "sweep", FORM.version)


async def test_a_walk_goes_on_where_it_was_after_its_store_was_away(
    lists: CosmosLists, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = await lists.entries(None)
    assert first.position is not None

    async def throttled(*_: object, **__: object) -> None:
        raise StoreFailed(Failure(Kind.THROTTLED, "429"))

    with monkeypatch.context() as away:
        away.setattr(lists.entries_container, "page", throttled)
        with pytest.raises(StoreAway):
            await lists.entries(first.position)
    rest = await lists.entries(first.position)
    assert len({each.key for page in (first, rest) for each in page.items}) == 3
    again = await lists.entries("what the store has never given")
    assert [each.key for each in again.items] == [each.key for each in first.items], "its side begins anew"


async def test_an_entry_is_listed_as_it_is_and_a_deleted_one_is_not(lists: CosmosLists) -> None:
    entries = CosmosEntries(lists.entries_container, FORM, 600)
    gone, healed = AggregateKey("thing", "0"), AggregateKey("thing", "1")
    for key, entry in ((gone, Entry(2, None, None)), (healed, Entry(4, None, Thing(name="B"), healed=3))):
        before = await entries.newest(key)
        assert before is not None
        await entries.put(key, entry, Stamp(NOON, None), over=before.version)
    for form in (FORM.version, FORM.version + 1):
        page = await replace(lists, form=form).entries(None)
        found = {
            each.key.id: (each.sequence, each.deleted, each.blocked_since, each.healed, each.other_form)
            for each in page.items
        }
        other = form != FORM.version
        assert found == {"1": (4, False, None, 3, other), "2": (1, False, None, 0, other)}
        assert all(each.changed_at is not None for each in page.items)


async def test_of_a_source_that_is_another_teams_nothing_is_listed(lists: CosmosLists) -> None:
    nothing = SeenPage([], None)
    assert await lists.sources(None) == nothing
    assert await lists.list_changed(NOON, NOON + timedelta(hours=1), None) == nothing
    assert await lists.count_sources() == 0


async def test_a_request_that_the_store_does_not_take_is_not_made_for_ever(
    lists: CosmosLists, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refused(*_: object, **__: object) -> None:
        raise StoreFailed(Failure(Kind.INVALID, "400"))

    monkeypatch.setattr(lists.entries_container, "page", refused)
    for position in (None, "where it was"):
        with pytest.raises(StoreAway, match="400"):
            await lists.entries(position)


async def test_the_progress_of_a_walk_is_where_every_version_looks_for_it_and_is_no_entry(
    lists: CosmosLists,
) -> None:
    saved = await lists.save(WalkProgress(NOON))
    found = await lists.entries_container.read("sweep", "progress/sweep")
    assert found is not None
    assert found["_etag"] == saved.version
    with pytest.raises(EntryChanged):
        await lists.save(WalkProgress(NOON))


async def test_the_progress_of_a_walk_is_told_as_of_now_by_the_stores_clock() -> None:
    now = NOON
    container = MemoryContainer(Documents(clock=lambda: now))
    walk = CosmosLists(container, None, None, "sweep", 1)
    assert await walk.progress() is None
    saved = await walk.save(WalkProgress(NOON))
    now += timedelta(hours=2)
    assert await walk.progress() == replace(saved, as_of=now)


async def test_since_when_an_entry_is_blocked_is_noted_at_the_version_that_was_read(
    lists: CosmosLists,
) -> None:
    entries, key = CosmosEntries(lists.entries_container, FORM, 600), AggregateKey("thing", "2")
    before = await entries.newest(key)
    assert before is not None
    await lists.mark(key, before.version, NOON)
    marked = await entries.newest(key)
    assert marked is not None
    assert (marked.blocked_since, marked.entry) == (NOON, before.entry)
    with pytest.raises(EntryChanged):
        await lists.mark(key, before.version, None)
    with pytest.raises(EntryChanged):
        await lists.mark(AggregateKey("thing", "none"), before.version, None)
    await lists.mark(key, marked.version, None)
    cleared = await entries.newest(key)
    assert cleared is not None
    assert cleared.blocked_since is None
