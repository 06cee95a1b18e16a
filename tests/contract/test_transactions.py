"""A transaction is stored once, whatever is lost, and its writer learns which: of aggregates as of a team's documents.

Over the real store, with faults of this process first, then with those of the network, which the SDK meets as well.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from uuid import UUID

import pytest

from cosmos_outbox.cosmos import transaction
from cosmos_outbox.cosmos.aggregates.unit_of_work import CosmosUnitOfWork, Lifetimes
from cosmos_outbox.cosmos.store.client import cosmos_client
from cosmos_outbox.cosmos.store.container import Container, StoreFailed, Write
from cosmos_outbox.cosmos.store.errors import Failure, Kind
from cosmos_outbox.cosmos.store.partition_key import Item, Key
from cosmos_outbox.cosmos.transaction import OnCommit
from cosmos_outbox.kernel.clock import SYSTEM, using
from cosmos_outbox.outbox.aggregate import ETag
from cosmos_outbox.outbox.errors import (
    AlreadyExists,
    ChangeTooLarge,
    OutcomeUnknown,
    PreconditionFailed,
    Throttled,
    Unavailable,
)
from cosmos_outbox.settings.connections import Connection
from cosmos_outbox.settings.errors import Misconfigured
from devstack.testing import Service as Server
from domain.contact import Contact
from domain.values import Name
from tests.support.azure import CONTACTS, contacts_database, cosmos_connection
from tests.support.contacts import DETAILS, LATER, NOON, ORIGIN
from tests.support.emulators import Gap
from tests.support.losses import Failing, Fate, Loss, ProcessDied
from tests.support.own import BOOKINGS, HIERARCHICAL, TENANT, World, world_of

Commit = Callable[[], Awaitable[ETag | None]]


@dataclass
class Aggregates:
    """A contact, by units of work."""

    container: Container
    on_commit: OnCommit = field(default_factory=OnCommit)
    item_id: str = "5d6a3ba4-7bb0-4c1f-8f7a-0c7a3fb6d0a1"
    name: str = CONTACTS
    taken: type[Exception] = PreconditionFailed
    """The error where another has made it."""
    changes: int = 0

    @property
    def key(self) -> Key:
        return self.item_id

    def _open(self) -> CosmosUnitOfWork:
        return CosmosUnitOfWork(self.container, "test", ORIGIN, Lifetimes(600, 600), self.on_commit)

    async def make(self) -> ETag | None:
        """Make it. Returns its version."""
        work, contact = self._open(), Contact.create(DETAILS, at=NOON, id=UUID(self.item_id))
        work.add(contact)
        return (await work.commit()).receipt(contact).etag

    async def read(self) -> Commit:
        """Read it, and decide upon its change. Returns what stores that."""
        work = self._open()
        contact = (await work.get(Contact, self.item_id, newest=True)).aggregate
        self.changes += 1
        contact.rename(Name(first_name="Jane", last_name=f"Doe {self.changes}"), at=LATER)

        async def commit() -> ETag | None:
            return (await work.commit()).receipt(contact).etag

        return commit


@dataclass
class Documents:
    """A booking of a team."""

    world: World
    item_id: str = "b-1"
    name: str = BOOKINGS
    taken: type[Exception] = AlreadyExists

    @property
    def container(self) -> Container:
        return self.world.container

    @property
    def on_commit(self) -> OnCommit:
        return self.world.outbox.on_commit

    @property
    def key(self) -> Key:
        return self.world.service.paths.key(self.world.key())

    async def make(self) -> ETag | None:
        return await self.world.book()

    async def read(self) -> Commit:
        item = await self.world.read(self.item_id)

        async def commit() -> ETag | None:
            async with self.world.transaction() as tx:
                tx.replace(item | {"seats": item["seats"] + 1}, if_match=item["_etag"])
                tx.event("BookingMoved", of=("booking", self.item_id))
            return tx.etag(self.item_id)

        return commit


Writer = Aggregates | Documents


@asynccontextmanager
async def writer_of(kind: str, cosmos: Server) -> AsyncIterator[Writer]:
    if kind == "aggregates":
        async with contacts_database(cosmos) as database:
            client = cosmos_client(Connection(cosmos_connection(cosmos)), None)
            yield Aggregates(Container(client, database.id, CONTACTS))
            await client.close()
    else:
        async with world_of(TENANT if kind == "one path" else HIERARCHICAL, cosmos) as world:
            yield Documents(world)


KINDS = ["aggregates", "hierarchical", pytest.param("one path", marks=pytest.mark.long)]


@pytest.fixture(params=KINDS)
async def writer(request: pytest.FixtureRequest, cosmos_server: Server) -> AsyncIterator[Writer]:
    async with writer_of(request.param, cosmos_server) as made:
        yield made


async def change(writer: Writer) -> ETag | None:
    return await (await writer.read())()


async def stored(writer: Writer) -> Item:
    found = await writer.container.read(writer.item_id, writer.key, consistent=True)
    assert found is not None
    return found


async def sequences(writer: Writer) -> list[int]:
    query = "SELECT * FROM c WHERE c.type = 'domainEvent'"
    found = await Container.first(writer.container, query, {}, 100, partition_key=writer.key)
    return sorted(event["data"]["sequence"] for event in found)


def failing(writer: Writer, loss: Loss) -> None:
    """The next write is lost, but not one that renews a token."""
    container: Failing = writer.container  # type: ignore[assignment]  # it becomes one in the next line
    container.__class__ = Failing
    container.fate = Fate(loss, 1)


class Flaky(Container):
    """Fails as the test asks, before the batch is sent or after it was stored."""

    before: Sequence[Failure] = ()
    after: Sequence[Failure] = ()

    async def execute(self, partition_key: Key, writes: Sequence[Write]) -> list[str]:
        if self.before:
            failure, *self.before = self.before
            raise StoreFailed(failure)
        etags = await super().execute(partition_key, writes)
        if self.after:
            failure, *self.after = self.after
            raise StoreFailed(failure)
        return etags


def flaky(writer: Writer | World) -> Flaky:
    container: Flaky = writer.container  # type: ignore[assignment]  # it becomes one in the next line
    container.__class__ = Flaky
    return container


def after_the_next(writer: Writer, then: Callable[[], Awaitable[object]]) -> None:
    """What happens once the next transaction is stored, before its answer is lost."""
    container = flaky(writer)
    execute = container.execute

    async def lost(partition_key: Key, writes: Sequence[Write]) -> list[str]:
        container.execute = execute  # type: ignore[method-assign]
        await execute(partition_key, writes)
        await then()
        raise StoreFailed(LOST)

    container.execute = lost  # type: ignore[method-assign]


LOST = Failure(Kind.PASSING, "lost", answer_lost=True)
NOT_SENT = Failure(Kind.PASSING, "connection refused")
THROTTLED = Failure(Kind.THROTTLED, "429")
THROTTLED_AFTER_LOSS = Failure(Kind.THROTTLED, "429", answer_lost=True)


@pytest.mark.known_gap(Gap.BATCH_IGNORES_ETAG)
@pytest.mark.parametrize(
    ("loss", "made"),
    [
        (Loss.NO_ANSWER, False),
        *((each, True) for each in (Loss.NOT_WRITTEN, Loss.NO_ANSWER, Loss.REPEATED, Loss.THROTTLED)),
    ],
)
async def test_a_lost_answer_stores_once_and_returns_the_version(
    writer: Writer, loss: Loss, made: bool
) -> None:
    if made:
        await writer.make()
    commit = await writer.read() if made else writer.make
    failing(writer, loss)
    assert await commit() == (await stored(writer))["_etag"]
    assert await sequences(writer) == ([1, 2] if made else [1])


@pytest.mark.parametrize("loss", [Loss.DIED_BEFORE, Loss.DIED_AFTER])
async def test_a_process_that_dies_has_stored_all_or_nothing(writer: Writer, loss: Loss) -> None:
    before, commit = await writer.make(), await writer.read()
    failing(writer, loss)
    with pytest.raises(ProcessDied):
        await commit()
    is_stored = loss is Loss.DIED_AFTER
    assert ((await stored(writer))["_etag"] != before) is is_stored
    assert await sequences(writer) == ([1, 2] if is_stored else [1])


async def test_a_lost_answer_and_a_throttled_repetition(writer: Writer) -> None:
    await writer.make()
    commit = await writer.read()

    async def throttle() -> None:
        flaky(writer).before = [THROTTLED]

    after_the_next(writer, throttle)
    assert await commit() == (await stored(writer))["_etag"]
    assert await sequences(writer) == [1, 2]


@pytest.mark.known_gap(Gap.BATCH_IGNORES_ETAG)
async def test_a_rival_after_a_lost_answer_leaves_no_version_to_return(writer: Writer) -> None:
    await writer.make()
    commit = await writer.read()
    after_the_next(writer, lambda: change(writer))
    assert await commit() is None
    assert await sequences(writer) == [1, 2, 3]


async def test_a_lost_answer_is_found_out_although_the_document_is_gone(writer: Writer) -> None:
    await writer.make()
    commit = await writer.read()
    after_the_next(
        writer, lambda: Container.execute(writer.container, writer.key, [Write.delete(writer.item_id)])
    )
    assert await commit() is None
    assert await sequences(writer) == [1, 2]


@pytest.mark.known_gap(Gap.BATCH_IGNORES_ETAG)
async def test_a_rival_before_a_lost_request_wins(writer: Writer) -> None:
    await writer.make()
    commit = await writer.read()
    await change(writer)
    flaky(writer).before = [LOST]
    with pytest.raises(PreconditionFailed):
        await commit()
    assert await sequences(writer) == [1, 2]


async def test_a_lost_creation_that_another_made_is_the_others(writer: Writer) -> None:
    await writer.make()
    flaky(writer).before = [LOST]
    with pytest.raises(writer.taken):
        await writer.make()
    assert await sequences(writer) == [1]


@pytest.mark.parametrize(
    ("failures", "error"),
    [
        ([THROTTLED], Throttled),
        ([NOT_SENT] * 20, Unavailable),
        ([LOST] * 20, OutcomeUnknown),
        ([LOST, *[THROTTLED] * 20], OutcomeUnknown),
        ([THROTTLED_AFTER_LOSS] * 20, OutcomeUnknown),
        ([Failure(Kind.TOO_LARGE, "413")], ChangeTooLarge),
        ([Failure(Kind.DENIED, "401")], Unavailable),
        ([Failure(Kind.NO_CONTAINER, "404")], Misconfigured),
        *(([LOST, Failure(kind, "refused")], OutcomeUnknown) for kind in (Kind.DENIED, Kind.TOO_LARGE)),
    ],
)
async def test_what_is_not_known_is_called_unknown_and_nothing_else(
    writer: Writer, monkeypatch: pytest.MonkeyPatch, failures: list[Failure], error: type[Exception]
) -> None:
    """The key was changed, or the firewall closed, after an attempt whose answer was lost."""
    monkeypatch.setattr(transaction, "PATIENCE_SECONDS", 0.3)
    flaky(writer).before = failures
    with pytest.raises(error) as caught:
        await writer.make()
    assert type(caught.value) is error
    assert await sequences(writer) == []


async def test_when_the_proof_cannot_be_read_the_outcome_is_unknown(
    writer: Writer, monkeypatch: pytest.MonkeyPatch
) -> None:
    flaky(writer).after = [LOST]

    async def away(*_: object) -> None:
        raise StoreFailed(NOT_SENT)

    monkeypatch.setattr(Container, "read", away)
    with pytest.raises(OutcomeUnknown):
        await writer.make()
    assert await sequences(writer) == [1]


async def test_an_event_planted_under_our_id_proves_nothing(writer: Writer) -> None:
    """Even an event of our very id proves nothing unless it is ours to the letter."""
    planted = "6a3f8d0e-6a52-4a35-9e55-3a3a63ee9b39"
    item = {"id": planted, **writer.container.paths.fields(writer.key), "data": {"id": planted}}
    await writer.container.execute(writer.key, [Write.create(item)])
    ours = replace(SYSTEM, new_id=lambda: UUID(planted))
    with using(ours), pytest.raises(writer.taken):
        await writer.make()
    assert await writer.container.read(writer.item_id, writer.key, consistent=True) is None


async def test_every_end_that_may_have_stored_events_is_notified_at_once(
    writer: Writer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A relay in this process looks then: it need not wait for its poll."""
    monkeypatch.setattr(transaction, "PATIENCE_SECONDS", 0.1)
    committed: list[object] = []
    with writer.on_commit.listening(committed.append):
        await writer.make()
        assert committed == [writer.key], "where to look"
        with pytest.raises(writer.taken):
            await writer.make()
        flaky(writer).before = [Failure(Kind.DENIED, "401")]
        with pytest.raises(Unavailable):
            await change(writer)
        assert len(committed) == 1, "nothing was stored"
        commit = await writer.read()
        flaky(writer).before = [LOST] * 9
        with pytest.raises(OutcomeUnknown):
            await commit()
        assert len(committed) == 2
        flaky(writer).before = []
    await change(writer)
    assert len(committed) == 2, "nobody listens any more"


