"""What was heard of a canary is one item of the container of records: it never expires, and names nobody."""

from dataclasses import dataclass
from datetime import datetime

from cosmos_outbox.cosmos.inbox.entries import store_away
from cosmos_outbox.cosmos.store.container import Container, StoreFailed
from cosmos_outbox.cosmos.store.errors import Kind
from cosmos_outbox.cosmos.store.writes import Write
from cosmos_outbox.inbox.canary import Heard, Missing
from cosmos_outbox.inbox.errors import EntryChanged


@dataclass(frozen=True)
class CosmosHeard:
    """See :class:`cosmos_outbox.inbox.canary.HeardStore`."""

    container: Container
    subscription: str

    @property
    def _id(self) -> str:
        return f"canary.{self.subscription}"

    async def read(self) -> tuple[Heard, str] | None:
        """What this replica has. Raises StoreAway."""
        try:
            item = await self.container.read(self._id, self._id)
        except StoreFailed as error:
            raise store_away(error.failure) from error
        if item is None:
            return None
        missing = [
            Missing(each["sequence"], datetime.fromisoformat(each["since"])) for each in item["missing"]
        ]
        return Heard(item["last"], tuple(missing)), item["_etag"]

    async def write(self, heard: Heard, over: str | None) -> None:
        """Raises EntryChanged, StoreAway."""
        item = {
            "id": self._id,
            "partitionKey": self._id,
            "type": "canary",
            "last": heard.last,
            "missing": [
                {"sequence": each.sequence, "since": each.since.isoformat()} for each in heard.missing
            ],
        }
        try:
            await self.container.execute(
                self._id, [Write.create(item) if over is None else Write.replace(item, over)]
            )
        except StoreFailed as error:
            if error.failure.kind in (Kind.CONFLICT, Kind.STALE, Kind.MISSING):
                raise EntryChanged("what was heard of the canary has moved") from error
            raise store_away(error.failure) from error
