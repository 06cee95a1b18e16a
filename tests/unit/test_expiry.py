"""The brake changes the default TTL of a container and nothing else: the SDK replaces all that it is given."""

from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest
from azure.cosmos.exceptions import CosmosHttpResponseError

from cosmos_outbox.cosmos.upkeep.expiry import Expiry
from cosmos_outbox.outbox.errors import Throttled, Unavailable
from cosmos_outbox.settings.errors import NotAllowed

KEPT = {
    "indexing_policy": {"indexingMode": "consistent"},
    "conflict_resolution_policy": {"mode": "LastWriterWins"},
    "analytical_storage_ttl": -1,
    "computed_properties": [{"name": "lower", "query": "SELECT VALUE LOWER(c.id) FROM c"}],
    "full_text_policy": {"defaultLanguage": "en-US"},
    "vector_embedding_policy": {"vectorEmbeddings": []},
}


def expiry_of(read: Any, replace_container: Any) -> Expiry:
    """Of a container that is read and replaced like this."""
    database, container = SimpleNamespace(replace_container=replace_container), SimpleNamespace(read=read)
    return Expiry(cast(Any, database), cast(Any, container), cast(Any, None))


async def test_everything_but_the_default_ttl_stays() -> None:
    async def read() -> dict[str, Any]:
        return {
            "partitionKey": {"paths": ["/partitionKey"], "kind": "Hash", "version": 2},
            "defaultTtl": -1,
            "indexingPolicy": KEPT["indexing_policy"],
            "conflictResolutionPolicy": KEPT["conflict_resolution_policy"],
            "analyticalStorageTtl": KEPT["analytical_storage_ttl"],
            "computedProperties": KEPT["computed_properties"],
            "fullTextPolicy": KEPT["full_text_policy"],
            "vectorEmbeddingPolicy": KEPT["vector_embedding_policy"],
        }

    replaced: list[dict[str, Any]] = []

    async def replace_container(container: object, partition_key: dict[str, Any], **given: Any) -> None:
        assert partition_key == {"paths": ["/partitionKey"], "kind": "Hash", "version": 2}
        replaced.append(given)

    expiry = expiry_of(read, replace_container)
    await expiry.stop()
    await expiry.resume()
    assert replaced == [KEPT | {"default_ttl": None}, KEPT | {"default_ttl": -1}]


@pytest.mark.parametrize(
    ("told", "given"),
    [
        ({"paths": ["/a", "/b/c"], "kind": "MultiHash", "version": 2}, {}),
        ({"paths": ["/a"], "kind": "Hash", "version": 1}, {}),
        ({"paths": ["/a"], "kind": "Hash"}, {"version": 1}),  # of an old container the service tells none
    ],
)
async def test_the_partition_key_stays_as_it_is(told: dict[str, Any], given: dict[str, Any]) -> None:
    """The service refuses to change one: a TTL with another key would not be set."""
    replaced: list[dict[str, Any]] = []

    async def read() -> dict[str, Any]:
        return {"partitionKey": told}

    async def replace_container(_: object, partition_key: dict[str, Any], **__: Any) -> None:
        replaced.append(partition_key)

    await expiry_of(read, replace_container).stop()
    assert replaced == [told | given]


def fails(status: int) -> Callable[..., Awaitable[None]]:
    async def failed(*_: Any, **__: Any) -> None:
        raise CosmosHttpResponseError(status_code=status, message="no")

    return failed


@pytest.mark.parametrize(
    ("status", "kind", "message"),
    [(403, NotAllowed, "emergency-brake.md"), (429, Throttled, "later"), (503, Unavailable, "503")],
)
async def test_why_the_expiry_cannot_be_changed_is_told(
    status: int, kind: type[Exception], message: str
) -> None:
    async def read() -> dict[str, Any]:
        return {"partitionKey": {"paths": ["/a"]}}

    for expiry in (expiry_of(fails(status), None), expiry_of(read, fails(status))):
        for change in (expiry.stop, expiry.resume):
            with pytest.raises(kind, match=message):
                await change()
