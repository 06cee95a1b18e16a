"""The contact directory: a read model of what a list of contacts needs, kept from the contacts' events alone.

The directory is a subscriber like any other. It reads events and contacts with models of its own, which know only the
fields that the directory shows: what a later version of the contact service adds does no harm.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Protocol

from pydantic import ValidationError

from cosmos_outbox import After, Event, ListedPage, Timestamp, TolerantReader


class _Name(TolerantReader):
    first_name: str
    last_name: str


class _Company(TolerantReader):
    company_name: str
    city: str | None = None
    country: str | None = None


class _Contact(TolerantReader):
    name: _Name
    email: str
    company: _Company | None = None
    created_at: Timestamp
    modified_at: Timestamp | None = None


class _Named(TolerantReader):
    name: _Name


class _Addressed(TolerantReader):
    email: str


class _Employed(TolerantReader):
    company: _Company | None


class DirectoryEntry(TolerantReader):
    """A contact as a list shows it."""

    first_name: str
    last_name: str
    email: str
    company: str | None = None
    city: str | None = None
    country: str | None = None
    created_at: Timestamp
    modified_at: Timestamp | None = None
    """None: it was never changed."""


def entry_of(contact: Mapping[str, Any]) -> DirectoryEntry:
    """The entry of a contact as the contact service stores it. Raises pydantic's ValidationError."""
    read = _Contact.model_validate(contact)
    return DirectoryEntry(
        **_named(read.name),
        email=read.email,
        **_employed(read.company),
        created_at=read.created_at,
        modified_at=read.modified_at,
    )


def first(created: Event) -> DirectoryEntry | None:
    """The entry of a new contact, whose event carries all of it; None: the contact itself has to be read."""
    try:
        return entry_of(created.data["contact"]) if created.action == "ContactCreatedEvent" else None
    except (KeyError, ValidationError):
        return None


def project(entry: DirectoryEntry, event: Event) -> After[DirectoryEntry] | None:
    """The entry after an event; None: the directory cannot read the event, so the contact itself has to be read."""
    try:
        return _after(entry, event)
    except ValidationError:
        return None


def _after(entry: DirectoryEntry, event: Event) -> After[DirectoryEntry] | None:
    changed: Mapping[str, Any]
    match event.action:
        case "ContactNameUpdatedEvent":
            changed = _named(_Named.model_validate(event.data).name)
        case "ContactEmailUpdatedEvent":
            changed = {"email": _Addressed.model_validate(event.data).email}
        case "ContactCompanyUpdatedEvent":
            changed = _employed(_Employed.model_validate(event.data).company)
        case "ContactDescriptionUpdatedEvent":
            changed = {}  # the directory does not show it
        case "ContactDeletedEvent":
            return After(None)
        case _:
            return None
    return After(entry.model_copy(update={**changed, "modified_at": event.created_at}))


def _named(name: _Name) -> dict[str, str]:
    return {"first_name": name.first_name, "last_name": name.last_name}


def _employed(company: _Company | None) -> dict[str, str | None]:
    if company is None:
        return {"company": None, "city": None, "country": None}
    return {"company": company.company_name, "city": company.city, "country": company.country}


class Field(StrEnum):
    """What the directory is searched by; upper and lower case are the same."""

    NAME = "name"
    EMAIL = "email"
    COMPANY = "company"
    CITY = "city"
    COUNTRY = "country"


CREATED, CHANGED = "created", "changed"
"""When a contact was created; when it was changed last, its creation being the first change."""

SORTED_BY = (*(field.value for field in Field), CREATED, CHANGED)
"""What the directory is sorted by."""


@dataclass(frozen=True)
class Search:
    """Which entries, and in which order. Each value is the whole of a field, that of the name a beginning of it."""

    wanted: Mapping[Field, str]
    sort: str = Field.NAME.value
    """One of ``SORTED_BY``; with ``-`` before it, the last comes first."""


class Directory(Protocol):
    """The directory, for readers."""

    async def search(
        self, search: Search, size: int, continuation_token: str | None
    ) -> ListedPage[DirectoryEntry]:
        """At most ``size`` entries in the order of the search; deleted contacts are not among them.

        Raises:
            UnknownContinuation: the token was not made for this search.
            Throttled: the store asks to slow down.
            Unavailable: the store cannot be used.
        """
