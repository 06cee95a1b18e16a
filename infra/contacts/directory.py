"""The directory's entries in Cosmos DB: what is searched for is stored in one spelling, so that an index finds it."""

import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from application.directory import DirectoryEntry, DirectoryPage, Field, Listed, Search
from infra.cosmos.documents import Item
from infra.cosmos.entries import EntryForm, time_or_none
from infra.cosmos.listing import Condition, EntryListing

LAST_NAME = "lastName"
"""A name is found by its beginning, and by the beginning of the last name."""


def _search(entry: DirectoryEntry) -> Mapping[str, str]:
    """A field without a value is empty: an entry without the field would be missing from a list sorted by it."""
    return {
        Field.NAME.value: spelled(f"{entry.first_name} {entry.last_name}"),
        LAST_NAME: spelled(entry.last_name),
        Field.EMAIL.value: spelled(entry.email),
        Field.COMPANY.value: spelled(entry.company or ""),
        Field.CITY.value: spelled(entry.city or ""),
        Field.COUNTRY.value: spelled(entry.country or ""),
    }


def spelled(text: str) -> str:
    """One spelling for texts that a reader takes for the same: case, width, composed letters, spaces."""
    return " ".join(unicodedata.normalize("NFKC", text).casefold().split())


def _write(entry: DirectoryEntry) -> Item:
    return entry.model_dump(mode="json", by_alias=True)


def _read(data: Mapping[str, Any]) -> DirectoryEntry:
    return DirectoryEntry.model_validate(data)


FORM = EntryForm(write=_write, read=_read, search=_search)


@dataclass(frozen=True)
class CosmosDirectory:
    """See :class:`application.directory.Directory`."""

    listing: EntryListing

    async def search(self, search: Search, size: int, continuation_token: str | None) -> DirectoryPage:
        """A page. Raises UnknownContinuation, Throttled, Unavailable."""
        conditions = [_conditions(field, text) for field, text in sorted(search.wanted.items())]
        items, token = await self.listing.page(conditions, search.sort.value, size, continuation_token)
        return DirectoryPage([_listed(item) for item in items], token)


def _conditions(field: Field, text: str) -> Sequence[Condition]:
    text = spelled(text)
    if field is Field.NAME:
        return [Condition(field.value, text, beginning=True), Condition(LAST_NAME, text, beginning=True)]
    return [Condition(field.value, text)]


def _listed(item: Item) -> Listed:
    return Listed(
        id=item["id"],
        entry=_read(item["data"]),
        sequence=item["lastSequence"],
        applied_at=datetime.fromisoformat(item["appliedAt"]),
        late_seconds=item["lateSeconds"],
        blocked_since=time_or_none(item["blockedSince"]),
    )
