"""The records of what was set aside, in Cosmos DB: what its store alone can do wrong, beside the contract of any."""

from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from azure.core.async_paging import AsyncItemPaged
from azure.cosmos.aio import ContainerProxy, CosmosClient

from cosmos_outbox.cosmos.inbox.records import CosmosSetAside
from cosmos_outbox.cosmos.store.container import Container, StoreFailed, Write
from cosmos_outbox.cosmos.store.errors import Failure, Kind
from cosmos_outbox.inbox.errors import StoreUnavailable
from cosmos_outbox.inbox.set_aside import Record, RecordState, SetAside
from cosmos_outbox.kernel.aggregate_key import AggregateKey
from cosmos_outbox.lists import continuation
from cosmos_outbox.outbox.errors import UnknownContinuation
from devstack.testing import Service
from tests.support.azure import SET_ASIDE, contacts_database
from tests.support.inbox import KEY, NOON, delivery, event
from tests.support.losses import Failing
from tests.support.reactions import no_loss

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


def record(
    sequence: int, *, key: AggregateKey = KEY, minutes: int = 0, state: RecordState = RecordState.WAITING
) -> Record:
    received = event(sequence, key=key, event_id=f"{key}/{sequence}")
    at = NOON + timedelta(minutes=minutes)
    return Record.of(delivery(received, sequence), received, state, "a reason", at)


async def listed(records: SetAside) -> list[tuple[int | None, RecordState]]:
    return [(each.sequence, each.state) for each in (await records.page(50, None)).items]


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


async def test_a_closed_record_has_no_message_and_expires(stored: CosmosSetAside) -> None:
    await stored.add(record(1))
    before = await stored.container.read(record(1).id, "s")
    await stored.change(await stored.get(record(1).id), RecordState.DISCARDED, "x", attempts=0)
    after = await stored.container.read(record(1).id, "s")
    assert before is not None
    assert after is not None
    assert (before["ttl"], before["body"] is None) == (-1, False)
    assert (after["ttl"], after["body"], after["properties"]) == (CLOSED_TTL, None, None)


@pytest.mark.filterwarnings("ignore:Sending a large body:ResourceWarning")  # aiohttp's advice above 1 MiB
async def test_a_message_that_is_too_large_to_keep_still_has_its_record(stored: CosmosSetAside) -> None:
    message = replace(delivery(event(1)), body=b"x" * 1_800_000)
    for _ in range(2):
        await stored.add(Record.of(message, event(1), RecordState.WAITING, "a reason", NOON))
    read = await stored.get(message.record_id)
    assert (read.sequence, read.delivery) == (1, None)


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
            self, "SELECT 1 AS count FROM c WHERE c.state = @state", **named | {"max_item_count": 1}
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
    with pytest.raises(StoreUnavailable):
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
async def test_a_store_outage_never_makes_a_record_without_its_message(
    stored: CosmosSetAside, monkeypatch: pytest.MonkeyPatch, kind: Kind
) -> None:
    """The message would be completed then, and lost."""
    execute, refusals = stored.container.execute, [StoreFailed(Failure(kind, "not now"))]

    async def refusing(partition_key: str, writes: Sequence[Write]) -> list[str]:
        if refusals:
            raise refusals.pop()
        return await execute(partition_key, writes)

    monkeypatch.setattr(stored.container, "execute", refusing)
    with pytest.raises(StoreUnavailable):
        await stored.add(record(1))
    assert await listed(stored) == []
    await stored.add(record(1))
    assert (await stored.get(record(1).id)).delivery is not None
