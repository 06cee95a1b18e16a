"""A process that has read goes on from there: the next read of the partition is no older, and renews no token."""

import pytest

from cosmos_outbox.cosmos.store.container import Container, Write
from tests.contract.conftest import CosmosStore

ITEM = {"id": "there", "partitionKey": "ada", "type": "note"}


@pytest.mark.parametrize("item_id", ["there", "not there"])
async def test_a_read_is_no_older_than_the_one_before_even_if_that_found_nothing(
    store: CosmosStore, item_id: str
) -> None:
    [*_] = await store.container.execute("ada", [Write.create(ITEM)])
    another = Container(store.container._client, *store.names)
    assert another.seen("ada") is None
    await another.read(item_id, "ada")
    assert another.seen("ada") == store.container.seen("ada")


async def test_that_nothing_is_there_is_no_reason_to_doubt_what_was_seen(store: CosmosStore) -> None:
    """A renewed token takes a write that is refused: each costs."""
    await store.container.execute("ada", [Write.create(ITEM)])
    for _ in range(3):
        assert await store.container.read("not there", "ada") is None
    assert store.container.renewals == 0
