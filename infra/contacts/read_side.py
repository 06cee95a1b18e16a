"""The directory, wired: its entries, the subscriber that keeps them, and the sweep that finds what no event tells.

An instance that answers calls on contacts, or relays, starts without any of this.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from application.directory import Directory, DirectoryEntry, entry_of, project
from domain.contact import Contact
from inbox.reading import MessageReader
from infra.contacts.directory import FORM, CosmosDirectory
from infra.contacts.documents import CONTACTS
from infra.read_model import Queried, ReadModel, ReadModelOf, wire_read_model
from infra.settings import Settings
from infra.subscriber import Subscriber, Subscription, wire_subscriber
from infra.wiring import Outbox

READER = MessageReader(Contact.aggregate_type, untyped=True)
"""A message that does not tell its aggregate's type was sent before messages told it."""

QUERIED = Queried(CONTACTS, FORM)


@dataclass(frozen=True)
class ReadSide:
    """The directory and what keeps it."""

    directory: Directory
    model: ReadModel[DirectoryEntry]
    subscriber: Subscriber

    @property
    def subscriptions(self) -> Sequence[Subscription]:
        """What the subscriber worker serves."""
        return [Subscription(self.subscriber, sweep=self.model.sweep)]


def wire_read_side(settings: Settings, outbox: Outbox) -> ReadSide:
    """Build it. Opens no connection: the first use opens it."""
    of_contacts = ReadModelOf(
        settings.cosmos_directory_container, Contact.aggregate_type, FORM, entry_of, project
    )
    model = wire_read_model(settings, outbox, of_contacts)
    return ReadSide(
        directory=CosmosDirectory(model.listing),
        model=model,
        subscriber=wire_subscriber(settings, outbox, READER.read, model.inbox.handle),
    )
