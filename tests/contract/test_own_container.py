"""A team's own documents and the events of their change are stored together or not at all; the team learns which."""

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from cosmos_outbox.cosmos.existing.transaction import Transaction
from cosmos_outbox.cosmos.store.container import Container
from cosmos_outbox.cosmos.store.errors import Failure, Kind
from cosmos_outbox.kernel.clock import SYSTEM, using
from cosmos_outbox.outbox.errors import (
    AlreadyExists,
    ChangeTooLarge,
    OutcomeUnknown,
    PreconditionFailed,
    Unpublishable,
)
from devstack.testing import Service as Server
from tests.contract.test_transactions import LOST, flaky
from tests.support.emulators import Gap
from tests.support.own import BOOKINGS, HIERARCHICAL, NESTED, TENANT, UNREACHABLE, World, world_of

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
    wired = TENANT.wire(UNREACHABLE)
    async with wired.resources:
        yield World(TENANT, wired, wired.outbox.feed, UNREACHABLE)


Step = Callable[[Transaction], object]


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
    assert (event["schemaVersion"], event["data"]["seats"], event["data"]["sequence"]) == (3, 1, 1)
    assert world.service.paths.fields(world.key()).items() <= event.items()


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


async def test_a_transactions_events_have_rising_times_whatever_the_clock_shows(tenants: World) -> None:
    now = datetime(2026, 3, 1, 12, tzinfo=UTC)
    shown = iter([now, now, now - timedelta(hours=1)])
    async with tenants.transaction() as tx:
        with using(replace(SYSTEM, now=lambda: next(shown))):
            ids = [tx.event("NoteTaken", of=("note", "n-1")) for _ in range(3)]
    stored = [(await tenants.read(each))["data"] for each in ids]
    assert not [each for each in stored if "sequence" in each]
    times = [datetime.fromisoformat(each["createdAt"]) for each in stored]
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


ODD = ["a\"b'c\\d", "\u00fc\U0001f600 /?#%2F", "line\nline\ttab", "\0" + "17", " x ", "[1]", "17"]


async def test_a_partition_key_of_any_kind_holds_a_transaction(world: World) -> None:
    tenants: list[Any] = ["acme", 17, 0, -1.5, True, False, 2**53 - 1, *ODD]
    for tenant in tenants:
        await world.book(tenant=tenant)
        etag = await world.move(tenant=tenant)
        assert (await world.read("b-1", tenant))["_etag"] == etag, tenant
        with pytest.raises(ValueError, match="not in the partition"):
            await world.run(lambda tx: tx.create(world.document("a", tenant="acmex")), tenant=tenant)
    assert await sequences(world) == sorted([1, 2] * len(tenants))


async def test_ids_of_odd_characters_are_stored_and_read(world: World) -> None:
    for booking in ("a b", " ", "\u00fc\U0001f600", "a\"b'c", "%2e", "a;b=c&d,e:f@", "line\nline", "..."):
        await world.book(booking)
        etag = await world.move(item_id=booking)
        found = await world.container.read(booking, world.service.paths.key(world.key("acme", booking)))
        assert found is not None
        assert found["_etag"] == etag
        flaky(world).after = [LOST]
        assert await world.move(item_id=booking) is not None


@pytest.mark.known_gap(Gap.BATCH_IGNORES_ETAG)
async def test_what_the_store_refuses_stores_nothing_and_is_named_by_its_id(world: World) -> None:
    stale = str(await world.book())
    await world.move()
    before = await world.ids()
    refused: list[tuple[Step, type[Exception], str]] = [
        (lambda tx: tx.replace(world.booking(last=1), if_match=stale), PreconditionFailed, "b-1 was changed"),
        (lambda tx: tx.create(world.booking()), AlreadyExists, "document b-1 is there already"),
        (lambda tx: tx.delete("gone"), PreconditionFailed, "document gone was changed or removed"),
        (lambda tx: tx.delete("b-1", if_match=stale), PreconditionFailed, "document b-1"),
    ]
    for step, error, message in refused:
        with pytest.raises(error, match=message):
            await world.run(
                lambda tx: tx.create(world.document("other")),
                step,
                lambda tx: tx.event("N", of=("note", "n-1")),
            )
    assert await world.ids() == before
    tx = await world.run(lambda tx: tx.create(world.document("note-1")))
    etag = tx.etag("note-1")
    tx = await world.run(
        lambda tx: tx.delete("note-1", if_match=etag),
        lambda tx: tx.event("NoteRemoved", of=("note", "note-1")),
    )
    assert tx.etag("note-1") is None
    assert "note-1" not in await world.ids()


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


BOOKING = ("booking", "b-1")


def moved(tx: Transaction) -> None:
    tx.event("BookingMoved", of=BOOKING)


