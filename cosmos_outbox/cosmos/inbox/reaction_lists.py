"""The targets of a message that were looked up are a document of a partition of its own, which is only ever created.

It expires as the records of the message do. A look-up reads the aggregates of the service behind a fence in their
partition (``list_fenced``).
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from cosmos_outbox.cosmos.aggregates.batch import Lifetimes
from cosmos_outbox.cosmos.aggregates.documents import REACTION_LIST_TYPE, aggregate_from_item, request_id
from cosmos_outbox.cosmos.inbox.entries import store_away
from cosmos_outbox.cosmos.inbox.reactions import LONGEST_REASON, store_once
from cosmos_outbox.cosmos.store.container import Container, StoreFailed
from cosmos_outbox.cosmos.store.item import Item
from cosmos_outbox.cosmos.store.writes import Write
from cosmos_outbox.inbox.reaction_targets import Newest
from cosmos_outbox.kernel.clock import utc_now


@dataclass(frozen=True)
class CosmosTargetLists:
    """The lists of one reaction. See :class:`cosmos_outbox.inbox.reaction_targets.TargetLists`."""

    container: Container
    reaction: str
    lifetimes: Lifetimes
    clock: Callable[[], datetime] = utc_now

    @property
    def newest(self) -> Newest:
        """What a look-up reads with."""
        return self._read_newest

    async def _read_newest(
        self, kind: type[Any], aggregate_id: str, *, partition_key: str | None = None
    ) -> Any:
        partition_key = aggregate_id if partition_key is None else partition_key
        try:
            await self.container.fence(partition_key)
            item = await self.container.read(aggregate_id, partition_key)
        except StoreFailed as error:
            raise store_away(error.failure) from error
        if item is None or item.get("type") != kind.aggregate_type:
            return None
        found = aggregate_from_item(kind, item).aggregate
        return None if found.deleted else found

    async def read(self, name: str) -> Mapping[str, str] | None:
        """The list, as far as a replica knows. Raises StoreAway."""
        list_id = document_id(name)
        try:
            item = await self.container.read(list_id, list_id)
        except StoreFailed as error:
            raise store_away(error.failure) from error
        return None if item is None else targets_of(item)

    async def find(self, name: str) -> Mapping[str, str] | None:
        """The list: None is proof, of now. Raises StoreAway."""
        list_id = document_id(name)
        try:
            item = await self.container.read(list_id, list_id, consistent=True)
        except StoreFailed as error:
            raise store_away(error.failure) from error
        return None if item is None else targets_of(item)

    async def create(self, name: str, targets: Mapping[str, str], reason: str, until: float) -> None:
        """Store a list. Raises RecordChanged, StoreAway."""
        list_id = document_id(name)
        item = {
            "id": list_id,
            "partitionKey": list_id,
            "type": REACTION_LIST_TYPE,
            "data": {
                "reaction": self.reaction,
                "targets": dict(targets),
                "reason": reason[:LONGEST_REASON],
                "at": self.clock().isoformat(),
            },
            "ttl": self.lifetimes.reactions,
        }
        await store_once(self.container, list_id, [Write.create(item)], until)


def document_id(name: str) -> str:
    """The id of the document, and its partition key: an aggregate can have none that begins like it."""
    return request_id(f"targets-{name}")


def targets_of(item: Item) -> Mapping[str, str]:
    """The partition keys of the targets by their ids."""
    targets: Mapping[str, str] = item["data"]["targets"]
    return targets
