"""Continues a list over all partitions after the last key that was seen, never from a token of the store.

The Python SDK cannot continue an ordered query over several physical partitions
(https://github.com/Azure/azure-sdk-for-python/issues/41434). So each page is a query of its own, for what comes after
the last entry of the page before. Two entries with one key are distinguished by their ids, and ``ORDER BY`` over both
needs a composite index.

The key of a container's lists is an item beside what is listed; of two the stored one counts.
"""

from collections.abc import Mapping, Sequence

from cosmos_outbox.cosmos.store.container import Container, StoreFailed, Write, beyond, order_by, reported
from cosmos_outbox.cosmos.store.errors import Failure, Kind
from cosmos_outbox.cosmos.store.partition_key import KEEP_FOR_EVER, Item
from cosmos_outbox.inbox.entry import Condition
from cosmos_outbox.kernel.dataclass import dataclass
from cosmos_outbox.lists.listing import Sorted, TokenKey, new_key


@dataclass(frozen=True)
class CosmosItems:
    """The entries of one container that are not deleted. See :class:`cosmos_outbox.lists.listing.Items`."""

    container: Container

    async def first(
        self, conditions: Sequence[Sequence[Condition]], by: Sorted, most: int, after: Sequence[str] | None
    ) -> list[Item]:
        """Returns the first entries. Raises Throttled, Unavailable, Misconfigured."""
        query, parameters = _query(conditions, by, most, after)
        with reported():
            return await self.container.first(query, parameters, most)


def _query(
    conditions: Sequence[Sequence[Condition]], by: Sorted, size: int, after: Sequence[str] | None
) -> tuple[str, Mapping[str, str]]:
    parameters: dict[str, str] = {}
    path, where = f"c.search.{by.text}", ["c.deleted = false"]
    for group in conditions:
        choices = []
        for each in group:
            name = f"@p{len(parameters)}"
            parameters[name] = each.text
            text = f"c.search.{each.field}"
            choices.append(f"STARTSWITH({text}, {name})" if each.beginning else f"{text} = {name}")
        where.append(f"({' OR '.join(choices)})")
    if after is not None:
        parameters |= {"@key": after[0], "@after": after[1]}
    where.append(f"IS_DEFINED({path})" if after is None else beyond(path, down=by.down))
    order = order_by(path, "c.id", down=by.down)
    return f"SELECT TOP {size} * FROM c WHERE {' AND '.join(where)} {order}", parameters  # noqa: S608


ITEM, PARTITION = "key", "continuation-key"
"""An entry's id is its partition key: whatever the ids of aggregates are, no entry is in the way."""


def token_key(container: Container) -> TokenKey:
    """The key of one container's lists. Its calls raise Throttled, Unavailable or Misconfigured."""

    async def kept() -> str:
        with reported():
            item = await container.read(ITEM, PARTITION) or await _make(container)
        return str(item["key"])

    return TokenKey(kept)


async def _make(container: Container) -> Item:
    item = {
        "id": ITEM, "partitionKey": PARTITION, "type": "continuationKey", "key": new_key(), "ttl": KEEP_FOR_EVER
    }  # fmt: skip
    try:
        await container.execute(PARTITION, [Write.create(item)])
    except StoreFailed as error:  # another process made one, or an earlier attempt of this one did
        if error.failure.kind is not Kind.CONFLICT:
            raise
    # The stored one counts, from any instance.
    stored = await container.read(ITEM, PARTITION)
    if stored is None:
        raise StoreFailed(Failure(Kind.BEHIND, "the key that was just made cannot be read"))
    return stored
