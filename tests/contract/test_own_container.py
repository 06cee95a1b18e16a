"""A team's own documents and the events of their change are stored together or not at all; the team learns which."""

import asyncio
import hashlib
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from cosmos_outbox.cosmos.own.transaction import Transaction
from cosmos_outbox.cosmos.store.container import Container, StoreFailed, Write
from cosmos_outbox.cosmos.store.errors import Failure, Kind
from cosmos_outbox.cosmos.store.partition_key import Item, Key
from cosmos_outbox.kernel.clock import SYSTEM, using
from cosmos_outbox.outbox.canonical import canonical
from cosmos_outbox.outbox.errors import (
    AlreadyExists,
    ChangeTooLarge,
    OutcomeUnknown,
    PreconditionFailed,
    Unpublishable,
)
from devstack.testing import Service as Server
from tests.support.own import BOOKINGS, HIERARCHICAL, NESTED, NOWHERE, TENANT, World, world_of

KINDS = {"one path": TENANT, "hierarchical": HIERARCHICAL, "nested": NESTED}


@pytest.fixture(
    params=["hierarchical", *(pytest.param(each, marks=pytest.mark.long) for each in ("one path", "nested"))]
)
async def world(request: pytest.FixtureRequest, cosmos_server: Server) -> AsyncIterator[World]:
    async with world_of(KINDS[request.param], cosmos_server) as world:
        yield world


@pytest.fixture
async def tenants(cosmos_server: Server) -> AsyncIterator[World]:
    async with world_of(TENANT, cosmos_server) as world:
        yield world


