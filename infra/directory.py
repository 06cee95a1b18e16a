"""Queries the directory's entries in Cosmos DB: searched texts are stored normalised, so that an index finds them."""

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from application.directory import CHANGED, CREATED, SORTED_BY, DirectoryEntry, Field, Search
from cosmos_outbox import Condition, EntrySchema, ListedPage, Listing

LAST_NAME = "lastName"
"""The property of the last name: a search matches the beginning of the name or of the last name."""


def spelled(text: str) -> str:
    """Returns one spelling for texts that a reader takes for the same: case, width, composed letters, spaces."""
    return " ".join(unicodedata.normalize("NFKC", text).casefold().split())


def _in_order(at: datetime) -> str:
    """Returns a time as text of one length and one zone, so that texts sort as the times do."""
    return at.astimezone(UTC).isoformat(timespec="microseconds")


FORM = EntrySchema(
    version=1,
    model=DirectoryEntry,
    search={
        Field.NAME.value: lambda entry: spelled(f"{entry.first_name} {entry.last_name}"),
        LAST_NAME: lambda entry: spelled(entry.last_name),
        Field.EMAIL.value: lambda entry: spelled(entry.email),
        Field.COMPANY.value: lambda entry: spelled(entry.company or ""),
        Field.CITY.value: lambda entry: spelled(entry.city or ""),
        Field.COUNTRY.value: lambda entry: spelled(entry.country or ""),
        CREATED: lambda entry: _in_order(entry.created_at),
        CHANGED: lambda entry: _in_order(entry.modified_at or entry.created_at),
    },
    sorted_by=SORTED_BY,
)


@dataclass(frozen=True)
class CosmosDirectory:
    """See :class:`application.directory.Directory`."""

    listing: Listing[DirectoryEntry]

    async def search(
        self, search: Search, size: int, continuation_token: str | None
    ) -> ListedPage[DirectoryEntry]:
        """Returns a page. Raises UnknownContinuation, Throttled, Unavailable."""
        conditions = [_conditions(field, text) for field, text in sorted(search.wanted.items())]
        return await self.listing.page(conditions, search.sort, size, continuation_token)


def _conditions(field: Field, text: str) -> Sequence[Condition]:
    text = spelled(text)
    if field is Field.NAME:
        return [Condition(field.value, text, beginning=True), Condition(LAST_NAME, text, beginning=True)]
    return [Condition(field.value, text)]