def created(**fields: Any) -> Step:
    return lambda tx: tx.create({"id": "b-1", "tenantId": "acme"} | fields)


WRONG: list[tuple[str, list[Step]]] = [
    (
        "document a is not in the partition of this transaction: give /tenantId the value",
        [created(id="a", tenantId="other")],
    ),
    ("not in the partition", [lambda tx: tx.create({"id": "a"})]),
    ("written twice", [created(id="a"), lambda tx: tx.delete("a")]),
    ("Booking is no aggregate of this service", [lambda tx: tx.event("BookingMade", of=("Booking", "b-1"))]),
    ("fills sequence", [lambda tx: tx.event("Noted", of=("note", "n"), data={"sequence": 1})]),
    ("_etag", [lambda tx: tx.replace({"id": "a", "tenantId": "acme"}, if_match="")]),
    ("document b-1, which is not in this transaction: create", [moved]),
    (
        r"in this transaction with upsert\(\)",
        [lambda tx: tx.upsert({"id": "b-1", "tenantId": "acme", "meta": {"lastSequence": 1}}), moved],
    ),
    (r"with delete\(\).* with a ttl", [lambda tx: tx.delete("b-1"), moved]),
    (
        "/meta/lastSequence of the document of booking b-1 must be",
        [lambda tx: tx.replace({"id": "b-1", "tenantId": "acme"}, if_match='"a"'), moved],
    ),
    ("must be the number of its newest event", [created(meta={"lastSequence": True}), moved]),
    ("must be the number of its newest event", [created(meta={"lastSequence": -1}), moved]),
    ("no object", [created(meta=1), moved]),
    (
        "must have one document",
        [created(), created(id="c-1"), moved, lambda tx: tx.event("A", of=BOOKING, document="c-1")],
    ),
    (
        "must have one document",
        [created(), moved, lambda tx: tx.event("A", of=("booking", "b-2"), document="b-1")],
    ),
]


@pytest.mark.parametrize(("message", "steps"), WRONG)
async def test_a_call_that_can_never_be_right_sends_nothing(
    refusing: World, message: str, steps: list[Step]
) -> None:
    with pytest.raises(ValueError, match=message):
        await refusing.run(*steps)


async def test_a_key_of_another_type_is_another_key(refusing: World) -> None:
    with pytest.raises(ValueError, match="not in the partition"):
        await refusing.run(created(tenantId=True), tenant=1)


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ({"id": "outbox-fence"}, "under the id outbox-fence"),
        ({"id": "outbox-fence-token"}, "under the id outbox-fence-token"),
        ({"id": ""}, "the id of a document must be"),
        ({"id": "a/b"}, "without /"),
        ({"id": "x" * 1024}, "1 to 1023 bytes"),
        ({"type": "domainEvent"}, "take it for an event"),
        ({"at": "9999-12-31T24:00:00Z"}, "outside the calendar"),
        ({"n": float("nan")}, "not finite"),
    ],
)
async def test_a_document_that_the_store_or_the_feed_cannot_take_is_refused(
    refusing: World, document: dict[str, Any], message: str
) -> None:
    with pytest.raises(Unpublishable, match=message):
        await refusing.run(lambda tx: tx.create(refusing.document("a") | document))


@pytest.mark.parametrize("item_id", ["", "a/b", "outbox-fence-token"])
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
        ({"of": ("note", "")}, "no valid aggregate"),
        ({"of": ("note", "a/b")}, "without /"),
        ({"of": ("note", 17)}, "must be a text"),
        ({"of": ("note", "2024-05-01T10:00:00Z")}, "aggregateId of a note looks like a date"),
        ({"data": {"noteId": "another"}}, "another event or aggregate"),
        ({"data": {"text": "\ud800"}}, "lone surrogate"),
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


@pytest.mark.parametrize("key", [None, ["a", "b", "c"], {"a": 1}, b"a"])
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


async def test_what_only_the_store_knows_to_be_wrong_names_the_document(world: World) -> None:
    with pytest.raises(Unpublishable, match=r"the store does not take .*400.*ttl"):
        await world.run(lambda tx: tx.create(world.document("a", ttl=0)))
    assert await world.all() == []


# Lost answers


@pytest.mark.parametrize("index", [None, 0, 3])
async def test_a_refusal_without_a_documents_index_blames_no_document(
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


async def test_a_transactions_document_is_read_by_the_token_of_its_answer(world: World) -> None:
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
async def test_a_duplicate_during_a_repeated_transaction_is_done_once(cosmos: Server, outside: World) -> None:
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

    await cosmos.faults.add("drop-after-commit", count=2, container=BOOKINGS, operation="batch")
    ends = await asyncio.gather(request(), request(), request())
    assert sorted(ends) == ["done", "done before", "done before"]
    assert await sequences(outside) == [1, 2]
