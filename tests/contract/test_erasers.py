"""What an eraser takes out of a partition and what it leaves, step by step, and what it makes of a store that fails."""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from typing import Any

import pytest
from azure.cosmos.aio import CosmosClient

from cosmos_outbox.cosmos.inbox.set_aside import CosmosSetAside
from cosmos_outbox.cosmos.store.container import Container, StoreFailed
from cosmos_outbox.cosmos.store.errors import Failure, Kind
from cosmos_outbox.cosmos.store.item import Item
from cosmos_outbox.cosmos.store.partition_key import Key
from cosmos_outbox.cosmos.store.writes import Write
from cosmos_outbox.cosmos.upkeep.erasure import (
    EventsEraser,
    Held,
    ParkedEraser,
    PartitionEraser,
    Remains,
    SetAsideEraser,
)
from cosmos_outbox.inbox.set_aside import Delivery, Record, RecordState
from cosmos_outbox.kernel.aggregate_key import AggregateKey
from cosmos_outbox.outbox.errors import ConcurrentChange, Throttled, Unavailable
from cosmos_outbox.settings.errors import Misconfigured
from devstack.testing import Service
from tests.support.azure import CONTACTS, PARKED, SET_ASIDE, contacts_database, cosmos_connection
from tests.support.contacts import NOON

PERSON, OTHER = AggregateKey("contact", "ada"), AggregateKey("contact", "bob")
NAME = "Quirina"


class Scripted(Container):
    """Others write meanwhile, and calls fail."""

    overtaken: list[Write]
    """Each is written by somebody else just before a batch that is no fence."""
    trouble: str | None = None
    """Which calls fail from now on: ``write``, ``fence``, ``page`` or ``first``."""
    kind = Kind.PASSING
    spared = 0
    """So many of these calls do not fail yet."""

    def _meet(self, call: str) -> None:
        if call != self.trouble:
            return
        if not self.spared:
            raise StoreFailed(Failure(self.kind, "injected"))
        self.spared -= 1

    async def execute(self, partition_key: Key, writes: Sequence[Write]) -> list[str]:
        if all(write.item["id"] == "outbox-fence" for write in writes):
            self._meet("fence")
            return await super().execute(partition_key, writes)
        if self.overtaken:
            await super().execute(partition_key, [self.overtaken.pop(0)])
        self._meet("write")
        return await super().execute(partition_key, writes)

    async def page(self, *arguments: Any, **named: Any) -> tuple[list[Item], str | None]:
        self._meet("page")
        return await super().page(*arguments, **named)

    async def first(self, *arguments: Any, **named: Any) -> list[Item]:
        self._meet("first")
        return await super().first(*arguments, **named)


@pytest.fixture
async def opened(cosmos_server: Service) -> AsyncIterator[Mapping[str, Scripted]]:
    async with (
        contacts_database(cosmos_server) as database,
        CosmosClient.from_connection_string(cosmos_connection(cosmos_server)) as client,
    ):
        found = {}
        for name in (CONTACTS, PARKED, SET_ASIDE):
            found[name] = Scripted(client, database.id, name)
            found[name].overtaken = []
        yield found


def stored(
    item_id: str, kind: str, *, key: str = "ada", of: AggregateKey | None = PERSON, **more: Any
) -> Item:
    named = {"aggregateType": of and of.type, "aggregateId": of and of.id}
    return {"id": item_id, "partitionKey": key, "type": kind, **named, **more}


async def put(container: Container, *items: Item) -> None:
    for item in items:
        await container.execute(item["partitionKey"], [Write.upsert(item)])


async def left(container: Container, partition_key: str = "ada") -> dict[str, Any]:
    """What each document holds, by its id."""
    items, _ = await container.page("SELECT * FROM c", {}, 100, None, partition_key=partition_key)
    return {item["id"]: item.get("data") for item in items}


def of_contact(data: Mapping[str, Any]) -> Item:
    return {"id": data["id"], "deleted": True}


def partition_of(container: Container) -> PartitionEraser:
    return PartitionEraser(container, Remains("contact", of_contact, kept_actions=("Deleted",)))


LIVING = stored("ada", "contact", data={"id": "ada", "name": NAME})
DELETED = stored("ada", "contact", data={"id": "ada", "name": NAME, "deleted": True})
EVENT = stored("e1", "domainEvent", data={"action": "Created", "name": NAME})
LAST = stored("e2", "domainEvent", data={"action": "Deleted"})
REQUEST = stored("r1", "idempotencyRecord", data={"answer": NAME})
FOREIGN = stored("n1", "note", of=None, data={"text": "a team's own"})


