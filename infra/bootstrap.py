"""The composition root of the contact service: the use cases over an outbox and an inbox, made once per process."""

from dataclasses import dataclass

from application.contacts import Contacts
from application.directory import Directory, DirectoryEntry, entry_of, project
from inbox.state import StateInbox
from infra.contacts.directory import FORM, CosmosDirectory
from infra.contacts.documents import CONTACTS
from infra.contacts.subscriber import read
from infra.cosmos.entries import CosmosEntries
from infra.cosmos.listing import EntryListing
from infra.cosmos.source import CosmosSource
from infra.http.caller import Callers
from infra.settings import TTL_MAX, Settings
from infra.subscriber import Subscriber, wire_subscriber
from infra.wiring import OnePerProcess, Outbox, wire_outbox
from outbox.aggregates import Aggregates
from outbox.unit_of_work import utc_now

TOMBSTONE_TTLS = 4
"""How many times EVENT_TTL_SECONDS a deleted entry is kept. Until then an event of its contact can come: it may wait in
the store for one of them, parked, in the topic, and set aside."""


@dataclass(frozen=True)
class Application:
    """The contact service and its directory, wired."""

    contacts: Contacts
    directory: Directory
    inbox: StateInbox[DirectoryEntry]
    subscriber: Subscriber
    outbox: Outbox
    callers: Callers


def wire(settings: Settings) -> Application:
    """Build the contact service from settings. Opens no connection: the first use opens it."""
    outbox = wire_outbox(settings, CONTACTS)
    entries = outbox.container(settings.cosmos_directory_container)
    scope = f"{settings.cosmos.address}/{settings.cosmos_database}/{settings.cosmos_directory_container}"
    inbox = StateInbox(
        CosmosEntries(entries, FORM, min(TOMBSTONE_TTLS * settings.event_ttl_seconds, TTL_MAX)),
        CosmosSource(outbox.container(settings.cosmos_container), entry_of),
        project,
    )
    aggregates = Aggregates(outbox.open_unit_of_work, outbox.claims, settings.idempotency_old_records)
    return Application(
        contacts=Contacts(aggregates, utc_now),
        directory=CosmosDirectory(EntryListing(entries, scope)),
        inbox=inbox,
        subscriber=wire_subscriber(settings, outbox, read, inbox.handle),
        outbox=outbox,
        callers=Callers(settings.platform_authenticates),
    )


application = OnePerProcess(wire)
"""The application of this process: call ``application()`` inside the running loop."""
