"""A team's batch is stored once, and by its first event an attempt is recognised whose answer was lost.

The events come first, then the documents in their order. So the repetition of a batch that was stored is refused at its
first event, and in no other way: a patch that is repeated could be told to be invalid. A batch without an event is not
recognised, so it is not sent again after an answer was lost.
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass

from cosmos_outbox.cosmos.aggregates.batch import check_size
from cosmos_outbox.cosmos.aggregates.once import Once, WriteRefusal, refused, unknown
from cosmos_outbox.cosmos.own.documents import without_system_fields
from cosmos_outbox.cosmos.store.container import Container, StoreFailed
from cosmos_outbox.cosmos.store.errors import Failure, Kind
from cosmos_outbox.cosmos.store.item import Item
from cosmos_outbox.cosmos.store.partition_key import Key
from cosmos_outbox.cosmos.store.writes import Write
from cosmos_outbox.outbox.errors import AlreadyExists, PreconditionFailed, Unpublishable
from cosmos_outbox.outbox.unit_of_work import ETag

_log = logging.getLogger(__name__)

_STORED = "SELECT * FROM c WHERE ARRAY_CONTAINS(@ids, c.id)"


@dataclass(frozen=True)
class OwnBatch:
    """What one transaction stores in one partition."""

    container: Container
    key: Key
    documents: Sequence[Write]
    events: Sequence[Item]

    async def store(self, give_up_at: float) -> Sequence[ETag | None]:
        """Store it, trying until this time of the monotonic clock. The ETags of the documents.

        Raises as :class:`cosmos_outbox.cosmos.own.transaction.Transaction` tells.
        """
        writes = [*map(Write.create, self.events), *self.documents]
        check_size(writes)
        once = Once(
            self.container, self.key, writes, self._meaning, error=self._error, repeatable=bool(self.events)
        )
        etags = await once.store(give_up_at)
        return etags[len(self.events) :]

    async def _meaning(self, refusal: WriteRefusal) -> Sequence[ETag | None]:
        """The ETags of all, when an earlier attempt is stored; raises what the refusal means otherwise."""
        if self.events:
            try:
                if await self._is_stored():
                    return [*[None] * len(self.events), *await self._etags_since()]
            except StoreFailed as error:
                raise unknown(error.failure) from error
        elif refusal.answer_lost:
            raise unknown(refusal.failure)
        raise self._error(refusal.failure)

    async def _is_stored(self) -> bool:
        first = self.events[0]
        stored = await self.container.read(first["id"], self.key)
        return stored is not None and stored.get("data") == first["data"]

    async def _etags_since(self) -> Sequence[ETag | None]:
        """Each document's ETag, if it is still as this transaction has stored it, and if that can be read."""
        ids = [write.item["id"] for write in self.documents]
        try:
            items = await self.container.first(_STORED, {"@ids": ids}, len(ids) + 1, partition_key=self.key)
        except StoreFailed as error:  # it is known that all is stored
            _log.info("a transaction is stored, and its documents cannot be read: %s", error.failure.detail)
            return [None] * len(self.documents)
        found = {item["id"]: item for item in items}
        return [self._etag(write, found.get(write.item["id"])) for write in self.documents]

    def _etag(self, write: Write, found: Item | None) -> ETag | None:
        unknown_state = write.kind in ("delete", "patch")
        if found is None or unknown_state or without_system_fields(found) != write.item:
            return None
        return str(found["_etag"])

    def _error(self, failure: Failure) -> Exception:
        which = self._which(failure.index)
        match failure.kind:
            case Kind.CONFLICT:
                return AlreadyExists(
                    f"{which} is there already, or breaks a unique key of the container: read it, and decide again"
                )
            case Kind.STALE | Kind.MISSING:
                return PreconditionFailed(
                    f"{which} was changed or removed by another writer, or the condition of its patch does not hold: "
                    "read it again, then repeat the change"
                )
            case Kind.INVALID:
                return Unpublishable(
                    f"the store does not take {which} ({failure.detail}): look at its ttl and its partition key, that "
                    "the paths of a patch are in the document, and that the container's partition key paths are those "
                    "of the OwnContainer"
                )
            case _:
                return refused(failure)

    def _which(self, index: int | None) -> str:
        place = -1 if index is None else index - len(self.events)
        if not 0 <= place < len(self.documents):
            return "a document of the transaction"
        return f"document {self.documents[place].item['id']}"
