"""A unit of work stores a contact with its events, or nothing, and never overwrites another writer's change.

``test_transactions.py`` has what befalls a transaction, ``test_cosmos_unit_of_work.py`` what only a store can show.
"""

from collections.abc import Callable
from typing import Any
from uuid import UUID, uuid4

import pytest

from cosmos_outbox.cosmos.aggregates.aggregates import Aggregates
from cosmos_outbox.cosmos.store.container import Write
from cosmos_outbox.kernel.aggregate_key import AggregateKey
from cosmos_outbox.outbox.aggregate import Aggregate
from cosmos_outbox.outbox.errors import AggregateNotFound, AlreadyExists, PreconditionFailed
from domain.contact import Contact
from domain.values import Name
from tests.contract.conftest import CosmosStore
from tests.support.contacts import DETAILS, LATER, NOON, ORIGIN
from tests.support.emulators import Gap
from tests.support.imports import ImportFile, ImportTask

JANE = Name(first_name="Jane", last_name="Doe")


def key(contact_id: UUID) -> AggregateKey:
    return AggregateKey("contact", str(contact_id))


async def create(store: CosmosStore) -> UUID:
    async with store.open() as work:
        contact = Contact.create(DETAILS, at=NOON)
        work.add(contact)
        await work.commit()
        return contact.id


async def change(store: CosmosStore, contact_id: UUID, *changes: Callable[[Contact], None]) -> None:
    async with store.open() as work:
        contact = (await work.get(Contact, str(contact_id))).aggregate
        for apply in changes:
            apply(contact)
        await work.commit()


async def test_each_change_is_stored_with_its_event_and_has_a_new_version(store: CosmosStore) -> None:
    contact_id = await create(store)
    async with store.open() as work:
        found = await work.get(Contact, str(contact_id))
        contact, before = found.aggregate, found.etag
        contact.rename(JANE, at=LATER)
        contact.describe("x", at=LATER)
        receipt = (await work.commit()).receipt(contact)

    assert receipt.etag != before
    async with store.open() as work:
        found = await work.get(Contact, str(contact_id))
        again, etag = found.aggregate, found.etag
    assert again.state.name == JANE
    assert again.state.last_sequence == 3
    assert etag == receipt.etag
    events = await store.events(key(contact_id))
    assert [event.action for event in events] == [
        "ContactCreatedEvent",
        "ContactNameUpdatedEvent",
        "ContactDescriptionUpdatedEvent",
    ]
    assert [event.sequence for event in events] == [1, 2, 3]


async def test_without_a_change_nothing_is_written(store: CosmosStore) -> None:
    contact_id = await create(store)
    async with store.open() as work:
        found = await work.get(Contact, str(contact_id))
        contact, before = found.aggregate, found.etag
        contact.revise(DETAILS, at=LATER)
        receipt = (await work.commit()).receipt(contact)
    assert (receipt.etag, receipt.events) == (before, 0)
    assert len(await store.events(key(contact_id))) == 1


async def test_a_deleted_contact_is_not_found_and_its_events_are_there(store: CosmosStore) -> None:
    contact_id = await create(store)
    await change(store, contact_id, lambda contact: contact.delete(at=LATER))
    async with store.open() as work:
        with pytest.raises(AggregateNotFound):
            await work.get(Contact, str(contact_id))
        page = await work.page(Contact, 100, None)
    assert [contact for contact in page.items if contact.id == contact_id] == []
    assert [event.action for event in await store.events(key(contact_id))] == [
        "ContactCreatedEvent",
        "ContactDeletedEvent",
    ]


async def test_a_document_that_another_program_has_replaced_is_not_numbered_anew(store: CosmosStore) -> None:
    contact_id = await create(store)
    await change(store, contact_id, lambda contact: contact.rename(JANE, at=LATER))
    item = await store.container.read(str(contact_id), str(contact_id))
    assert item is not None
    sequence = item["data"].pop(
        "lastSequence"
    )  # the C# sample of Microsoft's article does not know the field
    [etag] = await store.container.execute(str(contact_id), [Write.replace(item, item["_etag"])])

    for apply in (lambda contact: contact.describe("x", at=LATER), lambda contact: contact.delete(at=LATER)):
        with pytest.raises(ValueError, match=r"without lastSequence.*docs/operate/recipes\.md"):
            await change(store, contact_id, apply)
    assert [event.sequence for event in await store.events(key(contact_id))] == [1, 2]
    async with store.open() as work:
        found = await work.get(Contact, str(contact_id))
    assert (found.aggregate.state.name, found.etag) == (JANE, etag)

    item["data"]["lastSequence"] = sequence
    await store.container.execute(str(contact_id), [Write.replace(item, etag)])
    await change(store, contact_id, lambda contact: contact.describe("x", at=LATER))
    assert [event.sequence for event in await store.events(key(contact_id))] == [1, 2, 3]


