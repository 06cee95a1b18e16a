"""The composition root of the contact service: the use cases over an outbox and an inbox, made once per process."""

from dataclasses import dataclass

from application.contacts import Contacts
from application.directory import Directory, DirectoryEntry, entry_of, project
from inbox.state import StateInbox
from inbox.sweep import Sweep
from infra.contacts.directory import FORM, CosmosDirectory
from infra.contacts.documents import CONTACTS
from infra.contacts.subscriber import TYPE, read
from infra.cosmos.walk_lists import CosmosLists
from infra.http.caller import Callers
from infra.read_model import ReadModelOf, walk_lists, wire_read_model
from infra.settings import Settings
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


def directory_lists(settings: Settings, outbox: Outbox, walk: str) -> CosmosLists:
    """The entries of the directory and the contacts, for a walk over both."""
    return walk_lists(settings, outbox, settings.cosmos_directory_container, TYPE, walk)


def wire(settings: Settings) -> Application:
    """Build the contact service from settings. Opens no connection: the first use opens it."""
    outbox = wire_outbox(settings, CONTACTS)
    aggregates = Aggregates(outbox.open_unit_of_work, outbox.claims, settings.idempotency_old_records)
    of_contacts = ReadModelOf(settings.cosmos_directory_container, TYPE, FORM, entry_of, project)
    model = wire_read_model(settings, outbox, of_contacts)
    return Application(
        contacts=Contacts(aggregates, utc_now),
        directory=CosmosDirectory(model.listing),
        inbox=model.inbox,
        sweep=model.sweep,
        subscriber=wire_subscriber(settings, outbox, read, model.inbox.handle),
        outbox=outbox,
        callers=Callers(settings.platform_authenticates),
    )


application = OnePerProcess(wire)
"""The application of this process: call ``application()`` inside the running loop."""
