"""Only the real store can show atomicity, limits, lost answers, and reads of one's own writes."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any
from uuid import UUID, uuid4

import pytest

from cosmos_outbox.cosmos import transaction
from cosmos_outbox.cosmos.aggregates.unit_of_work import CosmosUnitOfWork
from cosmos_outbox.cosmos.store.container import Container, StoreFailed, Write
from cosmos_outbox.cosmos.store.errors import Failure, Kind
from cosmos_outbox.cosmos.store.partition_key import Key
from cosmos_outbox.outbox.errors import (
    AggregateNotFound,
    ChangeTooLarge,
    OutcomeUnknown,
    PreconditionFailed,
    Throttled,
    Unavailable,
    UnknownContinuation,
    Unpublishable,
)
from cosmos_outbox.outbox.unit_of_work import KeyRecord, OnCommit, Origin, Receipt
from cosmos_outbox.settings.errors import Misconfigured
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
async def test_a_batch_whose_second_document_conflicts_leaves_no_trace_of_the_first(
    store: CosmosStore,
) -> None:
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
        with pytest.raises(ValueError, match="nothing is tracked"):
            await work.commit()


async def test_the_record_of_a_request_is_stored_with_its_own_change_alone(store: CosmosStore) -> None:
    first, second = Contact.create(DETAILS, at=NOON), Contact.create(DETAILS, at=NOON)
    made = KeyRecord("of the creation", "fingerprint", 1, made=first)
    changed = KeyRecord[Contact]("of the change", "fingerprint", 1)
    async with store.open() as work:
        work.add(first)
        work.records.add(made)
        work.records.add(changed)
        await work.commit()
        work.add(second)
        await work.commit()
        for record in (made, changed):
            found = await work.records.find(Contact, record.name, str(first.id))
            assert found is not None
            assert (found.name, found.sequence, found.made is None) == (record.name, 1, record is changed)
            assert await work.records.find(Contact, record.name, str(second.id)) is None


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


@pytest.mark.parametrize("reserved", ["request-", "request-a", "outbox-fence"])
async def test_an_id_that_the_outbox_keeps_for_itself_is_refused(store: CosmosStore, reserved: str) -> None:
    """What is stored when aggregate "a" is deleted would take the place of aggregate "request-a"."""
    async with store.open() as work:
        work.add(tenanted(reserved))
        with pytest.raises(Unpublishable, match="put something before it"):
            work.check()


@pytest.mark.parametrize("length", [0, 129])
async def test_an_id_under_which_no_event_could_be_sent_is_refused(store: CosmosStore, length: int) -> None:
    """Service Bus takes no session id of that length: each event of it would be parked for ever."""
    async with store.open() as work:
        work.add(tenanted("a" * length))
        with pytest.raises(Unpublishable, match="1 to 128 characters"):
            work.check()


@pytest.mark.parametrize("free", ["a" * 128, "a", "requests-1", "fences", "a-request-"])
async def test_any_other_id_can_be_stored(store: CosmosStore, free: str) -> None:
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


class Unreliable(Container):
    """Fails as told, before the batch is sent or after it was stored."""

    before: Sequence[Kind] = ()
    after: Sequence[Kind] = ()

    async def execute(self, partition_key: Key, writes: Sequence[Write]) -> list[str]:
        if self.before:
            kind, *self.before = self.before
            raise StoreFailed(Failure(kind, "injected before", answer_lost=kind is Kind.PASSING))
        etags = await super().execute(partition_key, writes)
        if self.after:
            kind, *self.after = self.after
            raise StoreFailed(Failure(kind, "injected after", answer_lost=True))
        return etags


@pytest.fixture
def unreliable(store: CosmosStore) -> Unreliable:
    container: Unreliable = store.container  # type: ignore[assignment]  # it becomes one in the next line
    container.__class__ = Unreliable
    return container


@pytest.mark.parametrize("losses", [1, 2])
async def test_a_creation_whose_answer_was_lost_is_answered_once_with_its_version(
    store: CosmosStore, unreliable: Unreliable, losses: int
) -> None:
    unreliable.after = [Kind.PASSING]
    unreliable.before = [Kind.PASSING] * (losses - 1)
    receipt = await create(store)
    async with store.open() as work:
        found = await work.get(Contact, str(receipt.aggregate.id))
        contact, etag = found.aggregate, found.etag
    assert (contact.state, etag) == (receipt.aggregate.state, receipt.etag)
    assert len(await store.events(receipt.aggregate.key)) == 1


async def test_a_change_whose_answer_was_lost_is_answered_once_with_its_version(
    store: CosmosStore, unreliable: Unreliable
) -> None:
    created = await create(store)
    unreliable.after = [Kind.PASSING]
    receipt = await rename(store, created.aggregate.id)
    async with store.open() as work:
        found = await work.get(Contact, str(created.aggregate.id))
        _, etag = found.aggregate, found.etag
    assert receipt.etag == etag
    assert [event.sequence for event in await store.events(created.aggregate.key)] == [1, 2]


async def test_a_change_that_never_got_there_is_stored_by_the_repetition(
    store: CosmosStore, unreliable: Unreliable
) -> None:
    created = await create(store)
    unreliable.before = [Kind.PASSING, Kind.PASSING]
    receipt = await rename(store, created.aggregate.id)
    assert receipt.aggregate.state.name == JANE
    assert [event.sequence for event in await store.events(created.aggregate.key)] == [1, 2]


@pytest.mark.known_gap(Gap.BATCH_IGNORES_ETAG)
async def test_a_lost_answer_overtaken_by_a_rival_claims_no_version(
    store: CosmosStore, unreliable: Unreliable, monkeypatch: pytest.MonkeyPatch
) -> None:
    created = await create(store)
    execute = Unreliable.execute

    async def rival_after_us(self: Unreliable, partition_key: str, writes: Sequence[Write]) -> list[str]:
        monkeypatch.setattr(Unreliable, "execute", execute)
        await execute(self, partition_key, writes)
        await rename(store, created.aggregate.id, Name(first_name="Rival", last_name="Roe"))
        raise StoreFailed(Failure(Kind.PASSING, "the answer was lost", answer_lost=True))

    monkeypatch.setattr(Unreliable, "execute", rival_after_us)
    receipt = await rename(store, created.aggregate.id)

    assert receipt.aggregate.state.name == JANE
    assert receipt.etag is None
    names = [event.data["name"]["firstName"] for event in (await store.events(created.aggregate.key))[1:]]
    assert names == ["Jane", "Rival"]


async def test_a_lost_answer_is_found_out_although_the_document_is_gone_since(
    store: CosmosStore, unreliable: Unreliable, monkeypatch: pytest.MonkeyPatch
) -> None:
    created = await create(store)
    execute, name = Unreliable.execute, str(created.aggregate.id)

    async def gone_after_us(self: Unreliable, partition_key: str, writes: Sequence[Write]) -> list[str]:
        monkeypatch.setattr(Unreliable, "execute", execute)
        await execute(self, partition_key, writes)
        await self._proxy.delete_item(name, name)
        raise StoreFailed(Failure(Kind.PASSING, "the answer was lost", answer_lost=True))

    monkeypatch.setattr(Unreliable, "execute", gone_after_us)
    receipt = await rename(store, created.aggregate.id)
    assert (receipt.aggregate.state.name, receipt.etag) == (JANE, None)


@pytest.mark.known_gap(Gap.BATCH_IGNORES_ETAG)
async def test_a_lost_request_overtaken_by_a_rival_is_a_lost_race(
    store: CosmosStore, unreliable: Unreliable
) -> None:
    created = await create(store)
    async with store.open() as work:
        contact = (await work.get(Contact, str(created.aggregate.id))).aggregate
        contact.rename(JANE, at=LATER)
        await rename(store, created.aggregate.id, Name(first_name="Rival", last_name="Roe"))
        unreliable.before = [Kind.PASSING]
        with pytest.raises(PreconditionFailed):
            await work.commit()
    assert [event.sequence for event in await store.events(created.aggregate.key)] == [1, 2]


async def test_an_outcome_that_cannot_be_found_out_is_called_unknown(
    store: CosmosStore, unreliable: Unreliable, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transaction, "PATIENCE_SECONDS", 0.3)
    unreliable.before = [Kind.PASSING] * 20
    with pytest.raises(OutcomeUnknown):
        await create(store)


async def test_a_store_that_was_never_reached_is_unavailable_and_its_outcome_is_no_mystery(
    store: CosmosStore, unreliable: Unreliable, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transaction, "PATIENCE_SECONDS", 0.3)

    async def refused(*_: object) -> list[str]:
        raise StoreFailed(Failure(Kind.PASSING, "connection refused"))

    monkeypatch.setattr(Container, "execute", refused)
    with pytest.raises(Unavailable) as caught:
        await create(store)
    assert not isinstance(caught.value, OutcomeUnknown)


async def test_throttling_is_no_mystery_unless_an_answer_was_lost_before(
    store: CosmosStore, unreliable: Unreliable
) -> None:
    unreliable.before = [Kind.THROTTLED]
    with pytest.raises(Throttled):
        await create(store)
    unreliable.after = [Kind.PASSING]
    unreliable.before = []
    receipt = await create(store)
    assert receipt.etag is not None


@pytest.mark.parametrize("kind", [Kind.DENIED, Kind.NO_CONTAINER, Kind.INVALID, Kind.TOO_LARGE])
async def test_a_store_that_refuses_to_talk_does_not_tell_what_became_of_a_lost_answer(
    store: CosmosStore, unreliable: Unreliable, monkeypatch: pytest.MonkeyPatch, kind: Kind
) -> None:
    """The key was changed, or the firewall closed, after the first attempt was stored."""
    created = await create(store)
    unreliable.before = [kind]
    with pytest.raises((Unavailable, Misconfigured, ChangeTooLarge)) as caught:
        await rename(store, created.aggregate.id)
    assert not isinstance(caught.value, OutcomeUnknown), "nothing was lost, so nothing is stored"

    execute = Unreliable.execute

    async def lost(self: Unreliable, partition_key: str, writes: Sequence[Write]) -> list[str]:
        monkeypatch.setattr(Unreliable, "execute", execute)
        await execute(self, partition_key, writes)
        unreliable.before = [kind]
        raise StoreFailed(Failure(Kind.PASSING, "the answer was lost", answer_lost=True))

    monkeypatch.setattr(Unreliable, "execute", lost)
    with pytest.raises(OutcomeUnknown):
        await rename(store, created.aggregate.id)
    assert [event.sequence for event in await store.events(created.aggregate.key)] == [1, 2]


async def test_every_end_that_may_have_stored_events_is_told_at_once(
    store: CosmosStore, unreliable: Unreliable, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A relay in this process looks then: it need not wait for its poll."""
    monkeypatch.setattr(transaction, "PATIENCE_SECONDS", 0.3)
    created = await create(store)
    told: list[object] = []
    on_commit = OnCommit()

    async def rename_it(name: str, *fails: Kind) -> None:
        work = CosmosUnitOfWork(store.container, "test", ORIGIN, store.lifetimes, on_commit)
        contact = (await work.get(Contact, str(created.aggregate.id), newest=True)).aggregate
        contact.rename(Name(first_name=name, last_name="Roe"), at=LATER)
        unreliable.before = [*fails]
        await work.commit()

    with on_commit.listening(told.append):
        await rename_it("One")
        assert told == [str(created.aggregate.id)], "where to look"
        await rename_it("One")
        assert len(told) == 1, "nothing changed, so nothing was stored"
        with pytest.raises((Unavailable, Misconfigured)):
            await rename_it("Two", Kind.DENIED)
        assert len(told) == 1, "nothing was stored"
        with pytest.raises(OutcomeUnknown):
            await rename_it("Three", *[Kind.PASSING] * 20)
        assert len(told) == 2
        unreliable.before = []
    await rename_it("Four")
    assert len(told) == 2, "nobody listens any more"


