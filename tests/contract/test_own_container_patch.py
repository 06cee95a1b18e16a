"""A patch in a team's transaction is stored once with its events, and changes nothing that the numbering goes by."""

from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest

from cosmos_outbox.cosmos.existing.transaction import Transaction
from cosmos_outbox.cosmos.store.container import Container
from cosmos_outbox.outbox.errors import AlreadyExists, OutcomeUnknown, PreconditionFailed, Unpublishable
from devstack.testing import Service as Server
from tests.support.emulators import Gap
from tests.support.own import BOOKINGS, HIERARCHICAL, NESTED, TENANT, UNREACHABLE, World, world_of

KINDS = {"one path": TENANT, "hierarchical": HIERARCHICAL, "nested": NESTED}
BATCHES = {"container": BOOKINGS, "operation": "batch"}


def add(value: int = 1) -> dict[str, Any]:
    return {"op": "incr", "path": "/count", "value": value}


def noted(tx: Transaction) -> None:
    tx.event("Noted", of=("note", "n-1"))


def patched(*operations: dict[str, Any], **conditions: Any) -> Any:
    def step(tx: Transaction) -> None:
        tx.patch("n-1", operations, **conditions)

    return step


@pytest.fixture(
    params=["hierarchical", *(pytest.param(each, marks=pytest.mark.long) for each in ("one path", "nested"))]
)
async def world(request: pytest.FixtureRequest, cosmos_server: Server) -> AsyncIterator[World]:
    async with world_of(KINDS[request.param], cosmos_server) as world:
        await world.run(lambda tx: tx.create(world.document("n-1", count=1, old=True)))
        yield world