# Over a broken network


@pytest.fixture(params=KINDS)
async def outside(request: pytest.FixtureRequest, cosmos: Server) -> AsyncIterator[Writer]:
    """Its aggregate is made."""
    async with writer_of(request.param, cosmos) as made:
        await made.make()
        yield made


def batches(writer: Writer) -> dict[str, str]:
    return {"container": writer.name, "operation": "batch"}


own_stack = pytest.mark.own_stack


@own_stack
@pytest.mark.parametrize(
    ("kind", "count"), [("fail-before-commit", 2), ("drop-after-commit", 1), ("drop-after-commit", 3)]
)
async def test_a_connection_that_breaks_stores_once(
    cosmos: Server, outside: Writer, kind: str, count: int
) -> None:
    """Lost once or twice, the SDK repeats the batch in silence, and we repeat it after that."""
    commit = await outside.read()
    await cosmos.faults.add(kind, count=count, **batches(outside))
    assert await commit() == (await stored(outside))["_etag"]
    assert await sequences(outside) == [1, 2]


@own_stack
async def test_a_lost_answer_and_the_sdks_throttled_repetition_store_once(
    cosmos: Server, outside: Writer
) -> None:
    commit = await outside.read()
    await cosmos.faults.add("drop-after-commit", count=1, **batches(outside))
    await cosmos.faults.add("throttle", count=5, retryAfterMs=10, **batches(outside))
    assert await commit() == (await stored(outside))["_etag"]
    assert await sequences(outside) == [1, 2]


