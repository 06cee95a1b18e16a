"""The composition root of the contact service: the use cases over an outbox, made once per process."""

from dataclasses import dataclass

from application.contacts import Contacts
from infra.contacts.documents import CONTACTS
from infra.http.caller import Callers
from infra.settings import Settings
from infra.wiring import OnePerProcess, Outbox, wire_outbox
from outbox.aggregates import Aggregates
from outbox.unit_of_work import utc_now


@dataclass(frozen=True)
class Application:
    """The contact service, wired."""

    contacts: Contacts
    outbox: Outbox
    callers: Callers


def wire(settings: Settings) -> Application:
    """Build the contact service from settings. Opens no connection: the first use opens it."""
    outbox = wire_outbox(settings, CONTACTS)
    aggregates = Aggregates(outbox.open_unit_of_work, outbox.claims, settings.idempotency_old_records)
    return Application(Contacts(aggregates, utc_now), outbox, Callers(settings.platform_authenticates))


application = OnePerProcess(wire)
"""The application of this process: call ``application()`` inside the running loop."""
