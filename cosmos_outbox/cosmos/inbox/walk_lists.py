"""What a walk goes over is listed without order, so that a list over all partitions can go on from the store's token.

The progress of a walk is an item beside the entries, replaced at the version that was read: two sweeps cannot both go
on. A token that the store does not take any more, as after a split of a partition, begins its side anew. What changed
is found by ``_ts``, which every container indexes; a source that changes while it is listed is in the next list.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from cosmos_outbox.cosmos.inbox.documents import SourceDocuments
from cosmos_outbox.cosmos.inbox.entries import store_away
from cosmos_outbox.cosmos.store.container import Container, StoreFailed
from cosmos_outbox.cosmos.store.errors import Kind
from cosmos_outbox.cosmos.store.item import Item
from cosmos_outbox.cosmos.store.writes import Write
from cosmos_outbox.inbox.errors import EntryChanged
from cosmos_outbox.inbox.progress import Seen, SeenPage, WalkProgress
from cosmos_outbox.inbox.stored import progress_document, progress_of, text_or_none, time_or_none
from cosmos_outbox.kernel.aggregate_key import AggregateKey

_ENTRIES = (
    "SELECT c.id, c.aggregateType, c.lastSequence, c.blockedSince, c.healed, c.form, c._ts FROM c"
    " WHERE NOT c.deleted"
)
_CHANGED = " AND c._ts >= @since AND c._ts < @until"
_PAGE = 100


@dataclass(frozen=True)
class CosmosLists:
    """See :class:`cosmos_outbox.inbox.walk.Lists`."""

    entries_container: Container
    sources_container: Container | None
    documents: SourceDocuments | None
    """The sources. None, both: they are another team's, and nobody lists them or their changes."""
    name: str
    """Of the walk: the id of its progress, in a partition that no entry has."""
    form: int
    """In which entries are made now."""

    async def entries(self, position: str | None) -> SeenPage:
        """A page of living entries. Raises StoreAway."""
        items, token = await self._page(self.entries_container, _ENTRIES, {}, position)
        return SeenPage([self._entry(item) for item in items], token)

    async def sources(self, position: str | None) -> SeenPage:
        """A page of sources, deleted ones too. Raises StoreAway."""
        return await self._sources("", {}, position)

    async def list_changed(self, since: datetime, until: datetime, position: str | None) -> SeenPage:
        """A page of sources, deleted ones too, that were last written in this time. Raises StoreAway."""
        times = {"@since": int(since.timestamp()), "@until": int(until.timestamp())}
        return await self._sources(_CHANGED, times, position)

    async def count_sources(self) -> int:
        """How many sources there are, deleted ones too. Raises StoreAway."""
        if self.sources_container is None or self.documents is None:
            return 0
        condition, parameters = self.documents.condition("c")
        query = f"SELECT VALUE COUNT(1) FROM c WHERE {condition}"  # noqa: S608 - paths of a declaration
        try:
            return await self.sources_container.count(query, parameters)
        except StoreFailed as error:
            raise store_away(error.failure) from error

    async def mark(self, key: AggregateKey, version: str, since: datetime | None) -> None:
        """Note in an entry since when it is blocked. Raises EntryChanged, StoreAway."""
        try:
            item = await self.entries_container.read(key.id, key.id)
        except StoreFailed as error:
            raise store_away(error.failure) from error
        if item is None or item["_etag"] != version:
            raise EntryChanged(f"the entry of {key} has moved")
        marked = {name: value for name, value in item.items() if not name.startswith("_")}
        marked["blockedSince"] = text_or_none(since)
        await self._write(key.id, Write.replace(marked, version))

    async def progress(self) -> WalkProgress | None:
        """The progress that was saved last, as far as this replica shows it. Raises StoreAway."""
        try:
            read = await self.entries_container.read_with_age(self.name, self._place)
        except StoreFailed as error:
            raise store_away(error.failure) from error
        if read is None:
            return None
        item, age = read
        return progress_of(item, item["_etag"], _time(item) + timedelta(seconds=age))

    async def save(self, progress: WalkProgress) -> WalkProgress:
        """Save the progress; with its new version. Raises EntryChanged, StoreAway."""
        item = {
            "id": self.name,
            "partitionKey": self._place,
            "type": "progress",
            **progress_document(progress),
        }
        write = Write.replace(item, progress.version) if progress.version else Write.create(item)
        return replace(progress, version=await self._write(self._place, write))

    @property
    def _place(self) -> str:
        """The partition of the progress. An entry's is an id, and an id has no slash."""
        return f"progress/{self.name}"

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

    async def _sources(self, more: str, parameters: Mapping[str, Any], position: str | None) -> SeenPage:
        if self.sources_container is None or self.documents is None:
            return SeenPage([], None)
        condition, of_documents = self.documents.condition("c")
        selected = self.documents.selected("c")
        query = f"SELECT {selected} FROM c WHERE {condition}{more}"  # noqa: S608 - paths of a declaration
        items, token = await self._page(
            self.sources_container, query, {**of_documents, **parameters}, position
        )
        return SeenPage([self.documents.seen(item) for item in items], token)

    async def _write(self, partition: str, write: Write) -> str:
        try:
            [etag] = await self.entries_container.execute(partition, [write])
        except StoreFailed as error:
            if error.failure.kind in (Kind.CONFLICT, Kind.STALE, Kind.MISSING):
                raise EntryChanged(f"another writer changed {write.item['id']}: read it again") from error
            raise store_away(error.failure) from error
        return etag


def _time(item: Item) -> datetime:
    return datetime.fromtimestamp(item["_ts"], UTC)
