"""Only the real store can show atomicity, limits, lost answers, and reads of one's own writes."""

from dataclasses import replace
from typing import Any
from uuid import UUID, uuid4

import pytest

from cosmos_outbox.cosmos.aggregates.documents import KeyRecord
from cosmos_outbox.cosmos.aggregates.unit_of_work import CosmosUnitOfWork
from cosmos_outbox.cosmos.store.container import StoreFailed, Write
from cosmos_outbox.cosmos.store.errors import Kind
from cosmos_outbox.outbox.aggregate import Origin, Receipt
from cosmos_outbox.outbox.errors import (
    AggregateNotFound,
    ChangeTooLarge,
    Unavailable,
    UnknownContinuation,
    Unpublishable,
)
from domain.contact import Contact
from domain.values import Name
from tests.contract.conftest import CosmosStore
from tests.support.contacts import DETAILS, LATER, NOON, ORIGIN
from tests.support.emulators import Gap
from tests.support.imports import ImportTask, TaskState
from tests.support.reactions import Heap
from tests.support.telemetry import recording

JANE = Name(first_name="Jane", last_name="Doe")


def item(item_id: str, partition_key: str, **more: Any) -> Write:
    return Write.create({"id": item_id, "partitionKey": partition_key, "type": "note", **more})


async def create(store: CosmosStore) -> Receipt[Contact]:
    contact = Contact.create(DETAILS, at=NOON)
    async with store.open() as work:
        work.add(contact)
        return (await work.commit()).receipt(contact)


async def rename(store: CosmosStore, contact_id: UUID, name: Name = JANE) -> Receipt[Contact]:
    async with store.open() as work:
        contact = (await work.get(Contact, str(contact_id))).aggregate
        contact.rename(name, at=LATER)
        return (await work.commit()).receipt(contact)


@pytest.mark.known_gap(Gap.BATCH_NOT_ATOMIC)
async def test_a_batch_whose_second_write_conflicts_stores_nothing(store: CosmosStore) -> None:
    container, key = store.container, str(uuid4())
    await container.execute(key, [item("taken", key, was="here")])

    with pytest.raises(StoreFailed) as caught:
        await container.execute(key, [item("first", key), item("taken", key, was="replaced")])

    assert caught.value.failure.kind is Kind.CONFLICT
    assert await container.read("first", key) is None
    taken = await container.read("taken", key)
    assert taken is not None
    assert taken["was"] == "here"


@pytest.mark.known_gap(Gap.BATCH_IGNORES_ETAG)
async def test_a_replace_holds_only_at_its_version_each_time_it_is_tried(store: CosmosStore) -> None:
    """The SDK takes the condition out of the operation it is given: a second try must carry it again."""
    container, key = store.container, str(uuid4())
    [etag] = await container.execute(key, [item("a", key, n=1)])
    await container.execute(key, [Write.replace(item("a", key, n=2).item, etag)])
    stale = [Write.replace(item("a", key, n=3).item, etag), item("b", key)]
    for _ in range(2):
        with pytest.raises(StoreFailed) as caught:
            await container.execute(key, stale)
        assert caught.value.failure.kind is Kind.STALE
    assert await container.read("b", key) is None


class Chatty(Contact):
    """A contact whose creation raises a hundred events."""

    def changes(self) -> Any:
        changes = super().changes()
        assert changes is not None
        events = tuple(changes.events[0].model_copy(update={"id": uuid4()}) for _ in range(100))
        return replace(changes, events=events)


class Heavy(Contact):
    """A contact with a description of 2 MB, which no caller could have given it."""

    def changes(self) -> Any:
        changes = super().changes()
        assert changes is not None
        return replace(changes, state=changes.state.model_copy(update={"description": "x" * 2 * 1024 * 1024}))


@pytest.mark.known_gap(Gap.BATCH_LIMITS)
@pytest.mark.parametrize("kind", [Chatty, Heavy])
async def test_more_than_a_batch_holds_is_refused_and_not_tracked_any_more(
    store: CosmosStore, kind: type[Contact]
) -> None:
    contact = kind.create(DETAILS, at=NOON)
    async with store.open() as work:
        work.add(contact)
        with pytest.raises(ChangeTooLarge, match="100 documents or 2097152 bytes"):
            await work.commit()
        with pytest.raises(AggregateNotFound):
            await work.get(Contact, str(contact.id))
        with pytest.raises(ValueError, match="the unit of work has no aggregate"):
            await work.commit()


