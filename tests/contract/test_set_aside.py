"""The records of what was set aside, in memory, in Cosmos DB and in SQLite: one suite over all."""

from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from azure.core.async_paging import AsyncItemPaged
from azure.cosmos.aio import ContainerProxy, CosmosClient

from cosmos_outbox.cosmos.inbox.set_aside import CosmosSetAside
from cosmos_outbox.cosmos.store.container import Container, StoreFailed
from cosmos_outbox.cosmos.store.errors import Failure, Kind
from cosmos_outbox.cosmos.store.writes import Write
from cosmos_outbox.inbox.errors import NotSetAside, RecordChanged, StoreAway
from cosmos_outbox.inbox.set_aside import Record, RecordState, SetAside
from cosmos_outbox.kernel.aggregate_key import AggregateKey
from cosmos_outbox.lists import continuation
from cosmos_outbox.outbox.errors import UnknownContinuation
from cosmos_outbox.sqlite.database import Database
from cosmos_outbox.sqlite.set_aside import SqliteSetAside
from devstack.testing import Service
from tests.support.azure import SET_ASIDE, contacts_database
from tests.support.inbox import KEY, NOON, FakeSetAside, delivery, event
from tests.support.losses import Failing
from tests.support.reactions import no_loss

pytestmark = pytest.mark.needs_a_socket("the other form of each test is a file, written by a thread")

CLOSED_TTL = 600


@pytest.fixture
async def stored(cosmos_server: Service) -> AsyncIterator[CosmosSetAside]:
    async with (
        contacts_database(cosmos_server) as database,
        CosmosClient.from_connection_string(cosmos_server.connection_string) as client,
    ):
        yield CosmosSetAside(
            Container(client, database.id, SET_ASIDE), "s", "t", closed_ttl_seconds=CLOSED_TTL
        )


@pytest.fixture(params=["fake", "devstack", "sqlite"])
async def records(
    request: pytest.FixtureRequest, stored: CosmosSetAside, tmp_path: Path
) -> AsyncIterator[SetAside]:
    database = Database(tmp_path / "store.db")
    kinds: dict[str, SetAside] = {
        "fake": FakeSetAside(),
        "devstack": stored,
        "sqlite": SqliteSetAside(database, "s", CLOSED_TTL),
    }
    yield kinds[request.param]
    await database.close()


def record(
    sequence: int, *, key: AggregateKey = KEY, minutes: int = 0, state: RecordState = RecordState.WAITING
) -> Record:
    received = event(sequence, key=key, event_id=f"{key}/{sequence}")
    at = NOON + timedelta(minutes=minutes)
    return Record.of(delivery(received, sequence), received, state, "a reason", at)


async def listed(records: SetAside) -> list[tuple[int | None, RecordState]]:
    return [(each.sequence, each.state) for each in (await records.page(50, None)).items]


async def test_a_record_is_created_once_whatever_became_of_it(records: SetAside) -> None:
    await records.add(record(1))
    await records.change(await records.get(record(1).id), RecordState.APPLIED, "done", attempts=1)
    await records.add(record(1))
    assert await listed(records) == []
    closed = await records.get(record(1).id)
    assert (closed.state, closed.reason, closed.delivery) == (RecordState.APPLIED, "done", None)
    assert not await records.waits(KEY)
    with pytest.raises(NotSetAside):
        await records.get(record(2).id)


async def test_a_record_keeps_its_message_as_it_came(records: SetAside) -> None:
    message = replace(
        delivery(event(1)), body=b"\xff\x00{", properties={"sequence": 1, "traceparent": "00-1"}
    )
    await records.add(Record.of(message, None, RecordState.REFUSED, "no JSON", NOON))
    read = await records.get(message.record_id)
    assert read.delivery == message
    assert (read.state, read.reason, read.aggregate, read.set_aside_at) == (
        RecordState.REFUSED,
        "no JSON",
        None,
        NOON,
    )


async def test_open_records_are_listed_oldest_first_and_without_their_messages(records: SetAside) -> None:
    for sequence in (1, 2, 3):
        await records.add(
            record(
                sequence,
                minutes=sequence,
                state=RecordState.REFUSED if sequence == 2 else RecordState.WAITING,
            )
        )
    found, token = [], None
    while True:
        page = await records.page(2, token)
        found += [(each.sequence, each.state, each.delivery) for each in page.items]
        token = page.continuation_token
        if token is None:
            break
    assert found == [
        (1, RecordState.WAITING, None),
        (2, RecordState.REFUSED, None),
        (3, RecordState.WAITING, None),
    ]


