"""The composition root of the contact service: the use cases over an outbox and an inbox, made once per process."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from application.contacts import Contacts
from infra.contacts.documents import CONTACTS
from infra.http.caller import Callers
from infra.late import late
from infra.settings import Settings
from infra.wiring import OnePerProcess, Outbox, wire_outbox
from outbox.aggregates import Aggregates
from outbox.unit_of_work import utc_now

if TYPE_CHECKING:
    from application.directory import Directory, DirectoryEntry
    from inbox.sweep import Sweep
    from infra.contacts import read_side
    from infra.read_model import Queried, ReadModel
    from infra.subscriber import Subscriber, Subscription
else:
    read_side = late("infra.contacts.read_side")


@dataclass(frozen=True)
class Application:
    """The contact service and its directory, wired."""

    contacts: Contacts
    outbox: Outbox
    callers: Callers
    settings: Settings

    @property
    def directory(self) -> "Directory":
        """The search."""
        return self._read_side.directory

    @property
    def read_model(self) -> "ReadModel[DirectoryEntry]":
        """What keeps the directory, from events and from the contacts."""
        return self._read_side.model

    @property
    def subscriber(self) -> "Subscriber":
        """What receives the events."""
        return self._read_side.subscriber

    @property
    def sweep(self) -> "Sweep[DirectoryEntry]":
        """What finds the changes of which no event came."""
        return self.read_model.sweep

    @property
    def subscriptions(self) -> "Sequence[Subscription]":
        """What the subscriber worker serves."""
        return self._read_side.subscriptions

    @cached_property
    def _read_side(self) -> "read_side.ReadSide":
        return read_side.wire_read_side(self.settings, self.outbox)


def queried() -> "Queried":
    """By what the contact service finds its documents: preflight looks whether it is indexed."""
    return read_side.QUERIED


def wire(settings: Settings) -> Application:
    """Build the contact service from settings. Opens no connection: the first use opens it."""
    outbox = wire_outbox(settings, CONTACTS)
    aggregates = Aggregates(outbox.open_unit_of_work, outbox.claims, settings.idempotency_old_records)
    return Application(
        Contacts(aggregates, utc_now), outbox, Callers(settings.platform_authenticates), settings
    )


application = OnePerProcess(wire)
"""The application of this process: call ``application()`` inside the running loop."""