@pytest.mark.parametrize(
    ("items", "living", "has_events", "foreign"),
    [
        ([], False, False, []),
        ([LIVING], True, False, []),
        ([DELETED], False, False, []),
        ([DELETED, EVENT, REQUEST], False, True, []),
        ([LIVING, EVENT, FOREIGN], True, True, ["note"]),
        ([FOREIGN, FOREIGN | {"id": "n2", "type": "memo"}], False, False, ["memo", "note"]),
    ],
)
async def test_what_a_partition_holds_of_an_aggregate_is_told(
    opened: Mapping[str, Scripted],
    items: Sequence[Item],
    *,
    living: bool,
    has_events: bool,
    foreign: list[str],
) -> None:
    await put(opened[CONTACTS], *items)
    held = await partition_of(opened[CONTACTS]).look("ada")
    assert held == Held(living, has_events, foreign, held.session_token)
    assert held.session_token.startswith("0:")


async def test_of_a_deleted_aggregate_what_remains_stays_and_another_time_nothing_is_left_to_do(
    opened: Mapping[str, Scripted],
) -> None:
    eraser, container = partition_of(opened[CONTACTS]), opened[CONTACTS]
    broken = stored("e3", "domainEvent", data=None)
    of_other = stored("e4", "domainEvent", key="bob", of=OTHER, data={"action": "Created", "name": "Otto"})
    await put(container, DELETED, EVENT, LAST, broken, REQUEST, FOREIGN, of_other)
    assert await eraser.erase("ada") == 4
    assert await left(container) == {
        "ada": {"id": "ada", "deleted": True},
        "e2": {"action": "Deleted"},
        "r1": {"erased": True},
        "n1": {"text": "a team's own"},
    }
    assert await left(container, "bob") == {"e4": {"action": "Created", "name": "Otto"}}
    assert await eraser.erase("ada") == 0


async def test_of_an_aggregate_that_lives_nothing_is_erased(opened: Mapping[str, Scripted]) -> None:
    await put(opened[CONTACTS], EVENT, LIVING, REQUEST)
    with pytest.raises(ConcurrentChange, match="contact ada is not deleted: begin again"):
        await partition_of(opened[CONTACTS]).erase("ada")
    assert await left(opened[CONTACTS]) == {each["id"]: each["data"] for each in (EVENT, LIVING, REQUEST)}


async def test_only_the_events_that_were_seen_to_leave_are_removed(opened: Mapping[str, Scripted]) -> None:
    container, none = opened[CONTACTS], stored("e5", "domainEvent", data=None)
    eraser = EventsEraser(container, PERSON, "shared", kept_actions=("Erased",))
    mine = [each | {"partitionKey": "shared"} for each in (EVENT, LAST, none)]
    kept = stored("e6", "domainEvent", key="shared", data={"action": "Erased"})
    others = [
        stored("e7", "domainEvent", key="shared", of=OTHER, data={"action": "Created"}),
        stored("e8", "domainEvent", key="shared", of=AggregateKey("note", "ada"), data={"action": "Created"}),
        DELETED | {"partitionKey": "shared"},
    ]
    await put(container, *mine, kept, *others)
    ids, session_token = await eraser.look()
    assert ids == {"e1", "e2", "e5", "e6"}
    assert session_token == container.seen("shared")
    late = stored("e9", "domainEvent", key="shared", data={"action": "Created", "name": NAME})
    await put(container, late)
    assert await eraser.erase(ids) == 3
    assert set(await left(container, "shared")) == {"e6", "e7", "e8", "e9", "ada"}


def parked(item_id: str, kind: str = "parkedEvent", **more: Any) -> Item:
    document = {"id": f"of {item_id}", "partitionKey": "ada", "data": {"name": NAME}}
    return stored(item_id, kind, key="parked", **{"document": document, **more})


