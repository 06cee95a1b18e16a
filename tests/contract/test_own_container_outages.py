"""A team's transaction is stored once, and its outcome told: with the SDK's own retries, over broken connections."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from cosmos_outbox.cosmos import transaction
from cosmos_outbox.outbox.errors import AlreadyExists, OutcomeUnknown, PreconditionFailed, Throttled
from devstack.testing import Service as Server
from tests.support.own import BOOKINGS, HIERARCHICAL, World, world_of

pytestmark = pytest.mark.own_stack

BATCHES = {"container": BOOKINGS, "operation": "batch"}


@pytest.fixture
async def world(cosmos: Server) -> AsyncIterator[World]:
    async with world_of(HIERARCHICAL, cosmos) as world:
        await world.book()
        yield world


async def sequences(world: World) -> list[int]:
    return sorted(event["data"]["sequence"] for event in await world.events())


@pytest.mark.parametrize("kind", ["fail-before-commit", "drop-after-commit"])
@pytest.mark.parametrize("count", [1, 2, 3])
async def test_a_connection_that_breaks_stores_once(
    cosmos: Server, world: World, kind: str, count: int
) -> None:
    """Lost once or twice, the SDK repeats the batch in silence, and we repeat it after that."""
    await cosmos.faults.add(kind, count=count, **BATCHES)
    etag = await world.move("BookingMoved", "BookingPaid")
    stored = await world.read("b-1")
    assert (etag, stored["meta"], stored["seats"]) == (stored["_etag"], {"lastSequence": 3}, 2)
    assert await sequences(world) == [1, 2, 3]


@pytest.mark.parametrize("throttled", [1, 5])
async def test_a_lost_answer_and_a_throttled_repetition_store_once(
    cosmos: Server, world: World, throttled: int
) -> None:
    await cosmos.faults.add("drop-after-commit", count=1, **BATCHES)
    await cosmos.faults.add("throttle", count=throttled, retryAfterMs=10, **BATCHES)
    etag = await world.move()
    assert etag == (await world.read("b-1"))["_etag"]
    assert await sequences(world) == [1, 2]


async def test_throttled_for_good_after_a_lost_answer_is_unknown_and_without_one_it_is_throttled(
    cosmos: Server, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transaction, "PATIENCE_SECONDS", 0.5)
    await cosmos.faults.add("throttle", count=None, retryAfterMs=10, **BATCHES)
    with pytest.raises(Throttled):
        await world.move()
    await cosmos.faults.clear()
    assert await sequences(world) == [1]
    await cosmos.faults.add("drop-after-commit", count=1, **BATCHES)
    await cosmos.faults.add("throttle", count=None, retryAfterMs=10, **BATCHES)
    with pytest.raises(OutcomeUnknown):
        await world.move()
    await cosmos.faults.clear()
    assert await sequences(world) == [1, 2]


async def test_a_lost_answer_on_a_replica_that_lags_stores_once(cosmos: Server, world: World) -> None:
    """The proof is read behind the token of the refusal: an old read would show no event, and a rival to blame."""
    item = await world.read("b-1")
    await cosmos.faults.add("lag", seconds=600, count=None, container=BOOKINGS)
    await cosmos.faults.add("drop-after-commit", count=1, **BATCHES)
    async with world.transaction() as tx:
        tx.replace(item | {"seats": 9}, if_match=item["_etag"])
        tx.event("BookingMoved", of=("booking", "b-1"))
    etag = tx.etag("b-1")
    await cosmos.faults.clear()
    assert etag == (await world.read("b-1"))["_etag"]
    assert await sequences(world) == [1, 2]


async def test_where_no_refusal_has_a_token_a_document_of_the_outbox_gives_one(
    cosmos: Server, world: World
) -> None:
    await cosmos.faults.add("drop-after-commit", count=1, **BATCHES)
    await cosmos.faults.add("no-session-token", count=None, **BATCHES)
    etag = await world.move()
    await cosmos.faults.clear()
    assert etag == (await world.read("b-1"))["_etag"]
    assert await sequences(world) == [1, 2]
    fence = await world.read("outbox-fence-token")
    assert {name: value for name, value in fence.items() if not name.startswith("_")} == {
        "id": "outbox-fence-token",
        "tenantId": "acme",
        "bookingId": "b-1",
        "type": "outbox-fence",
        "ttl": 60,
    }


async def test_a_real_rival_is_still_told_after_a_loss(cosmos: Server, world: World) -> None:
    item = await world.read("b-1")
    await world.move()
    await cosmos.faults.add("fail-before-commit", count=1, **BATCHES)
    with pytest.raises(PreconditionFailed):
        await world.run(
            lambda tx: tx.replace(item | {"seats": 9}, if_match=item["_etag"]),
            lambda tx: tx.event("BookingMoved", of=("booking", "b-1")),
        )
    await cosmos.faults.add("fail-before-commit", count=1, **BATCHES)
    with pytest.raises(AlreadyExists):
        await world.book()
    assert await sequences(world) == [1, 2]


async def test_without_an_event_the_sdks_own_repetition_is_no_proof(cosmos: Server, world: World) -> None:
    """The SDK repeats a batch whose connection broke: its 409 may be against the first attempt."""
    await cosmos.faults.add("drop-after-commit", count=1, **BATCHES)
    with pytest.raises(OutcomeUnknown):
        await world.run(lambda tx: tx.create(world.document("a")))
    assert "a" in await world.ids()


async def test_deletions_and_upserts_are_recognised_by_the_event(cosmos: Server, world: World) -> None:
    await world.run(lambda tx: tx.create(world.document("old")))
    await cosmos.faults.add("drop-after-commit", count=2, **BATCHES)
    tx = await world.run(
        lambda tx: tx.delete("old"),
        lambda tx: tx.upsert(world.document("new", n=1.5)),
        lambda tx: tx.event("Noted", of=("note", "n-1")),
    )
    assert tx.etag("old") is None
    assert tx.etag("new") == (await world.read("new"))["_etag"]
    assert "old" not in await world.ids()


async def test_what_is_known_to_be_stored_is_told_although_its_versions_cannot_be_read(
    cosmos: Server, world: World
) -> None:
    """The answer is lost, and throttled is the look at the documents, not the read of the event that proves it."""
    await cosmos.faults.add("drop-after-commit", count=1, **BATCHES)
    await cosmos.faults.add("throttle", count=None, retryAfterMs=10, container=BOOKINGS, operation="query")
    assert await world.move() is None
    await cosmos.faults.clear()
    assert await sequences(world) == [1, 2]


async def test_an_answer_is_lost_and_so_is_the_way_to_find_out(cosmos: Server, world: World) -> None:
    item = await world.read("b-1")
    await cosmos.faults.add("drop-after-commit", count=1, **BATCHES)
    await cosmos.faults.add("throttle", count=None, retryAfterMs=2000, container=BOOKINGS, operation="read")
    with pytest.raises(OutcomeUnknown):
        await world.run(
            lambda tx: tx.replace(item, if_match=item["_etag"]),
            lambda tx: tx.event("BookingMoved", of=("booking", "b-1")),
        )
    await cosmos.faults.clear()
    assert await sequences(world) == [1, 2]


@pytest.mark.parametrize("kind", ["fail-before-commit", "drop-after-commit"])
async def test_a_request_that_comes_again_while_its_transaction_is_repeated_is_done_once(
    cosmos: Server, world: World, kind: str
) -> None:
    """Its caller sends it again over another connection; both name the document of the request."""
    item = await world.read("b-1")

    async def request() -> str:
        try:
            async with world.transaction() as tx:
                tx.create(world.document("request-7"))
                tx.replace(item | {"seats": 5}, if_match=item["_etag"])
                tx.event("BookingMoved", of=("booking", "b-1"))
        except AlreadyExists as error:
            assert "request-7" in str(error)  # noqa: PT017 - which of two ends is open
            return "done before"
        return "done"

    await cosmos.faults.add(kind, count=2, **BATCHES)
    ends = await asyncio.gather(request(), request(), request())
    assert sorted(ends) == ["done", "done before", "done before"]
    assert await sequences(world) == [1, 2]
