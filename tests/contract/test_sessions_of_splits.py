"""Reads never go back, and miss no write of ours, while a partition is split, in whatever order the answers come.

Every replica lags, so a read without the session token of a write does not see the write.
"""

import itertools
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import pytest
from azure.cosmos.aio import ContainerProxy
from azure.cosmos.exceptions import CosmosHttpResponseError

from cosmos_outbox.cosmos.store.client import cosmos_client
from cosmos_outbox.cosmos.store.container import Container, StoreFailed, Write
from cosmos_outbox.cosmos.store.errors import Kind
from cosmos_outbox.cosmos.store.partition_key import Key
from cosmos_outbox.settings.connections import Connection
from devstack.testing import Service
from tests.support.azure import CONTACTS, contacts_database

pytestmark = pytest.mark.own_stack


class LateOnce(Container):
    """The answer to the first write comes after the partition is split and the second write is answered."""

    cosmos: Service
    database: str
    writes = 0

    async def _execute(self, partition_key: Key, writes: Sequence[Write]) -> tuple[list[str], str | None]:
        self.writes += 1
        if self.writes > 1:
            return await super()._execute(partition_key, writes)
        etags, of_the_parent = await super()._execute(partition_key, writes)
        await self.cosmos.faults.split(self.database, CONTACTS, "0")
        await self.execute(partition_key, [note("second", partition_key)])
        self._sessions.merge(self.paths.text(partition_key), of_the_parent)
        return etags, of_the_parent


def note(item_id: str, partition_key: Key) -> Write:
    return Write.create({"id": item_id, "partitionKey": partition_key, "type": "note"})


@pytest.fixture
async def container(cosmos: Service) -> AsyncIterator[LateOnce]:
    async with contacts_database(cosmos) as database:
        client = cosmos_client(Connection(cosmos.connection_string), None)
        container = LateOnce(client, database.id, CONTACTS)
        container.cosmos, container.database = cosmos, database.id
        yield container
        await client.close()


async def test_a_late_answer_of_the_parent_hides_no_write_of_the_child(
    container: LateOnce, cosmos: Service
) -> None:
    await container.execute("key", [note("first", "key")])
    await cosmos.faults.add("lag", container=CONTACTS, seconds=600, count=None)
    assert await container.read("first", "key") is not None
    assert await container.read("second", "key") is not None


@asynccontextmanager
async def another(container: LateOnce) -> AsyncIterator[Container]:
    """Of another process; ours has a token of a write of its own, and no replica lags yet."""
    await container.cosmos.faults.clear()
    container.writes = 1
    await container.execute("key", [note("first", "key")])
    async with cosmos_client(Connection(container.cosmos.connection_string), None) as client:
        yield Container(client, container.database, CONTACTS)


async def test_what_another_wrote_and_a_read_has_shown_stays_shown(
    container: LateOnce, cosmos: Service
) -> None:
    """A token of ours takes the place of the SDK's own, which goes on with every read."""
    async with another(container) as elsewhere:
        await elsewhere.execute("key", [note("second", "key")])
    assert await container.read("second", "key") is not None
    await cosmos.faults.add("lag", container=CONTACTS, seconds=600, count=None)
    assert await container.read("second", "key") is not None


@pytest.mark.parametrize("is_there", [False, True])
async def test_a_created_or_already_existing_document_is_seen_by_the_next_read(
    container: LateOnce, cosmos: Service, *, is_there: bool
) -> None:
    """A token of an earlier write of ours takes the place of the SDK's own."""
    created = {"id": "second", "partitionKey": "key", "type": "note"}
    async with another(container) as elsewhere:
        if is_there:
            await elsewhere.execute("key", [Write.create(created)])
    await cosmos.faults.add("lag", container=CONTACTS, seconds=600, count=None)
    if is_there:
        with pytest.raises(StoreFailed, match="409"):
            await container.execute("key", [Write.create(created)])
    else:
        await container.execute("key", [Write.create(created)])
    assert await container.read("second", "key") is not None


