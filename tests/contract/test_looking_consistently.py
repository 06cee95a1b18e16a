"""An event missing from the list of a replica that lags is looked for consistently before it is reported as gone."""

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from cosmos_outbox.cosmos.inbox.documents import SourceDocuments
from cosmos_outbox.cosmos.inbox.source import OwnSource
from cosmos_outbox.cosmos.store.container import Container, Write
from cosmos_outbox.cosmos.store.partition_key import Item, Key
from cosmos_outbox.inbox.errors import SourceBehind
from cosmos_outbox.kernel.aggregate_key import AggregateKey
from tests.contract.conftest import CosmosStore

THING = AggregateKey("thing", "t-1")


class Lagging(Container):
    """Its replica lags: without a session token a list shows nothing."""

    async def first(
        self, query: str, parameters: Mapping[str, Any], most: int, *, partition_key: Key | None = None
    ) -> list[Item]:
        return []


@pytest.fixture
def source(store: CosmosStore) -> OwnSource[Any]:
    client, (database, name) = store.container._client, store.names
    feed = client.get_database_client(database).get_container_client(name)
    return OwnSource(
        Lagging(client, database, name), feed, SourceDocuments.of_library("thing"), lambda item: item["data"]
    )


async def stored(store: CosmosStore, keys: Sequence[str]) -> None:
    for key in keys:
        thing = {"id": THING.id, "partitionKey": key, "type": "thing", "data": {"lastSequence": 3, "n": 1}}
        await store.container.execute(key, [Write.create(thing)])


async def test_what_no_list_shows_yet_is_found(store: CosmosStore, source: OwnSource[Any]) -> None:
    await stored(store, ["a"])
    found = await source.newest(THING)
    assert found is not None
    assert (found.sequence, found.state) == (3, {"lastSequence": 3, "n": 1})


async def test_two_of_one_id_that_no_list_shows_yet_are_reported(
    store: CosmosStore, source: OwnSource[Any]
) -> None:
    await stored(store, ["a", "b"])
    with pytest.raises(SourceBehind, match="two documents have the id of thing t-1"):
        await source.newest(THING)


async def test_what_is_in_no_partition_is_gone(source: OwnSource[Any]) -> None:
    assert await source.newest(THING) is None
