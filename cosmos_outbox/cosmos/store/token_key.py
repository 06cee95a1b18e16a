"""The key of a container's lists is an item beside what is listed; of two the stored one counts."""

from cosmos_outbox.cosmos.store.container import Container, StoreFailed
from cosmos_outbox.cosmos.store.errors import Failure, Kind
from cosmos_outbox.cosmos.store.partition_key import KEEP_FOR_EVER, Item
from cosmos_outbox.lists.token_key import TokenKey, new_key

ITEM, PARTITION = "key", "continuation-key"
"""An entry's id is its partition key: whatever the ids of aggregates are, no entry is in the way."""


def token_key(container: Container) -> TokenKey:
    """The key of one container's lists. Its calls raise Throttled, Unavailable or Misconfigured."""

    async def kept() -> str:
        try:
            item = await container.read(ITEM, PARTITION) or await _make(container)
        except StoreFailed as error:
            raise error.failure.error() from error
        return str(item["key"])

    return TokenKey(kept)


async def _make(container: Container) -> Item:
    item = {
        "id": ITEM, "partitionKey": PARTITION, "type": "continuationKey", "key": new_key(), "ttl": KEEP_FOR_EVER
    }  # fmt: skip
    try:
        await container.create(item)
    except StoreFailed as error:  # another process made one, or an earlier attempt of this one did
        if error.failure.kind is not Kind.CONFLICT:
            raise
    # The stored one counts, whoever made it.
    stored = await container.read(ITEM, PARTITION)
    if stored is None:
        raise StoreFailed(Failure(Kind.BEHIND, "the key that was just made cannot be read"))
    return stored
