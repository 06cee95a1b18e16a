"""The brake changes the default TTL of a container and nothing else: the SDK replaces all that it is given."""

from types import SimpleNamespace
from typing import Any, cast

from cosmos_outbox.cosmos.upkeep.expiry import Expiry

KEPT = {
    "indexing_policy": {"indexingMode": "consistent"},
    "conflict_resolution_policy": {"mode": "LastWriterWins"},
    "analytical_storage_ttl": -1,
    "computed_properties": [{"name": "lower", "query": "SELECT VALUE LOWER(c.id) FROM c"}],
    "full_text_policy": {"defaultLanguage": "en-US"},
    "vector_embedding_policy": {"vectorEmbeddings": []},
}


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
        assert partition_key["paths"] == ["/partitionKey"]
        replaced.append(given)

    database, container = SimpleNamespace(replace_container=replace_container), SimpleNamespace(read=read)
    expiry = Expiry(cast(Any, database), cast(Any, container), cast(Any, None))
    await expiry.stop()
    await expiry.resume()
    assert replaced == [KEPT | {"default_ttl": None}, KEPT | {"default_ttl": -1}]