@pytest.mark.parametrize("count", [1, None], ids=["one answer", "no answer"])
@pytest.mark.parametrize(
    ("write", "status"),
    [
        (Write.create({"id": "second", "partitionKey": "key", "type": "note"}), 409),
        (Write.replace({"id": "second", "partitionKey": "key", "type": "memo"}, '"another"'), 412),
    ],
)
async def test_a_read_sees_what_a_refusal_without_a_session_token_showed(
    container: LateOnce, cosmos: Service, write: Write, status: int, count: int | None
) -> None:
    async with another(container) as elsewhere:
        await elsewhere.execute("key", [note("second", "key")])
    await cosmos.faults.add("lag", container=CONTACTS, seconds=600, count=None)
    await cosmos.faults.add("no-session-token", container=CONTACTS, operation="batch", count=count)
    with pytest.raises(StoreFailed, match=f"{status}"):
        await container.execute("key", [write])
    assert await container.read("second", "key") is not None
    assert container.renewals == 1


async def test_a_refusal_without_a_token_fails_as_its_consistency_write_failed(
    container: LateOnce, cosmos: Service
) -> None:
    async with another(container) as elsewhere:
        await elsewhere.execute("key", [note("second", "key")])
    await cosmos.faults.add("no-session-token", container=CONTACTS, operation="batch")
    await cosmos.faults.add("refuse", container=CONTACTS, operation="batch")
    with pytest.raises(StoreFailed) as failed:
        await container.execute("key", [note("second", "key")])
    assert failed.value.failure.kind is Kind.INVALID, "the failure of the renewal, not the conflict before it"


@pytest.mark.parametrize(
    ("fault", "kind", "renewals"),
    [("session-not-available", Kind.BEHIND, 1), ("refuse", Kind.INVALID, 0)],
)
async def test_only_a_read_no_replica_could_answer_makes_the_next_consistent(
    container: LateOnce, cosmos: Service, fault: str, kind: Kind, renewals: int
) -> None:
    async with another(container):
        await cosmos.faults.add(fault, container=CONTACTS, operation="read", count=None)
        with pytest.raises(StoreFailed) as failed:
            await container.read("first", "key")
        assert failed.value.failure.kind is kind
        await cosmos.faults.clear()
        assert await container.read("first", "key") is not None
        assert await container.read("first", "key") is not None
        assert container.renewals == renewals


@pytest.mark.parametrize("has_token", [True, False])
async def test_a_consistent_read_misses_no_write_of_another_process(
    container: LateOnce, cosmos: Service, *, has_token: bool
) -> None:
    async with another(container) as elsewhere:
        await elsewhere.execute("key", [note("second", "key")])
    await cosmos.faults.add("lag", container=CONTACTS, seconds=600, count=None)
    if not has_token:
        await cosmos.faults.add("no-session-token", container=CONTACTS, operation="batch", count=None)
    assert await container.read("second", "key") is None, "the replica lags"
    assert await container.read("second", "key", consistent=True) is not None
    assert await container.read("second", "key") is not None
    assert await container.read("third", "key", consistent=True) is None


async def test_what_a_read_has_found_gone_stays_gone(container: LateOnce, cosmos: Service) -> None:
    async with another(container) as elsewhere:
        await elsewhere.execute("key", [Write.delete("first")])
    assert await container.read("first", "key") is None
    await cosmos.faults.add("lag", container=CONTACTS, seconds=600, count=None)
    assert await container.read("first", "key") is None