@pytest.fixture
async def refusing(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[World]:
    """A world in which nothing may be sent."""

    async def sent(*_: object) -> list[str]:
        raise AssertionError("something was sent")

    monkeypatch.setattr(Container, "execute", sent)
    wired = TENANT.wire(NOWHERE)
    async with wired.resources:
        yield World(TENANT, wired, wired.outbox.feed, NOWHERE)


async def sequences(world: World) -> list[int]:
    return sorted(event["data"]["sequence"] for event in await world.events())


async def test_documents_and_events_are_stored_together(world: World) -> None:
    async with world.transaction() as tx:
        tx.create(world.booking(seats=1))
        tx.upsert(world.document("note-1", text="window"))
        event_id = tx.event("BookingMade", of=("booking", "b-1"), data={"seats": 1}, schema_version=3)

    stored = await world.read("b-1")
    assert stored["meta"] == {"lastSequence": 1}
    assert tx.etag("b-1") == stored["_etag"]
    assert tx.etag("note-1") == (await world.read("note-1"))["_etag"]
    event = await world.read(event_id)
    created_at = event["data"].pop("createdAt")
    assert {name: value for name, value in event.items() if not name.startswith("_")} == {
        "id": event_id,
        **world.service.paths.fields(world.key()),
        "type": "domainEvent",
        "aggregateType": "booking",
        "aggregateId": "b-1",
        "data": {
            "id": event_id,
            "action": "BookingMade",
            "sequence": 1,
            "seats": 1,
            "correlationId": "request-1",
        },
        "digest": event["digest"],
        "schemaVersion": 3,
        "ttl": 864_000,
    }
    signed = {
        "id": event_id,
        "partitionKey": world.key(),
        "type": "domainEvent",
        "aggregateType": "booking",
        "aggregateId": "b-1",
        "data": event["data"] | {"createdAt": created_at},
    }
    assert event["digest"] == hashlib.sha256(canonical(signed)).hexdigest()


async def test_the_events_of_one_booking_number_on(world: World) -> None:
    await world.book()
    await world.move("BookingMoved", "SeatsChanged", "BookingPaid")
    await world.move()
    stored = await world.read("b-1")
    assert stored["meta"] == {"lastSequence": 5}
    by_sequence = {event["data"]["sequence"]: event["data"]["action"] for event in await world.events()}
    assert by_sequence == {
        1: "BookingMade",
        2: "BookingMoved",
        3: "SeatsChanged",
        4: "BookingPaid",
        5: "BookingMoved",
    }


async def test_an_event_without_a_sequence_needs_no_document(world: World) -> None:
    async with world.transaction() as tx:
        first = tx.event("NoteTaken", of=("note", "n-1"))
        second = tx.event("NoteTaken", of=("note", "n-1"))
    created = [(await world.read(event_id))["data"]["createdAt"] for event_id in (first, second)]
    times = [
        datetime.fromisoformat(each) for each in created
    ]  # as texts they have no order: zeros are left out
    assert "sequence" not in (await world.read(first))["data"]
    assert times == sorted(set(times)), "by it their order within the transaction is known"


async def test_events_of_one_transaction_are_in_the_order_of_their_times_whatever_the_clock_shows(
    tenants: World,
) -> None:
    now = datetime(2026, 3, 1, 12, tzinfo=UTC)
    shown = iter([now, now, now - timedelta(hours=1)])
    async with tenants.transaction() as tx:
        with using(replace(SYSTEM, now=lambda: next(shown))):
            ids = [tx.event("NoteTaken", of=("note", "n-1")) for _ in range(3)]
    created = [(await tenants.read(each))["data"]["createdAt"] for each in ids]
    times = [datetime.fromisoformat(each) for each in created]
    assert times == [now + timedelta(microseconds=number) for number in range(3)]


async def test_a_block_that_raises_stores_nothing(world: World) -> None:
    def fails(_: Transaction) -> None:
        raise RuntimeError

    with pytest.raises(RuntimeError):
        await world.run(
            lambda tx: tx.create(world.booking()),
            lambda tx: tx.event("BookingMade", of=("booking", "b-1")),
            fails,
        )
    assert await world.all() == []


async def test_a_block_that_writes_nothing_asks_the_store_nothing(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(Container, "execute")
    async with world.transaction():
        pass


async def test_what_is_changed_after_it_was_given_is_not_stored(world: World) -> None:
    document, data = world.booking(seats=1), {"seats": [1]}
    async with world.transaction() as tx:
        tx.create(document)
        event_id = tx.event("BookingMade", of=("booking", "b-1"), data=data)
        document["seats"] = 2
        data["seats"].append(2)
    assert (await world.read("b-1"))["seats"] == 1
    assert (await world.read(event_id))["data"]["seats"] == [1]
    assert "meta" not in document, "the caller's own document stays as it is"


@pytest.mark.parametrize("tenant", ["acme", "Zürich/ä", 17, 0, -1.5, True, False, 2**53 - 1])
async def test_every_kind_of_partition_key_holds_a_transaction(world: World, tenant: Any) -> None:
    await world.book(tenant=tenant)
    etag = await world.move(tenant=tenant)
    assert (await world.read("b-1", tenant))["_etag"] == etag
    assert await sequences(world) == [1, 2]
    for event in await world.events():
        assert await world.read(event["id"], tenant) == event


@pytest.mark.parametrize(
    "tenant", ["a\"b'c\\d", "\u00fc\U0001f600 /?#%2F", "line\nline\ttab", "\0" + "17", " x ", "[1]", "17"]
)
async def test_a_partition_key_of_odd_characters_holds_a_transaction_and_is_no_other_key(
    world: World, tenant: str
) -> None:
    await world.book(tenant=tenant)
    assert await world.move(tenant=tenant) == (await world.read("b-1", tenant))["_etag"]
    for other in (17, True, tenant + "x"):
        with pytest.raises(ValueError, match="not in the partition"):
            await world.run(lambda tx: tx.create(world.document("a", tenant=tenant)), tenant=other)


@pytest.mark.parametrize(
    "booking", ["a b", " ", "\u00fc\U0001f600", "a\"b'c", "%2e", "a;b=c&d,e:f@", "line\nline", "..."]
)
async def test_ids_of_odd_characters_are_stored_and_read(world: World, booking: str) -> None:
    await world.book(booking)
    etag = await world.move(item_id=booking)
    found = await world.container.read(booking, world.service.paths.key(world.key("acme", booking)))
    assert found is not None
    assert found["_etag"] == etag
    assert {event["aggregateId"] for event in await world.events()} == {booking}
    flaky(world).after = [LOST]
    assert await world.move(item_id=booking) is not None


async def test_a_partition_key_that_the_store_does_not_take_is_told(world: World) -> None:
    with pytest.raises(Unpublishable):
        await world.run(lambda tx: tx.event("Noted", of=("note", "n-1")), tenant="x" * 5000)


async def test_a_stale_version_stores_nothing(world: World) -> None:
    stale = await world.book()
    await world.move()
    with pytest.raises(PreconditionFailed, match="document b-1 was changed"):
        await world.run(
            lambda tx: tx.replace(world.booking(last=1, seats=9), if_match=str(stale)),
            lambda tx: tx.create(world.document("other")),
            lambda tx: tx.event("BookingMoved", of=("booking", "b-1")),
        )
    assert "other" not in await world.ids()
    assert await sequences(world) == [1, 2]


async def test_a_document_that_is_there_is_told_by_its_id(world: World) -> None:
    await world.book()
    with pytest.raises(AlreadyExists, match="document b-1 is there already"):
        await world.run(
            lambda tx: tx.create(world.document("other")),
            lambda tx: tx.create(world.booking()),
            lambda tx: tx.event("BookingMade", of=("booking", "b-1")),
        )
    assert "other" not in await world.ids()
    assert await sequences(world) == [1]


async def test_a_document_that_is_gone_cannot_be_deleted_or_replaced(world: World) -> None:
    with pytest.raises(PreconditionFailed, match="document gone was changed or removed"):
        await world.run(lambda tx: tx.delete("gone"), lambda tx: tx.event("NoteRemoved", of=("note", "gone")))
    with pytest.raises(PreconditionFailed):
        await world.run(lambda tx: tx.replace(world.document("gone"), if_match='"a"'))
    assert await world.all() == []


async def test_a_deletion_at_its_version(world: World) -> None:
    async with world.transaction() as tx:
        tx.create(world.document("note-1"))
    etag = tx.etag("note-1")
    with pytest.raises(PreconditionFailed):
        await world.run(lambda tx: tx.delete("note-1", if_match='"another"'))
    async with world.transaction() as tx:
        tx.delete("note-1", if_match=etag)
        tx.event("NoteRemoved", of=("note", "note-1"))
    assert tx.etag("note-1") is None
    assert "note-1" not in await world.ids()


async def test_writers_at_once_leave_no_gap(world: World) -> None:
    await world.book()

    async def writer() -> None:
        for _ in range(5):
            while True:
                try:
                    await world.move()
                    break
                except PreconditionFailed:
                    continue

    await asyncio.gather(*(writer() for _ in range(4)))
    assert await sequences(world) == [*range(1, 22)]
    assert (await world.read("b-1"))["meta"] == {"lastSequence": 21}


async def full(world: World, count: int) -> None:
    async with world.transaction() as tx:
        tx.create(world.booking())
        for number in range(count - 2):
            tx.create(world.document(f"n-{number}"))
        tx.event("BookingMade", of=("booking", "b-1"))


async def test_a_transaction_holds_a_hundred_writes_and_no_more(world: World) -> None:
    with pytest.raises(ChangeTooLarge, match="100 documents"):
        await full(world, 101)
    assert await world.all() == []
    await full(world, 100)
    assert len(await world.all()) == 100


async def test_a_transaction_holds_two_megabytes_and_no_more(
    tenants: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def store(size: int) -> None:
        async with tenants.transaction() as tx:
            tx.create(tenants.booking(text="x" * (size // 2)))
            tx.create(tenants.document("other", text="x" * (size // 2)))
            tx.event("BookingMade", of=("booking", "b-1"))

    with pytest.raises(ChangeTooLarge, match="2097152 bytes"):
        await store(2 * 1024 * 1024)
    assert await tenants.all() == []
    await store(1_000_000)  # of a larger body aiohttp says that it holds up the event loop
    assert len(await tenants.all()) == 3


Step = Callable[[Transaction], object]
BOOKING = ("booking", "b-1")


def moved(tx: Transaction) -> None:
    tx.event("BookingMoved", of=BOOKING)


def wrong(world: World) -> dict[str, list[Step]]:
    def created(document: Item) -> Step:
        return lambda tx: tx.create(document)

    return {
        "partition": [created(world.document("a", tenant="other"))],
        "no partition key": [created({"id": "a"})],
        "true is not 1": [created(world.document("a", tenant=True))],
        "twice": [created(world.document("a")), lambda tx: tx.delete("a")],
        "no type": [lambda tx: tx.event("BookingMade", of=("Booking", "b-1"))],
        "its own field": [lambda tx: tx.event("Noted", of=("note", "n"), data={"sequence": 1})],
        "no version": [lambda tx: tx.replace(world.document("a"), if_match="")],
        "no document": [moved],
        "upserted": [lambda tx: tx.upsert(world.booking(last=1)), moved],
        "deleted": [lambda tx: tx.delete("b-1"), moved],
        "field lost": [lambda tx: tx.replace(world.booking(), if_match='"a"'), moved],
        "field no number": [created(world.booking(meta={"lastSequence": True})), moved],
        "field negative": [created(world.booking(last=-1)), moved],
        "field no object": [created(world.booking(meta=1)), moved],
        "two documents": [
            created(world.booking()),
            created(world.document("c-1")),
            moved,
            lambda tx: tx.event("A", of=BOOKING, document="c-1"),
        ],
        "two owners": [
            created(world.booking()),
            moved,
            lambda tx: tx.event("A", of=("booking", "b-2"), document="b-1"),
        ],
    }


@pytest.mark.parametrize(
    ("what", "message"),
    [
        ("partition", "document a is not in the partition of this transaction: at /tenantId"),
        ("no partition key", "not in the partition"),
        ("true is not 1", "not in the partition"),
        ("twice", "written twice"),
        ("no type", "Booking is no aggregate of this service"),
        ("its own field", "fills sequence"),
        ("no version", "_etag"),
        ("no document", "document b-1, which is not in this transaction: create"),
        ("upserted", r"in this transaction with upsert\(\)"),
        ("deleted", r"with delete\(\).* with a ttl"),
        ("field lost", "/meta/lastSequence of the document of booking b-1 must be"),
        ("field no number", "must be the number of its newest event"),
        ("field negative", "must be the number of its newest event"),
        ("field no object", "no object"),
        ("two documents", "must have one document"),
        ("two owners", "must have one document"),
    ],
)
async def test_a_call_that_can_never_be_right_sends_nothing(refusing: World, what: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        await refusing.run(*wrong(refusing)[what], tenant=1 if what == "true is not 1" else "acme")


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ({"id": "outbox-fence"}, "under the id outbox-fence"),
        ({"id": "outbox-fence-token"}, "under the id outbox-fence-token"),
        ({"id": ""}, "the id of a document must be"),
        ({"id": None}, "the id of a document must be"),
        ({"id": "a/b"}, "without /"),
        ({"id": "."}, "the id of a document must be"),
        ({"id": ".."}, "the id of a document must be"),
        ({"id": "x" * 1024}, "1 to 1023 bytes"),
        ({"id": "\ud800"}, "the id of a document must be"),
        ({"type": "domainEvent"}, "take it for an event"),
        ({"at": "9999-12-31T24:00:00Z"}, "outside the calendar"),
        ({"n": 2**53 + 1}, "beyond 2\\^53"),
        ({"n": float("nan")}, "not finite"),
        ({"n": {1, 2}}, "is no JSON"),
    ],
)
async def test_a_document_that_the_store_or_the_feed_cannot_take_is_refused(
    refusing: World, document: dict[str, Any], message: str
) -> None:
    with pytest.raises(Unpublishable, match=message):
        await refusing.run(lambda tx: tx.create(refusing.document("a") | document))


@pytest.mark.parametrize("item_id", ["", "a/b", "..", "outbox-fence", "outbox-fence-token", "x" * 1024])
async def test_a_deletion_or_patch_by_an_id_that_no_document_can_have_is_refused(
    refusing: World, item_id: str
) -> None:
    steps: list[Step] = [
        lambda tx: tx.delete(item_id),
        lambda tx: tx.patch(item_id, [{"op": "incr", "path": "/seats", "value": 1}]),
    ]
    for step in steps:
        with pytest.raises(Unpublishable, match=r"the id of a document must be|under the id outbox-fence"):
            await refusing.run(step)


@pytest.mark.parametrize(
    ("event", "message"),
    [
        ({"action": ""}, "could not be read by the relay: .*action"),
        ({"action": "x" * 129}, "could not be read by the relay: .*action"),
        ({"of": ("note", "")}, "no valid aggregate"),
        ({"of": ("note", "x" * 129)}, "no valid aggregate"),
        ({"of": ("note", "a/b")}, "without /"),
        ({"of": ("note", "..")}, "must be a text"),
        ({"of": ("note", 17)}, "must be a text"),
        ({"of": ("note", "2024-05-01T10:00:00Z")}, "aggregateId of a note looks like a date"),
        ({"data": {"noteId": "another"}}, "another event or aggregate"),
        ({"data": {"n": 2**53 + 2}}, "beyond 2\\^53"),
        ({"data": {"text": "\ud800"}}, "lone surrogate"),
        ({"data": {"at": "/Date(999999999999999)/"}}, "outside the calendar"),
        ({"data": {"at": object()}}, "is no JSON"),
    ],
)
async def test_an_event_that_not_everybody_can_read_is_refused(
    refusing: World, event: dict[str, Any], message: str
) -> None:
    with pytest.raises(Unpublishable, match=message):
        await refusing.run(
            lambda tx: tx.create(refusing.document("a")),
            lambda tx: tx.event(**({"action": "Noted", "of": ("note", "n-1")} | event)),
        )


@pytest.mark.parametrize("tenant", ["2024-05-01T10:00:00Z", "/Date(1)/"])
async def test_a_partition_key_that_the_host_would_rewrite_holds_no_event(world: World, tenant: str) -> None:
    with pytest.raises(Unpublishable, match=r"tenantId of a note looks like a date"):
        await world.run(lambda tx: tx.event("Noted", of=("note", "n-1")), tenant=tenant)
    assert await world.all() == []


@pytest.mark.parametrize("key", [None, "", float("inf"), ["a", "b", "c"], ["a", None], {"a": 1}, b"a", 2**53])
async def test_what_is_no_partition_key_is_refused(refusing: World, key: Any) -> None:
    with pytest.raises(ValueError, match="partition key"):
        refusing.outbox.transaction(key)


async def test_a_transaction_is_used_once_and_inside_its_block(world: World) -> None:
    tx = world.transaction()
    with pytest.raises(ValueError, match="inside its async with"):
        tx.create(world.document("a"))
    async with tx:
        tx.create(world.document("a"))
    with pytest.raises(ValueError, match="inside its async with"):
        tx.event("Noted", of=("note", "n-1"))
    with pytest.raises(ValueError, match="used once"):
        await tx.__aenter__()


async def test_what_only_the_store_knows_to_be_wrong_is_told_of_the_document(world: World) -> None:
    with pytest.raises(Unpublishable, match=r"the store does not take .*400.*ttl"):
        await world.run(lambda tx: tx.create(world.document("a", ttl=0)))
    assert await world.all() == []


# Lost answers


class Flaky(Container):
    """Fails as told, before the batch is sent or after it was stored."""

    before: Sequence[Failure] = ()
    after: Sequence[Failure] = ()
    sent = 0

    async def execute(self, partition_key: Key, writes: Sequence[Write]) -> list[str]:
        self.sent += 1
        if self.before:
            failure, *self.before = self.before
            raise StoreFailed(failure)
        etags = await super().execute(partition_key, writes)
        if self.after:
            failure, *self.after = self.after
            raise StoreFailed(failure)
        return etags


def flaky(world: World) -> Flaky:
    container: Flaky = world.container  # type: ignore[assignment]  # it becomes one in the next line
    container.__class__ = Flaky
    return container


LOST = Failure(Kind.PASSING, "lost", answer_lost=True)
NOT_SENT = Failure(Kind.PASSING, "connection refused")
THROTTLED = Failure(Kind.THROTTLED, "429")
THROTTLED_AFTER_LOSS = Failure(Kind.THROTTLED, "429", answer_lost=True)


@pytest.mark.parametrize("index", [None, 0, 3])
async def test_where_the_store_does_not_tell_which_document_it_refuses_none_is_blamed(
    tenants: World, index: int | None
) -> None:
    """0 is the event, and there is no operation 3."""
    flaky(tenants).before = [Failure(Kind.CONFLICT, "409", index=index)]
    with pytest.raises(AlreadyExists, match="a document of the transaction is there already"):
        await tenants.run(
            lambda tx: tx.create(tenants.document("a")),
            lambda tx: tx.create(tenants.document("b")),
            lambda tx: tx.event("Noted", of=("note", "n-1")),
        )


@pytest.mark.parametrize("stored", [True, False])
async def test_without_an_event_a_lost_answer_is_unknown_and_nothing_is_sent_again(
    world: World, stored: bool
) -> None:
    container = flaky(world)
    container.before, container.after = ([], [LOST]) if stored else ([LOST], [])
    with pytest.raises(OutcomeUnknown):
        await world.run(lambda tx: tx.upsert(world.document("a")))
    assert container.sent == 1
    assert await world.ids() == ({"a"} if stored else set())


async def test_without_an_event_a_refusal_after_a_loss_is_unknown_and_one_without_is_known(
    world: World,
) -> None:
    container = flaky(world)

    async def create() -> None:
        async with world.transaction() as tx:
            tx.create(world.document("a"))

    container.before = [Failure(Kind.CONFLICT, "409", answer_lost=True, index=0)]
    with pytest.raises(OutcomeUnknown):
        await create()
    container.before = [NOT_SENT]
    await create()
    with pytest.raises(AlreadyExists, match="document a"):
        await create()


async def test_a_document_of_the_team_is_read_anew_after_the_transaction_by_the_token_of_its_answer(
    world: World,
) -> None:
    """A batch does not feed the SDK's session; the store's own reads go by the batch's token."""
    etag = await world.book()
    found = await world.container.read("b-1", world.service.paths.key(world.key()))
    assert found is not None
    assert found["_etag"] == etag


async def test_the_trace_and_the_correlation_id_of_the_task_are_the_events(tenants: World) -> None:
    from cosmos_outbox.telemetry.correlation import correlated  # noqa: PLC0415 - of this test alone

    with correlated("call-7"):
        async with tenants.outbox.transaction("acme") as tx:
            event_id = tx.event("Noted", of=("note", "n-1"))
    assert (await tenants.read(event_id))["data"]["correlationId"] == "call-7"


@pytest.fixture
async def outside(cosmos: Server) -> AsyncIterator[World]:
    """With a booking, and faults between it and its store."""
    async with world_of(HIERARCHICAL, cosmos) as world:
        await world.book()
        yield world


@pytest.mark.own_stack
async def test_without_an_event_the_sdks_own_repetition_is_no_proof(cosmos: Server, outside: World) -> None:
    """The SDK repeats a batch whose connection broke: its 409 may be against the first attempt."""
    await cosmos.faults.add("drop-after-commit", count=1, container=BOOKINGS, operation="batch")
    with pytest.raises(OutcomeUnknown):
        await outside.run(lambda tx: tx.create(outside.document("a")))
    assert "a" in await outside.ids()


@pytest.mark.own_stack
async def test_deletions_and_upserts_are_recognised_by_the_event(cosmos: Server, outside: World) -> None:
    await outside.run(lambda tx: tx.create(outside.document("old")))
    await cosmos.faults.add("drop-after-commit", count=2, container=BOOKINGS, operation="batch")
    tx = await outside.run(
        lambda tx: tx.delete("old"),
        lambda tx: tx.upsert(outside.document("new", n=1.5)),
        lambda tx: tx.event("Noted", of=("note", "n-1")),
    )
    assert tx.etag("old") is None
    assert tx.etag("new") == (await outside.read("new"))["_etag"]
    assert "old" not in await outside.ids()


@pytest.mark.own_stack
@pytest.mark.parametrize("kind", ["fail-before-commit", "drop-after-commit"])
async def test_a_duplicate_during_a_repeated_transaction_is_done_once(
    cosmos: Server, outside: World, kind: str
) -> None:
    """Its caller sends it again over another connection; both name the document of the request."""
    item = await outside.read("b-1")

    async def request() -> str:
        try:
            async with outside.transaction() as tx:
                tx.create(outside.document("request-7"))
                tx.replace(item | {"seats": 5}, if_match=item["_etag"])
                tx.event("BookingMoved", of=("booking", "b-1"))
        except AlreadyExists as error:
            assert "request-7" in str(error)  # noqa: PT017 - which of two ends is open
            return "done before"
        return "done"

    await cosmos.faults.add(kind, count=2, container=BOOKINGS, operation="batch")
    ends = await asyncio.gather(request(), request(), request())
    assert sorted(ends) == ["done", "done before", "done before"]
    assert await sequences(outside) == [1, 2]