async def test_the_records_of_one_aggregate_are_found(records: SetAside) -> None:
    other, namesake = AggregateKey("thing", "8"), AggregateKey("another", KEY.id)
    for key in (KEY, other, namesake):
        await records.add(record(1, key=key))
    assert [each.aggregate async for each in records.waiting(KEY)] == [KEY]
    assert {each.aggregate async for each in records.waiting()} == {KEY, other, namesake}
    assert await records.waits(other)
    assert not await records.waits(AggregateKey("thing", "9"))


async def test_whether_one_waits_costs_the_same_however_many_wait(
    stored: CosmosSetAside, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is asked at each new message of an aggregate that is sick."""
    for sequence in range(1, 6):
        await stored.add(record(sequence))
    await stored.add(record(1, key=AggregateKey("another", "9")))
    query_items, read = ContainerProxy.query_items, list[dict[str, Any]]()

    def noted(self: ContainerProxy, query: str, **named: Any) -> AsyncItemPaged[dict[str, Any]]:
        found = query_items(self, query, **named)
        by_page = found.by_page

        async def pages(*given: Any) -> Any:
            async for page in by_page(*given):
                items = [each async for each in page]
                read.extend(items)
                yield aiter_of(items)

        monkeypatch.setattr(found, "by_page", pages)
        return found

    monkeypatch.setattr(ContainerProxy, "query_items", noted)
    assert await stored.waits(KEY)
    assert len(read) == 1
    assert not await stored.waits(AggregateKey("thing", "9")), "a namesake waits"
    assert len(read) == 1


async def aiter_of(items: Sequence[dict[str, Any]]) -> AsyncIterator[dict[str, Any]]:
    for each in items:
        yield each


async def test_a_record_is_changed_only_at_the_version_that_was_read(records: SetAside) -> None:
    await records.add(record(1))
    first, second = await records.get(record(1).id), await records.get(record(1).id)
    await records.change(first, RecordState.WAITING, "another reason", attempts=1)
    with pytest.raises(RecordChanged):
        await records.change(second, RecordState.DISCARDED, "by somebody else", attempts=0)
    read = await records.get(record(1).id)
    assert (read.state, read.reason, read.attempts, read.delivery) == (
        RecordState.WAITING, "another reason", 1, record(1).delivery,
    )  # fmt: skip


async def test_what_was_set_aside_before_a_time_is_found(records: SetAside) -> None:
    for minutes in (0, 10):
        await records.add(record(minutes + 1, minutes=minutes))
    older = [each async for each in records.older(NOON + timedelta(minutes=5))]
    assert [each.sequence for each in older] == [1]
    await records.change(older[0], RecordState.OVERDUE, "too late", attempts=0)
    assert await listed(records) == [(11, RecordState.WAITING)]


async def test_a_closed_record_has_no_message_and_expires(stored: CosmosSetAside) -> None:
    await stored.add(record(1))
    before = await stored.container.read(record(1).id, "s")
    await stored.change(await stored.get(record(1).id), RecordState.DISCARDED, "x", attempts=0)
    after = await stored.container.read(record(1).id, "s")
    assert before is not None
    assert after is not None
    assert (before["ttl"], before["body"] is None) == (-1, False)
    assert (after["ttl"], after["body"], after["properties"]) == (CLOSED_TTL, None, None)


async def test_a_closed_record_of_sqlite_is_gone_after_its_time(tmp_path: Path) -> None:
    now = NOON
    database = Database(tmp_path / "store.db")
    records = SqliteSetAside(database, "s", CLOSED_TTL, lambda: now)
    await records.add(record(1))
    await records.change(await records.get(record(1).id), RecordState.DISCARDED, "x", attempts=0)
    assert (await records.get(record(1).id)).delivery is None
    now += timedelta(seconds=CLOSED_TTL + 1)
    with pytest.raises(NotSetAside):
        await records.get(record(1).id)
    await database.close()


@pytest.mark.filterwarnings("ignore:Sending a large body:ResourceWarning")  # aiohttp's advice above 1 MiB
async def test_a_message_that_is_too_large_to_keep_still_has_its_record(stored: CosmosSetAside) -> None:
    message = replace(delivery(event(1)), body=b"x" * 1_800_000)
    for _ in range(2):
        await stored.add(Record.of(message, event(1), RecordState.WAITING, "a reason", NOON))
    read = await stored.get(message.record_id)
    assert (read.sequence, read.delivery) == (1, None)


async def test_the_last_that_was_tried_comes_last(stored: CosmosSetAside) -> None:
    for sequence in (1, 2):
        await stored.add(record(sequence, key=AggregateKey("thing", str(sequence))))
    await stored.change(
        await stored.get(record(1, key=AggregateKey("thing", "1")).id), RecordState.WAITING, "", attempts=1
    )
    assert [each.sequence async for each in stored.waiting()] == [2, 1]


async def test_records_of_very_many_are_counted_to_the_end(
    stored: CosmosSetAside, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The service ends a page early when a query takes long, also one that counts: each page has a part of the sum."""
    for sequence in (1, 2):
        await stored.add(record(sequence))
    await stored.add(record(3, state=RecordState.REFUSED))
    assert await stored.count(RecordState.WAITING) == 2
    query_items = ContainerProxy.query_items

    def in_parts(self: ContainerProxy, query: str, **named: Any) -> AsyncItemPaged[dict[str, Any]]:
        assert "COUNT" in query
        return query_items(
            self, "SELECT VALUE 1 FROM c WHERE c.state = @state", **named | {"max_item_count": 1}
        )

    monkeypatch.setattr(ContainerProxy, "query_items", in_parts)
    assert await stored.count(RecordState.WAITING) == 2


async def test_a_record_is_found_by_its_id_whatever_a_replica_shows(cosmos_server: Service) -> None:
    async with (
        contacts_database(cosmos_server) as database,
        CosmosClient.from_connection_string(cosmos_server.connection_string) as client,
    ):
        lagging = Failing(client, database.id, SET_ASIDE)
        lagging.fate = no_loss()
        here, there = (
            CosmosSetAside(each, "s", "t", closed_ttl_seconds=CLOSED_TTL)
            for each in (Container(client, database.id, SET_ASIDE), lagging)
        )
        await here.add(record(1))
        read = await there.get(record(1).id)
    assert (read.sequence, read.delivery) == (1, record(1).delivery)


async def test_a_token_of_another_list_is_refused(stored: CosmosSetAside) -> None:
    with pytest.raises(UnknownContinuation):
        await stored.page(10, "bm90aGluZw")
    with pytest.raises(UnknownContinuation):  # of this list, and the store does not know it any more
        await stored.page(10, continuation.seal("t", "no token of the store"))


@pytest.mark.parametrize(
    ("token", "kind"), [(None, Kind.INVALID), (continuation.seal("t", "a token"), Kind.PASSING)]
)
async def test_what_the_store_refuses_otherwise_is_no_fault_of_a_token(
    stored: CosmosSetAside, monkeypatch: pytest.MonkeyPatch, token: str | None, kind: Kind
) -> None:
    async def refusing(*_: Any, **__: Any) -> None:
        raise StoreFailed(Failure(kind, "refused"))

    monkeypatch.setattr(stored.container, "page", refusing)
    with pytest.raises(StoreAway):
        await stored.page(10, token)


@pytest.mark.parametrize("kind", [Kind.TOO_LARGE, Kind.INVALID])
async def test_a_message_that_the_store_does_not_take_leaves_its_record(
    stored: CosmosSetAside, monkeypatch: pytest.MonkeyPatch, kind: Kind
) -> None:
    execute, refusals = stored.container.execute, [StoreFailed(Failure(kind, "refused"))]

    async def refusing(partition_key: str, writes: Sequence[Write]) -> list[str]:
        if refusals:
            raise refusals.pop()
        return await execute(partition_key, writes)

    monkeypatch.setattr(stored.container, "execute", refusing)
    await stored.add(record(1))
    assert await listed(stored) == [(1, RecordState.WAITING)]


@pytest.mark.parametrize("kind", [Kind.THROTTLED, Kind.PASSING, Kind.DENIED])
async def test_a_record_is_never_made_without_its_message_because_the_store_was_away(
    stored: CosmosSetAside, monkeypatch: pytest.MonkeyPatch, kind: Kind
) -> None:
    """The message would be completed then, and lost."""
    execute, refusals = stored.container.execute, [StoreFailed(Failure(kind, "not now"))]

    async def refusing(partition_key: str, writes: Sequence[Write]) -> list[str]:
        if refusals:
            raise refusals.pop()
        return await execute(partition_key, writes)

    monkeypatch.setattr(stored.container, "execute", refusing)
    with pytest.raises(StoreAway):
        await stored.add(record(1))
    assert await listed(stored) == []
    await stored.add(record(1))
    assert (await stored.get(record(1).id)).delivery is not None
