"""The record of a change with a key is only ever created: that it is there proves that the request has an outcome.

Whether it is there says the answer to a write, after the aggregate was read (``state_then_record``): no reader that
lags is asked.
"""

from dataclasses import dataclass

from cosmos_outbox.cosmos.aggregates.documents import request_id
from cosmos_outbox.cosmos.aggregates.once import PATIENCE_SECONDS, Once, WriteRefusal, latest
from cosmos_outbox.cosmos.store.container import Container, StoreFailed
from cosmos_outbox.cosmos.store.writes import Write
from cosmos_outbox.kernel.clock import monotonic
from cosmos_outbox.outbox.errors import PreconditionFailed
from cosmos_outbox.outbox.unit_of_work import ChangeRecord

CHANGE_TYPE = "changeRecord"


@dataclass
class CosmosChangeRecords:
    """See :class:`cosmos_outbox.outbox.unit_of_work.ChangeRecords`."""

    container: Container
    lifetime_seconds: int
    tracked: list[ChangeRecord]

    def add(self, record: ChangeRecord) -> None:
        """Store the record first in the transaction of the commit."""
        self.tracked.append(record)

    async def find(self, name: str, partition_key: str) -> ChangeRecord | None:
        """The record, by a fence of its own. Raises Throttled, Unavailable."""
        item_id = _id(name)
        try:
            item = await self.container.read(item_id, partition_key, consistent=True)
        except StoreFailed as error:
            raise error.failure.error() from error
        if item is None:
            return None
        data = item["data"]
        return ChangeRecord(name, data["fingerprint"], data["sequence"], data["refused"])

    async def create(self, record: ChangeRecord, partition_key: str, until: float) -> None:
        """Store it alone. Raises PreconditionFailed, Throttled, Unavailable, OutcomeUnknown."""
        once = Once(self.container, partition_key, [self.write(record, partition_key)], _there)
        await once.store(min(monotonic() + PATIENCE_SECONDS, latest(until)))

    def write(self, record: ChangeRecord, partition_key: str) -> Write:
        """The creation of the record, alone or in a transaction."""
        return Write.create(
            {
                "id": _id(record.name),
                "partitionKey": partition_key,
                "type": CHANGE_TYPE,
                "data": {
                    "fingerprint": record.fingerprint,
                    "sequence": record.sequence,
                    "refused": record.refused,
                },
                "ttl": self.lifetime_seconds,
            }
        )


def _id(name: str) -> str:
    """An aggregate can have no id that begins like it."""
    return request_id(f"key-{name}")


async def _there(_: WriteRefusal) -> list[str | None]:
    raise PreconditionFailed("the record of the request is there: it says what became of it")