async def test_a_read_is_not_older_after_another_key_met_a_lagging_replica(
    container: LateOnce, cosmos: Service
) -> None:
    """The SDK then forgets all that it knows of the container, and this process has not written this key."""
    async with another(container) as elsewhere:
        assert await elsewhere.read("first", "key") is not None
        await elsewhere.execute("another key", [note("first", "another key")])
        await cosmos.faults.add("session-not-available", count=2, operation="read")
        with pytest.raises(StoreFailed):
            await elsewhere.read("first", "another key")
        assert await cosmos.faults.pending() == []
        await cosmos.faults.add("lag", container=CONTACTS, seconds=600, count=None)
        assert await elsewhere.read("first", "key") is not None


@asynccontextmanager
async def read_once(container: LateOnce, cosmos: Service) -> AsyncIterator[ContainerProxy]:
    """A client of ours that has written and read a note; no replica lags."""
    await cosmos.faults.clear()
    async with cosmos_client(Connection(cosmos.connection_string), None) as client:
        notes = client.get_database_client(container.database).get_container_client(CONTACTS)
        await notes.create_item({"id": "first", "partitionKey": "key", "type": "note"})
        await notes.read_item("first", "key")
        yield notes


async def test_a_session_that_no_replica_can_answer_is_forgotten(
    container: LateOnce, cosmos: Service
) -> None:
    """As of a container that was restored: with that session every read of this process would fail."""
    async with read_once(container, cosmos) as notes:
        await cosmos.faults.add(
            "session-not-available", count=None, operation="read", container=CONTACTS
        )  # it meets who asks with a session
        with pytest.raises(CosmosHttpResponseError) as behind:
            await notes.read_item("first", "key")
        assert behind.value.sub_status == 1002
        assert (await notes.read_item("first", "key"))["id"] == "first"
        await cosmos.faults.clear()


async def test_a_read_on_a_lagging_replica_fails_as_such_without_an_sdk_session(
    container: LateOnce, cosmos: Service
) -> None:
    """The SDK has forgotten it before, and a refused read has given it no other."""
    async with read_once(container, cosmos) as notes:
        for _ in range(2):
            with pytest.raises(CosmosHttpResponseError) as behind:
                await notes.read_item("first", "key", session_token="0:-1#999")
            assert (behind.value.status_code, behind.value.sub_status) == (404, 1002)
            await cosmos.faults.add("refuse", operation="read", container=CONTACTS)
            with pytest.raises(CosmosHttpResponseError, match="refused"):
                await notes.read_item("first", "key")


_LIST = "SELECT * FROM c WHERE c.type = 'note' ORDER BY c.id"


async def test_a_list_has_each_document_once_though_the_sdk_repeats_some(
    container: LateOnce, cosmos: Service
) -> None:
    container.writes = 1
    ids = [f"{number:02}" for number in range(20)]
    for key in ids:
        await container.execute(key, [note(key, key)])
    lower, _ = await cosmos.faults.split(container.database, CONTACTS, "0")
    assert [item["id"] for item in await container.first(_LIST, {}, 30)] == ids
    await cosmos.faults.split(container.database, CONTACTS, lower)
    assert [item["id"] for item in await container.first(_LIST, {}, 30)] == ids


@pytest.mark.parametrize(("times", "asked"), [(2, 3), (99, 3)])
async def test_a_list_with_a_duplicate_is_queried_again_and_not_for_ever(
    container: LateOnce, monkeypatch: pytest.MonkeyPatch, times: int, asked: int
) -> None:
    queries = itertools.count(1)

    async def one_page(*_: object, **__: object) -> AsyncIterator[dict[str, str]]:
        yield {"id": "a", "_rid": "1"}
        if next(queries) <= times:
            yield {"id": "a", "_rid": "1"}

    monkeypatch.setattr(ContainerProxy, "query_items", one_page)
    if times < asked:
        assert [item["id"] for item in await container.first(_LIST, {}, 30)] == ["a"]
    else:
        with pytest.raises(StoreFailed) as failed:
            await container.first(_LIST, {}, 30)
        assert failed.value.failure.kind is Kind.PASSING
    assert next(queries) == asked + 1
