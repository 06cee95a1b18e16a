"""The directory, wired: its entries, the subscriber that keeps them, and the sweep that finds what no event tells.

An instance that answers calls on contacts, or relays, starts without any of this.
"""

from dataclasses import dataclass

from application.directory import Directory, DirectoryEntry, entry_of, project
from domain.contact import Contact
from inbox.reading import MessageReader
from inbox.state import StateInbox
from inbox.sweep import Sweep
from infra.contacts.directory import FORM, CosmosDirectory
from infra.contacts.documents import CONTACTS
from infra.cosmos.walk_lists import CosmosLists
from infra.read_model import Queried, ReadModelOf, walk_lists, wire_read_model
from infra.settings import Settings
from infra.subscriber import Subscriber, wire_subscriber
from infra.wiring import Outbox

READER = MessageReader(Contact.aggregate_type, untyped=True)
"""A message that does not tell its aggregate's type was sent before messages told it."""

QUERIED = Queried(CONTACTS, FORM)


@dataclass(frozen=True)
class ReadSide:
    """The directory and what keeps it."""

    directory: Directory
    inbox: StateInbox[DirectoryEntry]
    subscriber: Subscriber
    sweep: Sweep[DirectoryEntry]


def wire_read_side(settings: Settings, outbox: Outbox) -> ReadSide:
    """Build it. Opens no connection: the first use opens it."""
    of_contacts = ReadModelOf(
        settings.cosmos_directory_container, Contact.aggregate_type, FORM, entry_of, project
    )
    model = wire_read_model(settings, outbox, of_contacts)
    return ReadSide(
        directory=CosmosDirectory(model.listing),
        inbox=model.inbox,
        subscriber=wire_subscriber(settings, outbox, READER.read, model.inbox.handle),
        sweep=model.sweep,
    )


def directory_lists(settings: Settings, outbox: Outbox, walk: str) -> CosmosLists:
    """The entries of the directory and the contacts, for a walk over both."""
    return walk_lists(settings, outbox, settings.cosmos_directory_container, Contact.aggregate_type, walk)