async def test_of_parked_events_the_discarded_ones_are_emptied_and_the_others_are_told(
    opened: Mapping[str, Scripted],
) -> None:
    container = opened[PARKED]
    elsewhere = {"id": "of x", "partitionKey": "bob", "data": {}}
    await put(
        container,
        parked("waits"),
        parked("alone", of=None),
        parked("notice", notice=True),
        parked("x", document=elsewhere),
        parked("given-up", "discardedEvent", discardReason=f"she is {NAME}"),
        parked("another", "discardedEvent", of=OTHER, discardReason="no"),
        parked("y", "discardedEvent", document=elsewhere, discardReason="no"),
    )
    all_of_key, of_person = ParkedEraser(container), ParkedEraser(container, aggregate=PERSON)
    assert await all_of_key.alone("ada") == ["alone"]
    assert sorted(await all_of_key.list_left("ada")) == ["alone", "waits"]
    assert await of_person.list_left("ada") == ["waits"]

    assert await of_person.erase("ada") == 1
    emptied, untouched = await container.read("given-up", "parked"), await container.read("another", "parked")
    assert emptied is not None
    assert untouched is not None
    assert (emptied["document"], emptied["discardReason"]) == (
        {"id": "of given-up", "partitionKey": "ada"}, "erased"
    )  # fmt: skip
    assert untouched["discardReason"] == "no"
    assert await all_of_key.erase("ada") == 1
    assert await all_of_key.erase("ada") == 0
    of_bob = await container.read("y", "parked")
    assert of_bob is not None
    assert of_bob["document"] == elsewhere


@pytest.mark.parametrize("times", [1, 9])
async def test_a_document_that_others_change_meanwhile_is_met_by_the_next_round(
    opened: Mapping[str, Scripted], times: int
) -> None:
    await put(opened[CONTACTS], DELETED, EVENT)
    opened[CONTACTS].overtaken = [Write.upsert(EVENT | {"changed": number}) for number in range(times)]
    assert await partition_of(opened[CONTACTS]).erase("ada") == 2
    assert await left(opened[CONTACTS]) == {"ada": {"id": "ada", "deleted": True}}


async def test_documents_that_others_change_each_time_end_the_erasing(
    opened: Mapping[str, Scripted],
) -> None:
    await put(opened[CONTACTS], DELETED, EVENT)
    opened[CONTACTS].overtaken = [Write.upsert(EVENT | {"changed": number}) for number in range(99)]
    with pytest.raises(ConcurrentChange, match="run the same command again"):
        await partition_of(opened[CONTACTS]).erase("ada")
    assert len(opened[CONTACTS].overtaken) == 89, "ten rounds"


async def test_an_erasing_that_gets_on_is_not_ended_by_what_others_change(
    opened: Mapping[str, Scripted],
) -> None:
    """Of two pages one is changed in each of nine rounds, the other gets empty in the first: that is progress."""
    events = [EVENT | {"id": f"e{number:02}"} for number in range(60)]
    await put(opened[CONTACTS], DELETED, *events)
    opened[CONTACTS].overtaken = [Write.upsert(events[0] | {"changed": number}) for number in range(10)]
    assert await partition_of(opened[CONTACTS]).erase("ada") == 61


CALLS: Mapping[str, Callable[[Mapping[str, Scripted]], Awaitable[object]]] = {
    "look": lambda opened: partition_of(opened[CONTACTS]).look("ada"),
    "erase": lambda opened: partition_of(opened[CONTACTS]).erase("ada"),
    "records": lambda opened: SetAsideEraser(opened[SET_ASIDE], "s", 600).erase("ada"),
}


@pytest.mark.parametrize(
    ("call", "trouble", "spared"),
    [
        ("look", "fence", 0),
        ("look", "page", 0),
        ("look", "fence", 1),
        ("erase", "write", 0),
        ("records", "write", 0),
        ("records", "page", 0),
    ],
)
@pytest.mark.parametrize(
    ("kind", "error"),
    [(Kind.PASSING, Unavailable), (Kind.THROTTLED, Throttled), (Kind.INVALID, Misconfigured)],
)
async def test_a_store_that_fails_is_told_as_an_error_of_ours(
    opened: Mapping[str, Scripted], call: str, trouble: str, spared: int, kind: Kind, error: type[Exception]
) -> None:
    await put(opened[CONTACTS], DELETED, EVENT)
    for each in opened.values():
        each.trouble, each.spared, each.kind = trouble, spared, kind
    with pytest.raises(error):
        await CALLS[call](opened)


@pytest.mark.parametrize(("subject", "count"), [("ada", 1), ("bob", 0)])
async def test_a_message_that_nobody_could_read_goes_with_the_person_whom_its_properties_name(
    opened: Mapping[str, Scripted], subject: str, count: int
) -> None:
    records = CosmosSetAside(opened[SET_ASIDE], "s", "t", closed_ttl_seconds=600)
    message = Delivery("s", "m", 1, b"no JSON", {"subject": subject})
    await records.add(Record.of(message, None, RecordState.REFUSED, "no JSON", NOON))
    assert await SetAsideEraser(opened[SET_ASIDE], "s", 600).erase("ada") == count
    assert (await records.get(message.record_id)).delivery == (None if count else message)
