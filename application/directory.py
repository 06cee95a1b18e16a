"""The contact directory: a read model with the fields that a list of contacts shows, built from the contacts' events.

The directory is a subscriber like any other. It reads events and contacts with its own models, which have only the
fields that the directory shows, so fields that a later version of the contact service adds do no harm.
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
    """None: never changed."""


def entry_of(contact: Mapping[str, Any]) -> DirectoryEntry:
    """Returns the entry of a contact as the contact service stores it. Raises pydantic's ValidationError."""
    read = _Contact.model_validate(contact)
    return DirectoryEntry(
        **_named(read.name),
        email=read.email,
        **_employed(read.company),
        created_at=read.created_at,
        modified_at=read.modified_at,
    )


def first(created: Event) -> DirectoryEntry | None:
    """Returns the entry of a new contact from its event; None: the contact itself must be read."""
    try:
        return entry_of(created.data["contact"]) if created.action == "ContactCreatedEvent" else None
    except (KeyError, ValidationError):
        return None


def project(entry: DirectoryEntry, event: Event) -> After[DirectoryEntry] | None:
    """Returns the entry after an event; None: the event cannot be applied, so the contact itself must be read."""
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
    """The fields by which the directory is searched, without regard to case."""

    NAME = "name"
    EMAIL = "email"
    COMPANY = "company"
    CITY = "city"
    COUNTRY = "country"


CREATED, CHANGED = "created", "changed"
"""Sort keys: the time of creation, and that of the last change (creation is the first change)."""

SORTED_BY = (*(field.value for field in Field), CREATED, CHANGED)
"""The keys by which the directory is sorted."""


@dataclass(frozen=True)
class Search:
    """The filter and the order of a search. A value must equal the whole field; that of the name is a prefix."""

    wanted: Mapping[Field, str]
    sort: str = Field.NAME.value
    """One of ``SORTED_BY``; a leading ``-`` reverses the order."""


class Directory(Protocol):
    """The directory, for readers."""

    async def search(
        self, search: Search, size: int, continuation_token: str | None
    ) -> ListedPage[DirectoryEntry]:
        """Returns at most ``size`` entries in the order of the search, without deleted contacts.

        Raises:
            UnknownContinuation: the token was not made for this search.
            Throttled: the store asks to slow down.
            Unavailable: the store cannot be used.
        """