@pytest.mark.known_gap(Gap.BATCH_IGNORES_ETAG)
async def test_a_failed_commit_leaves_nothing_tracked(store: CosmosStore) -> None:
    contact_id = await create(store)
    async with store.open() as work:
        contact = (await work.get(Contact, str(contact_id))).aggregate
        contact.rename(JANE, at=LATER)
        await change(store, contact_id, lambda rival: rival.describe("rival", at=LATER))
        with pytest.raises(PreconditionFailed):
            await work.commit()
        again = (await work.get(Contact, str(contact_id))).aggregate
        again.rename(JANE, at=LATER)
        receipt = (await work.commit()).receipt(again)
    assert (receipt.aggregate.state.description, receipt.aggregate.state.name) == ("rival", JANE)


async def test_a_list_goes_page_by_page_through_every_contact_once(store: CosmosStore) -> None:
    ids = {await create(store) for _ in range(7)}
    seen: list[UUID] = []
    token: str | None = None
    async with store.open() as work:
        while True:
            page = await work.page(Contact, 3, token)
            assert 1 <= len(page.items) <= 3
            seen += [contact.id for contact in page.items]
            token = page.continuation_token
            if token is None:
                break
    assert len(seen) == 7
    assert set(seen) == ids


async def upload(store: CosmosStore) -> tuple[ImportFile, ImportTask]:
    file = ImportFile.upload("contacts.csv", at=NOON)
    task = ImportTask.of(file, at=NOON)
    task.start(at=NOON)
    async with store.open() as work:
        work.add(file)
        work.add(task)
        commit = await work.commit()
        return commit.receipt(file).aggregate, commit.receipt(task).aggregate


async def events_of(store: CosmosStore, aggregate: Aggregate[Any]) -> list[tuple[str, int | None]]:
    return [(event.action, event.sequence) for event in await store.events(aggregate.key)]


async def test_a_file_its_task_and_the_tasks_command_are_stored_together(store: CosmosStore) -> None:
    file, task = await upload(store)
    assert await events_of(store, file) == [("FileUploadedEvent", 1)]
    assert await events_of(store, task) == [("TaskCreatedEvent", 1), ("StartImport", 2)]
    async with store.open() as work:
        read = await work.get(ImportTask, task.aggregate_id, partition_key=file.aggregate_id)
        assert (read.aggregate.state, read.aggregate.state.attempts) == (task.state, 1)
        read.aggregate.start(at=LATER)
        await work.commit()
    assert (await events_of(store, task))[2:] == [("StartImport", 3)]


async def test_a_read_that_need_not_be_the_newest_costs_no_write_to_be_so(store: CosmosStore) -> None:
    contact_id = await create(store)
    aggregates = Aggregates(store.open, store.claims)
    await aggregates.read(Contact, str(contact_id), ORIGIN)
    assert store.container.renewals == 0
    await aggregates.read(Contact, str(contact_id), ORIGIN, newest=True)
    assert store.container.renewals == 1


@pytest.mark.known_gap(Gap.BATCH_IGNORES_ETAG)
async def test_of_aggregates_stored_together_one_that_has_changed_stops_all(store: CosmosStore) -> None:
    file, task = await upload(store)
    async with store.open() as work:
        stale = await work.get(ImportTask, task.aggregate_id, partition_key=file.aggregate_id)
        async with store.open() as rival:
            same = await rival.get(ImportTask, task.aggregate_id, partition_key=file.aggregate_id)
            same.aggregate.start(at=LATER)
            await rival.commit()
        stale.aggregate.start(at=LATER)
        second = ImportTask.of(file, at=LATER)
        work.add(second)
        with pytest.raises(PreconditionFailed):
            await work.commit()
    assert await events_of(store, second) == []
    assert len(await events_of(store, task)) == 3


async def test_an_id_in_use_or_deleted_lately_is_refused_by_name(store: CosmosStore) -> None:
    """Where a service lets its callers choose ids: used again, an id would hide the new aggregate from subscribers."""
    aggregates = Aggregates(store.open, store.claims)
    contact_id = uuid4()

    async def again() -> None:
        await aggregates.create(Contact.create(DETAILS, at=NOON, id=contact_id), ORIGIN)

    await again()
    with pytest.raises(AlreadyExists, match=rf"contact {contact_id}.* is used once"):
        await again()
    await change(store, contact_id, lambda contact: contact.delete(at=LATER))
    with pytest.raises(AlreadyExists, match=rf"contact {contact_id}.* is used once"):
        await again()
    assert [event.sequence for event in await store.events(key(contact_id))] == [1, 2]


async def test_one_aggregate_read_twice_and_changed_twice_is_a_reported_bug(store: CosmosStore) -> None:
    contact_id = await create(store)
    async with store.open() as work:
        for text in ("one", "two"):
            found = await work.get(Contact, str(contact_id))
            found.aggregate.describe(text, at=LATER)
        with pytest.raises(ValueError, match="same id"):
            await work.commit()


async def test_an_aggregate_that_a_commit_had_no_part_of_has_no_receipt(store: CosmosStore) -> None:
    async with store.open() as work:
        work.add(Contact.create(DETAILS, at=NOON))
        commit = await work.commit()
    with pytest.raises(KeyError, match="add or get it before the commit"):
        commit.receipt(Contact.create(DETAILS, at=NOON))