@own_stack
async def test_throttled_for_good_is_unknown_after_a_lost_answer_alone(
    cosmos: Server, outside: Writer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transaction, "PATIENCE_SECONDS", 0.5)
    first, second = await outside.read(), await outside.read()
    await cosmos.faults.add("throttle", count=None, retryAfterMs=10, **batches(outside))
    with pytest.raises(Throttled):
        await first()
    await cosmos.faults.clear()
    assert await sequences(outside) == [1]
    await cosmos.faults.add("drop-after-commit", count=1, **batches(outside))
    await cosmos.faults.add("throttle", count=None, retryAfterMs=10, **batches(outside))
    with pytest.raises(OutcomeUnknown):
        await second()
    await cosmos.faults.clear()
    assert await sequences(outside) == [1, 2]


@own_stack
async def test_a_lost_answer_on_a_replica_that_lags_stores_once(cosmos: Server, outside: Writer) -> None:
    """The proof is read behind the token of the refusal: an old read would show no event, and a rival to blame."""
    commit = await outside.read()
    await cosmos.faults.add("lag", seconds=600, count=None, container=outside.name)
    await cosmos.faults.add("drop-after-commit", count=1, **batches(outside))
    etag = await commit()
    await cosmos.faults.clear()
    assert etag == (await stored(outside))["_etag"]
    assert await sequences(outside) == [1, 2]