@pytest.fixture
async def refusing(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[World]:
    """A world in which nothing may be sent."""

    async def sent(*_: object) -> list[str]:
        raise AssertionError("something was sent")

    monkeypatch.setattr(Container, "execute", sent)
    wired = NESTED.wire(UNREACHABLE)
    async with wired.resources:
        yield World(NESTED, wired, wired.outbox.feed, UNREACHABLE)


async def test_a_patch_is_stored_with_the_events_and_documents_beside_it(world: World) -> None:
    tx = await world.run(
        lambda tx: tx.create(world.booking()),
        patched(
            add(4),
            {"op": "remove", "path": "/old"},
            {"op": "set", "path": "/text", "value": {"a": [1]}},
            {"op": "move", "from": "/text", "path": "/moved"},
        ),
        lambda tx: tx.event("BookingMade", of=("booking", "b-1")),
        noted,
    )
    stored = await world.read("n-1")
    assert tx.etag("n-1") == stored["_etag"]
    assert tx.etag("b-1") == (await world.read("b-1"))["_etag"]
    fields = {name: stored[name] for name in ("count", "old", "text", "moved") if name in stored}
    assert fields == {"count": 5, "moved": {"a": [1]}}
    assert sorted(event["data"]["action"] for event in await world.events()) == ["BookingMade", "Noted"]


@pytest.mark.known_gap(Gap.BATCH_IGNORES_ETAG)
async def test_a_patch_whose_condition_or_version_does_not_hold_stores_nothing(world: World) -> None:
    before = (await world.read("n-1"))["_etag"]
    steps: list[Any] = [
        patched(add(), condition="from c where c.count > 1"),
        patched(add(), if_match='"another"'),
        lambda tx: tx.patch("gone", [add()]),
    ]
    for step in steps:
        with pytest.raises(PreconditionFailed, match="condition of its patch does not hold"):
            await world.run(step, noted)
    assert (await world.read("n-1"))["_etag"] == before
    assert await world.events() == []
    await world.run(patched(*[add()] * 10, condition="from c where c.count = 1", if_match=before), noted)
    assert (await world.read("n-1"))["count"] == 11


async def test_a_path_that_the_document_does_not_have_is_named_in_the_error(world: World) -> None:
    with pytest.raises(Unpublishable, match=r"document n-1 .*the paths of a patch are in the document"):
        await world.run(patched({"op": "remove", "path": "/none"}), noted)
    assert await world.events() == []


@pytest.mark.parametrize(
    ("operations", "message"),
    [
        ([], "1 to 10 operations, not 0"),
        ([add()] * 11, "1 to 10 operations, not 11"),
        ([{"op": "copy", "path": "/a", "from": "/b"}], "does not know: copy"),
        ([{"op": "set", "path": "/a"}], "does not know: set"),
        ([{"op": "set", "path": "a", "value": 1}], "is no path"),
        ([{"op": "set", "path": "/id", "value": "x"}], "/id cannot be patched"),
        ([{"op": "set", "path": "/_ts", "value": 1}], "/_ts cannot be patched"),
        ([{"op": "set", "path": "/owner", "value": {}}], "/owner cannot be patched"),
        ([{"op": "set", "path": "/owner/tenantId", "value": "x"}], "keeps its id and its partition"),
        ([{"op": "move", "from": "/owner/tenantId", "path": "/a"}], "/owner/tenantId cannot be patched"),
        ([add(), {"op": "incr", "path": "/meta/lastSequence", "value": 1}], r"replace\(\) it at its version"),
        ([{"op": "remove", "path": "/meta"}], "/meta cannot be patched: it has the number"),
        ([{"op": "move", "from": "/a", "path": "/meta/lastSequence"}], "it has the number"),
    ],
)
async def test_a_patch_that_can_never_be_right_sends_nothing(
    refusing: World, operations: Sequence[dict[str, Any]], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        await refusing.run(patched(*operations), noted)


async def test_a_condition_is_a_text(refusing: World) -> None:
    with pytest.raises(ValueError, match="from c where"):
        await refusing.run(patched(add(), condition=" "))


@pytest.mark.parametrize(
    ("operation", "message"),
    [
        ({"op": "set", "path": "/type", "value": "domainEvent"}, "take it for an event"),
        ({"op": "move", "from": "/a", "path": "/type"}, "take it for an event"),
        ({"op": "set", "path": "/n", "value": 2**53 + 1}, "beyond 2\\^53"),
    ],
)
async def test_a_patch_that_the_store_or_the_feed_could_not_take_is_refused(
    refusing: World, operation: dict[str, Any], message: str
) -> None:
    with pytest.raises(Unpublishable, match=message):
        await refusing.run(patched(operation), noted)


async def test_the_document_with_the_sequence_is_replaced_and_not_patched(refusing: World) -> None:
    with pytest.raises(ValueError, match=r"in this transaction with patch\(\): create\(\) it"):
        await refusing.run(
            lambda tx: tx.patch("b-1", [{"op": "set", "path": "/meta/seats", "value": 1}]),
            lambda tx: tx.event("BookingMoved", of=("booking", "b-1")),
        )


# Lost answers


@pytest.fixture
async def shaky(cosmos: Server) -> AsyncIterator[World]:
    async with world_of(HIERARCHICAL, cosmos) as world:
        await world.run(lambda tx: tx.create(world.document("n-1", count=1, old=True)))
        yield world


@pytest.mark.own_stack
@pytest.mark.parametrize("throttled", [0, 5])
@pytest.mark.parametrize("operation", [add(), {"op": "remove", "path": "/old"}])
async def test_a_patch_whose_answer_is_lost_is_stored_once(
    cosmos: Server, shaky: World, operation: dict[str, Any], throttled: int
) -> None:
    """Repeated, a removal is invalid and an increment is not: only the event shows that it was stored."""
    await cosmos.faults.add("drop-after-commit", count=1, **BATCHES)
    if throttled:
        await cosmos.faults.add("throttle", count=throttled, retryAfterMs=10, **BATCHES)
    tx = await shaky.run(patched(operation), lambda tx: tx.create(shaky.document("a")), noted)
    stored = await shaky.read("n-1")
    assert (stored["count"], stored.get("old")) == ((2, True) if operation["op"] == "incr" else (1, None))
    assert len(await shaky.events()) == 1
    assert tx.etag("n-1") is None, "what the patch has made of the document is not known"
    assert tx.etag("a") == (await shaky.read("a"))["_etag"]


@pytest.mark.own_stack
async def test_a_patch_without_an_event_is_not_sent_again(cosmos: Server, shaky: World) -> None:
    await cosmos.faults.add("drop-after-commit", count=3, **BATCHES)
    with pytest.raises(OutcomeUnknown):
        await shaky.run(patched({"op": "remove", "path": "/old"}))
    assert "old" not in await shaky.read("n-1")


@pytest.mark.own_stack
async def test_a_rival_is_still_known_by_its_document_after_a_loss(cosmos: Server, shaky: World) -> None:
    await cosmos.faults.add("fail-before-commit", count=1, **BATCHES)
    with pytest.raises(AlreadyExists, match="document n-1 is there already"):
        await shaky.run(lambda tx: tx.create(shaky.document("n-1")), noted)
    await cosmos.faults.add("fail-before-commit", count=1, **BATCHES)
    with pytest.raises(PreconditionFailed, match="document n-1"):
        await shaky.run(patched(add(), condition="from c where c.count > 9"), noted)
    assert await shaky.events() == []