async def test_a_planted_event_document_is_not_mistaken_for_our_own_commit(store: CosmosStore) -> None:
    """Even an event of our very id proves nothing unless it is ours to the letter."""
    contact = Contact.create(DETAILS, at=NOON)
    changes = contact.changes()
    assert changes is not None
    contact.changes = lambda: changes  # type: ignore[method-assign]  # so that the event's id is known beforehand
    event_id, key = str(changes.events[0].id), str(contact.id)
    await store.container.execute(key, [item(event_id, key, data={"id": event_id})])
    async with store.open() as work:
        work.add(contact)
        with pytest.raises(PreconditionFailed):
            await work.commit()
        with pytest.raises(AggregateNotFound):
            await work.get(Contact, str(contact.id))


@pytest.mark.known_gap(Gap.SESSION_TOKEN_IGNORED)
@pytest.mark.parametrize("how", ["get", "page"])
async def test_a_session_token_that_no_replica_can_satisfy_fails_one_request_and_is_forgotten(
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
    await container.check()
    monkeypatch.setattr(container._proxy, "read_item", broken)
    with pytest.raises(KeyError):
        await container.read("x", "never-written")


@pytest.mark.parametrize("foreign", ["x", "AAAA", "bm90IGEgdG9rZW4gb2Ygb3Vycw"])
async def test_a_foreign_continuation_token_is_refused(store: CosmosStore, foreign: str) -> None:
    async with store.open() as work:
        with pytest.raises(UnknownContinuation):
            await work.page(Contact, 10, foreign)


async def test_a_token_of_another_list_is_refused(store: CosmosStore) -> None:
    for _ in range(3):
        await create(store)
    async with store.open() as work:
        token = (await work.page(Contact, 1, None)).continuation_token
    assert token is not None
    other = CosmosUnitOfWork(store.container, "another deployment", ORIGIN, store.lifetimes)
    with pytest.raises(UnknownContinuation):
        await other.page(Contact, 1, token)


async def test_what_passed_the_check_is_not_larger_when_the_commit_begins_a_trace(
    store: CosmosStore, batch_sizes: list[int]
) -> None:
    with recording():
        async with store.open(Origin("no trace")) as work:
            work.add(Contact.create(DETAILS, at=NOON))
            work.check()
            await work.commit()
    checked, committed = batch_sizes
    assert checked == committed
