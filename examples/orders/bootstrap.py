"""The order service, wired: an outbox of ``infra.wiring`` with names of its own."""

from dataclasses import dataclass

from examples.orders.service import Orders
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


def wire(settings: Settings) -> Application:
    """Build the order service from settings. Opens no connection: each is opened by its first use."""
    outbox = wire_outbox(settings, WireNames(source="/orders"))
    return Application(Orders(Aggregates(outbox.open_unit_of_work), utc_now), outbox)


application = OnePerProcess(wire)
"""The application of this process. Call it inside the running loop."""
