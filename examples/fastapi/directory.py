"""A read model: the directory has one entry a person, kept from the events alone; list it by name."""

from collections.abc import Mapping
from typing import Any

from cosmos_outbox import After, EntrySchema, Event, TolerantReader


class Entry(TolerantReader):
    """A person as the directory shows it."""

    name: str
    email: str


def entry_of(person: Mapping[str, Any]) -> Entry:
    """The entry of a person as it is stored."""
    return Entry.model_validate(person)


def first(added: Event) -> Entry | None:
    """The entry of a new person, whose event has all of it; None: the person itself is read."""
    return entry_of(added.data) if added.action == "PersonAddedEvent" else None


def project(entry: Entry, event: Event) -> After[Entry] | None:
    """The entry after an event; None: not known here, so the person itself is read."""
    match event.action:
        case "PersonRenamedEvent":
            return After(entry.model_copy(update={"name": event.data["name"]}))
        case "PersonEmailChangedEvent":
            return After(entry.model_copy(update={"email": event.data["email"]}))
        case "PersonDeletedEvent":
            return After(None)
    return None


FORM = EntrySchema(Entry, search={"name": lambda entry: entry.name.casefold()}, sorted_by=["name"])
