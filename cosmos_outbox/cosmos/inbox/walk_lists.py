"""What a walk goes over is listed without order, so that a list over all partitions can go on from the store's token.

The progress of a walk is an item beside the entries, replaced at the version that was read: two sweeps cannot both go
on. A token that the store does not take any more, as after a split of a partition, begins its side anew. What changed
is found by ``_ts``, which every container indexes; a source that changes while it is listed is in the next list.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from cosmos_outbox.cosmos.inbox.entries import store_away, text_or_none, time_or_none
from cosmos_outbox.cosmos.store.container import Container, StoreFailed
from cosmos_outbox.cosmos.store.errors import Kind
from cosmos_outbox.cosmos.store.item import Item
from cosmos_outbox.cosmos.store.writes import Write
from cosmos_outbox.inbox.errors import EntryChanged
from cosmos_outbox.inbox.progress import Counts, Seen, SeenPage, Side, WalkProgress
from cosmos_outbox.kernel.aggregate_key import AggregateKey

_ENTRIES = (
    "SELECT c.id, c.aggregateType, c.lastSequence, c.blockedSince, c.healed, c.form, c._ts FROM c"
    " WHERE NOT c.deleted"
)
_SOURCES = "SELECT c.id, c.type, c.data.lastSequence, c.data.deleted, c._ts FROM c WHERE c.type = @type"
_CHANGED = f"{_SOURCES} AND c._ts >= @since AND c._ts < @until"
_COUNT = "SELECT VALUE COUNT(1) FROM c WHERE c.type = @type"
_PAGE = 100


@dataclass(frozen=True)
class CosmosLists:
    """See :class:`cosmos_outbox.inbox.walk.Lists`."""

    entries_container: Container
    sources_container: Container
    aggregate_type: str
    name: str
    """Of the walk: the id and the partition of its progress. No aggregate has it, their ids are UUIDs."""
    form: int
    """In which entries are made now."""

    async def entries(self, position: str | None) -> SeenPage:
        """A page of living entries. Raises StoreAway."""
        items, token = await self._page(self.entries_container, _ENTRIES, {}, position)
        return SeenPage([self._entry(item) for item in items], token)

    async def sources(self, position: str | None) -> SeenPage:
        """A page of sources, deleted ones too. Raises StoreAway."""
        items, token = await self._page(
            self.sources_container, _SOURCES, {"@type": self.aggregate_type}, position
        )
        return SeenPage([_source(item) for item in items], token)

    async def list_changed(self, since: datetime, until: datetime, position: str | None) -> SeenPage:
        """A page of sources, deleted ones too, that were last written in this time. Raises StoreAway."""
        parameters = {
            "@type": self.aggregate_type,
            "@since": int(since.timestamp()),
            "@until": int(until.timestamp()),
        }
        items, token = await self._page(self.sources_container, _CHANGED, parameters, position)
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
        marked["blockedSince"] = text_or_none(since)
        await self._write(key.id, Write.replace(marked, version))

    async def progress(self) -> WalkProgress | None:
        """The progress that was saved last, as far as this replica shows it. Raises StoreAway."""
        try:
            read = await self.entries_container.read_with_age(self.name, self.name)
        except StoreFailed as error:
            raise store_away(error.failure) from error
        if read is None:
            return None
        item, age = read
        side, last = item["side"], item["lastCounts"]
        return WalkProgress(
            began_at=datetime.fromisoformat(item["beganAt"]),
            side=Side(side) if side else None,
            position=item["position"],
            counts=Counts(**item["counts"]),
            last_counts=Counts(**last) if last else None,
            last_ended_at=time_or_none(item["lastEndedAt"]),
            version=item["_etag"],
            form=item["form"],
            moved_at=time_or_none(item["movedAt"]),
            claimed_until=time_or_none(item["claimedUntil"]),
            since=time_or_none(item["since"]),
            until=time_or_none(item["until"]),
            left=tuple(AggregateKey(*key) for key in item["left"]),
            stands_at=time_or_none(item["standsAt"]),
            as_of=_time(item) + timedelta(seconds=age),
        )

    async def save(self, progress: WalkProgress) -> WalkProgress:
        """Save the progress; with its new version. Raises EntryChanged, StoreAway."""
        item = {
            "id": self.name,
            "partitionKey": self.name,
            "type": "progress",
            "form": progress.form,
            "beganAt": progress.began_at.isoformat(),
            "side": progress.side.value if progress.side else None,
            "position": progress.position,
            "counts": asdict(progress.counts),
            "lastCounts": asdict(progress.last_counts) if progress.last_counts else None,
            "lastEndedAt": text_or_none(progress.last_ended_at),
            "movedAt": text_or_none(progress.moved_at),
            "claimedUntil": text_or_none(progress.claimed_until),
            "since": text_or_none(progress.since),
            "until": text_or_none(progress.until),
            "left": [[key.type, key.id] for key in progress.left],
            "standsAt": text_or_none(progress.stands_at),
        }
        write = Write.replace(item, progress.version) if progress.version else Write.create(item)
        return replace(progress, version=await self._write(self.name, write))

    def _entry(self, item: Item) -> Seen:
        return Seen(
            AggregateKey(item["aggregateType"], item["id"]),
            item["lastSequence"],
            deleted=False,
            changed_at=_time(item),
            blocked_since=time_or_none(item["blockedSince"]),
            healed=item["healed"],
            other_form=item.get("form") != self.form,
        )

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


def _source(item: Item) -> Seen:
    key = AggregateKey(item["type"], item["id"])
    return Seen(key, item.get("lastSequence", 0), deleted=bool(item.get("deleted")), changed_at=_time(item))


def _time(item: Item) -> datetime:
    return datetime.fromtimestamp(item["_ts"], UTC)
