"""The composition root of the order service: the use cases over an outbox of ``infra.wiring``."""

from dataclasses import dataclass

from examples.orders.service import Orders
from infra.http.caller import Callers
from infra.settings import Settings
from infra.wire_names import WireNames
from infra.wiring import OnePerProcess, Outbox, wire_outbox
from outbox.aggregates import Aggregates
from outbox.unit_of_work import utc_now


@dataclass(frozen=True)
class Application:
    """The order service."""

    orders: Orders
    outbox: Outbox
    callers: Callers


def wire(settings: Settings) -> Application:
    """Build the order service from settings. Opens no connection: the first use opens it."""
    outbox = wire_outbox(settings, WireNames(source="/orders"))
    aggregates = Aggregates(outbox.open_unit_of_work, outbox.claims, settings.idempotency_old_records)
    return Application(Orders(aggregates, utc_now), outbox, Callers(settings.platform_authenticates))


application = OnePerProcess(wire)
"""The application of this process: call ``application()`` inside the running loop."""