@own_stack
async def test_where_no_refusal_has_a_token_a_document_of_the_outbox_gives_one(
    cosmos: Server, outside: Writer
) -> None:
    commit = await outside.read()
    await cosmos.faults.add("drop-after-commit", count=1, **batches(outside))
    await cosmos.faults.add("no-session-token", count=None, **batches(outside))
    etag = await commit()
    await cosmos.faults.clear()
    assert etag == (await stored(outside))["_etag"]
    assert await sequences(outside) == [1, 2]
    token_item = await outside.container.read("outbox-fence-token", outside.key)
    assert token_item is not None
    assert {name: value for name, value in token_item.items() if not name.startswith("_")} == {
        "id": "outbox-fence-token",
        **outside.container.paths.fields(outside.key),
        "type": "outbox-fence",
        "ttl": 60,
    }


@own_stack
async def test_a_real_rival_is_still_reported_after_a_loss(cosmos: Server, outside: Writer) -> None:
    commit = await outside.read()
    await change(outside)
    await cosmos.faults.add("fail-before-commit", count=1, **batches(outside))
    with pytest.raises(PreconditionFailed):
        await commit()
    await cosmos.faults.add("fail-before-commit", count=1, **batches(outside))
    with pytest.raises(outside.taken):
        await outside.make()
    assert await sequences(outside) == [1, 2]


@own_stack
async def test_what_is_stored_is_reported_although_its_versions_are_unreadable(
    cosmos: Server, outside: Writer
) -> None:
    """The answer is lost, and throttled is the look at the documents, not the read of the event that proves it."""
    commit = await outside.read()
    await cosmos.faults.add("drop-after-commit", count=1, **batches(outside))
    await cosmos.faults.add(
        "throttle", count=None, retryAfterMs=10, container=outside.name, operation="query"
    )
    assert await commit() is None
    await cosmos.faults.clear()
    assert await sequences(outside) == [1, 2]


@own_stack
async def test_an_answer_is_lost_and_so_is_the_way_to_find_out(cosmos: Server, outside: Writer) -> None:
    commit = await outside.read()
    await cosmos.faults.add("drop-after-commit", count=1, **batches(outside))
    await cosmos.faults.add(
        "throttle", count=None, retryAfterMs=2000, container=outside.name, operation="read"
    )
    with pytest.raises(OutcomeUnknown):
        await commit()
    await cosmos.faults.clear()
    assert await sequences(outside) == [1, 2]


@own_stack
async def test_of_writers_at_once_behind_lost_answers_one_wins(cosmos: Server, outside: Writer) -> None:
    commits = [await outside.read() for _ in range(3)]
    await cosmos.faults.add("drop-after-commit", count=2, **batches(outside))
    ends = await asyncio.gather(*(each() for each in commits), return_exceptions=True)
    assert sorted(isinstance(each, PreconditionFailed) for each in ends) == [False, True, True]
    assert await sequences(outside) == [1, 2]
