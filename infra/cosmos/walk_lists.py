"""What a walk goes over is listed without order, so that a list over all partitions can go on from the store's token.

The progress of a walk is an item beside the entries, replaced at the version that was read: two sweeps cannot both go
on. A token that the store does not take any more, as after a split of a partition, begins its side anew.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from typing import Any

from inbox.errors import EntryChanged
from inbox.event import AggregateKey
from inbox.walk import Counts, Progress, Seen, SeenPage, Side
from infra.cosmos.container import Container, StoreFailed
from infra.cosmos.documents import Item
from infra.cosmos.entries import store_away, time_or_none
from infra.cosmos.errors import Kind
from infra.cosmos.writes import Write

_ENTRIES = (
    "SELECT c.id, c.aggregateType, c.lastSequence, c.blockedSince, c.healed, c._ts FROM c WHERE NOT c.deleted"
)
_SOURCES = "SELECT c.id, c.type, c.data.lastSequence, c.data.deleted, c._ts FROM c WHERE c.type = @type"
_COUNT = "SELECT VALUE COUNT(1) FROM c WHERE c.type = @type"
_PAGE = 100


@dataclass(frozen=True)
class CosmosLists:
    """See :class:`inbox.walk.Lists`."""

    entries_container: Container
    sources_container: Container
    aggregate_type: str
    name: str
    """Of the walk: the id and the partition of its progress. No aggregate has it, their ids are UUIDs."""

    async def entries(self, position: str | None) -> SeenPage:
        """A page of living entries. Raises StoreAway."""
        items, token = await self._page(self.entries_container, _ENTRIES, {}, position)
        return SeenPage([_entry(item) for item in items], token)

    async def sources(self, position: str | None) -> SeenPage:
        """A page of sources, deleted ones too. Raises StoreAway."""
        items, token = await self._page(
            self.sources_container, _SOURCES, {"@type": self.aggregate_type}, position
        )
        return SeenPage([_source(item) for item in items], token)

    async def count_sources(self) -> int:
        """How many sources there are, deleted ones too. Raises StoreAway."""
        try:
            return await self.sources_container.count(_COUNT, {"@type": self.aggregate_type})
        except StoreFailed as error:
            raise store_away(error.failure) from error

    async def mark(self, key: AggregateKey, version: str, since: datetime | None) -> None:
        """Note in an entry since when it is blocked. Raises EntryChanged, StoreAway."""
        item = await self._read(key.id)
        if item is None or item["_etag"] != version:
            raise EntryChanged(f"the entry of {key} has moved")
        marked = {name: value for name, value in item.items() if not name.startswith("_")}
        marked["blockedSince"] = since.isoformat() if since else None
        await self._write(key.id, Write.replace(marked, version))

    async def progress(self) -> Progress | None:
        """The progress that was saved last, as far as this replica shows it. Raises StoreAway."""
        item = await self._read(self.name)
        if item is None:
            return None
        last = item["lastCounts"]
        return Progress(
            began_at=datetime.fromisoformat(item["beganAt"]),
            side=Side(item["side"]),
            position=item["position"],
            counts=Counts(**item["counts"]),
            last_counts=Counts(**last) if last else None,
            last_ended_at=time_or_none(item["lastEndedAt"]),
            version=item["_etag"],
            saved_at=_time(item),
        )

    async def save(self, progress: Progress) -> Progress:
        """Save the progress; with its new version. Raises EntryChanged, StoreAway."""
        item = {
            "id": self.name,
            "partitionKey": self.name,
            "type": "progress",
            "beganAt": progress.began_at.isoformat(),
            "side": progress.side.value,
            "position": progress.position,
            "counts": asdict(progress.counts),
            "lastCounts": asdict(progress.last_counts) if progress.last_counts else None,
            "lastEndedAt": progress.last_ended_at.isoformat() if progress.last_ended_at else None,
        }
        write = Write.replace(item, progress.version) if progress.version else Write.create(item)
        return replace(progress, version=await self._write(self.name, write))

    async def _page(
        self, container: Container, query: str, parameters: Mapping[str, Any], position: str | None
    ) -> tuple[list[Item], str | None]:
        try:
            return await container.page(query, parameters, _PAGE, position)
        except StoreFailed as error:
            if error.failure.kind is not Kind.INVALID or position is None:
                raise store_away(error.failure) from error
        return await self._page(container, query, parameters, None)

    async def _read(self, item_id: str) -> Item | None:
        try:
            return await self.entries_container.read(item_id, item_id)
        except StoreFailed as error:
            raise store_away(error.failure) from error

    async def _write(self, item_id: str, write: Write) -> str:
        try:
            [etag] = await self.entries_container.execute(item_id, [write])
        except StoreFailed as error:
            if error.failure.kind in (Kind.CONFLICT, Kind.STALE, Kind.MISSING):
                raise EntryChanged(f"another writer changed {item_id}: read it again") from error
            raise store_away(error.failure) from error
        return etag


def _entry(item: Item) -> Seen:
    return Seen(
        AggregateKey(item["aggregateType"], item["id"]),
        item["lastSequence"],
        deleted=False,
        changed_at=_time(item),
        blocked_since=time_or_none(item["blockedSince"]),
        healed=item["healed"],
    )


def _source(item: Item) -> Seen:
    key = AggregateKey(item["type"], item["id"])
    return Seen(key, item.get("lastSequence", 0), deleted=bool(item.get("deleted")), changed_at=_time(item))


def _time(item: Item) -> datetime:
    return datetime.fromtimestamp(item["_ts"], UTC)