async def test_the_record_of_a_request_is_stored_with_its_own_change_alone(store: CosmosStore) -> None:
    first, second = Contact.create(DETAILS, at=NOON), Contact.create(DETAILS, at=NOON)
    made = KeyRecord("of the creation", "fingerprint", 1, made=first)
    changed = KeyRecord[Contact]("of the change", "fingerprint", 1)
    async with store.open() as work:
        work.add(first)
        work.add_record(made)
        work.add_record(changed)
        await work.commit()
        work.add(second)
        await work.commit()
        for record in (made, changed):
            found = await work.find_record(Contact, record.name, str(first.id))
            assert found is not None
            assert (found.name, found.sequence, found.made is None) == (record.name, 1, record is changed)
            assert await work.find_record(Contact, record.name, str(second.id)) is None


class Tenanted(ImportTask):
    """A task that shares its partition with others, under an id that somebody chose."""

    chosen_id = ""

    @property
    def aggregate_id(self) -> str:
        return self.chosen_id

    @property
    def partition_key(self) -> str:
        return "tenant"


def tenanted(chosen_id: str) -> Tenanted:
    task = Tenanted(TaskState(id=uuid4(), file_id=uuid4(), created_at=NOON), is_new=True)
    task.chosen_id = chosen_id
    return task


async def test_of_ids_only_those_of_the_outbox_and_of_no_message_are_refused(store: CosmosStore) -> None:
    """What is stored when aggregate "a" is deleted would take the place of aggregate "request-a"."""
    refused = {"request-": "before it", "request-a": "before it", "outbox-fence": "before it"}
    refused |= {"": "1 to 128 characters", "a" * 129: "1 to 128 characters"}
    for chosen, message in refused.items():
        async with store.open() as work:
            work.add(tenanted(chosen))
            with pytest.raises(Unpublishable, match=message):
                work.check()
    for free in ("a" * 128, "a", "requests-1", "fences", "a-request-"):
        async with store.open() as work:
            work.add(tenanted(free))
            await work.commit()
        assert await store.container.read(free, "tenant") is not None


async def test_aggregates_of_two_partitions_do_not_fit_one_transaction(store: CosmosStore) -> None:
    async with store.open() as work:
        work.add(Contact.create(DETAILS, at=NOON))
        work.add(Contact.create(DETAILS, at=NOON))
        with pytest.raises(ValueError, match="partition"):
            await work.commit()


async def test_two_aggregates_of_one_id_would_be_one_document(store: CosmosStore) -> None:
    contact = Contact.create(DETAILS, at=NOON)
    async with store.open() as work:
        work.add(contact)
        work.add(Heap.make(contact.aggregate_id))
        with pytest.raises(ValueError, match="the same id"):
            await work.commit()
    assert await store.container.read(contact.aggregate_id, contact.partition_key) is None


@pytest.mark.known_gap(Gap.SESSION_TOKEN_IGNORED)
@pytest.mark.parametrize("how", ["get", "page"])
async def test_a_session_token_no_replica_can_satisfy_fails_one_request_only(
    store: CosmosStore, how: str
) -> None:
    """As after the container was restored, or made anew. To go on without the token would be to read old data."""
    receipt = await create(store)
    key, container = str(receipt.aggregate.id), store.container

    async def read() -> object:
        if how == "page":
            return await container.page("SELECT * FROM c", {}, 10, None, partition_key=key)
        async with store.open() as work:
            return await work.get(Contact, key)

    container._sessions._tokens[key] = "0:-1#999999999"
    with pytest.raises((Unavailable, StoreFailed)):
        await read()
    assert await read()


async def test_a_key_error_is_a_bug_and_no_outage(
    store: CosmosStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(*_: object, **__: object) -> None:
        raise KeyError("a bug")

    container = store.container
    await container.read("x", "never-written")
    monkeypatch.setattr(container._proxy, "read_item", broken)
    with pytest.raises(KeyError):
        await container.read("x", "never-written")


async def test_a_token_of_another_list_is_refused(store: CosmosStore) -> None:
    for _ in range(3):
        await create(store)
    async with store.open() as work:
        token = (await work.page(Contact, 1, None)).continuation_token
    assert token is not None
    other = CosmosUnitOfWork(store.container, "another deployment", ORIGIN, store.lifetimes)
    for foreign in (token, "AAAA", "bm90IGEgdG9rZW4gb2Ygb3Vycw"):
        with pytest.raises(UnknownContinuation):
            await other.page(Contact, 1, foreign)


async def test_a_checked_batch_is_no_larger_when_its_commit_begins_a_trace(
    store: CosmosStore, batch_sizes: list[int]
) -> None:
    with recording():
        async with store.open(Origin("no trace")) as work:
            work.add(Contact.create(DETAILS, at=NOON))
            work.check()
            await work.commit()
    checked, committed = batch_sizes
    assert checked == committed
