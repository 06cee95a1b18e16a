"""The composition root of the contact service: the use cases over an outbox and an inbox, made once per process."""

from collections.abc import Collection
from dataclasses import dataclass

from application.contacts import Contacts
from application.directory import Directory, DirectoryEntry, entry_of, project
from inbox.event import AggregateKey
from inbox.receiver import LONGEST_CALL_SECONDS
from inbox.state import StateInbox
from inbox.sweep import Sweep
from infra.contacts.directory import FORM, CosmosDirectory
from infra.contacts.documents import CONTACTS
from infra.contacts.subscriber import TYPE, read
from infra.cosmos.entries import CosmosEntries
from infra.cosmos.listing import EntryListing
from infra.cosmos.source import CosmosSource
from infra.cosmos.walk_lists import CosmosLists
from infra.http.caller import Callers
from infra.settings import TTL_MAX, Settings
from infra.subscriber import Subscriber, wire_subscriber
from infra.wiring import OnePerProcess, Outbox, wire_outbox
from outbox.aggregates import Aggregates
from outbox.unit_of_work import utc_now


@dataclass(frozen=True)
class Application:
    """The contact service and its directory, wired."""

    contacts: Contacts
    directory: Directory
    inbox: StateInbox[DirectoryEntry]
    subscriber: Subscriber
    sweep: Sweep[DirectoryEntry]
    outbox: Outbox
    callers: Callers


def tombstone_seconds(settings: Settings) -> int:
    """How long a deleted entry is kept: longer than any call, and than an event waits stored, parked and set aside.

    An event that comes later still does no harm: where there is no entry, the contact itself is looked for.
    """
    waits = 2 * settings.event_ttl_seconds + settings.parked_max_age_seconds
    return min(max(waits, 2 * int(LONGEST_CALL_SECONDS)), TTL_MAX)


def directory_lists(settings: Settings, outbox: Outbox, walk: str) -> CosmosLists:
    """The entries of the directory and the contacts, for a walk over both."""
    entries = outbox.container(settings.cosmos_directory_container)
    return CosmosLists(entries, outbox.container(settings.cosmos_container), TYPE, walk)


def wire(settings: Settings) -> Application:
    """Build the contact service from settings. Opens no connection: the first use opens it."""
    outbox = wire_outbox(settings, CONTACTS)
    aggregates = Aggregates(outbox.open_unit_of_work, outbox.claims, settings.idempotency_old_records)
    entries = outbox.container(settings.cosmos_directory_container)
    scope = f"{settings.cosmos.address}/{settings.cosmos_database}/{settings.cosmos_directory_container}"

    async def blocked() -> Collection[AggregateKey]:
        return [AggregateKey(*marker.aggregate) for marker in await outbox.observer.lot.blocked()]

    inbox = StateInbox(
        CosmosEntries(entries, FORM, tombstone_seconds(settings)),
        CosmosSource(outbox.container(settings.cosmos_container), entry_of),
        project,
    )
    return Application(
        contacts=Contacts(aggregates, utc_now),
        directory=CosmosDirectory(EntryListing(entries, scope)),
        inbox=inbox,
        sweep=Sweep(inbox, directory_lists(settings, outbox, "sweep"), blocked),
        subscriber=wire_subscriber(settings, outbox, read, inbox.handle),
        outbox=outbox,
        callers=Callers(settings.platform_authenticates),
    )


application = OnePerProcess(wire)
"""The application of this process: call ``application()`` inside the running loop."""
