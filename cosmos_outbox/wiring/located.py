"""A command works for a service of either kind: one that publishes, or one that only subscribes."""

import importlib
from typing import TYPE_CHECKING

from cosmos_outbox.settings.errors import Misconfigured
from cosmos_outbox.wiring.service import Service, Wired
from cosmos_outbox.wiring.subscribing import SubscriberService, WiredSubscriber

if TYPE_CHECKING:
    from cosmos_outbox.operations.stuck import StuckList

AnyService = Service | SubscriberService
AnyWired = Wired | WiredSubscriber


def aggregate_types(service: AnyService) -> list[str]:
    """The types of a service's aggregates, or those of whose events it keeps something."""
    if isinstance(service, SubscriberService):
        return sorted({each.aggregate_type for each in service.subscribers})
    own = service.own.aggregates if service.own else ()
    return [*(each.aggregate_type for each in service.aggregates), *own]


def stuck_list(wired: AnyWired) -> "StuckList":
    """What is stuck of a service. Raises Misconfigured."""
    from cosmos_outbox.operations.stuck import StuckList  # noqa: PLC0415 - not when the host lists the functions

    parking = wired.outbox.parking if isinstance(wired, Wired) else None
    return StuckList(parking, {name: each.subscriber.retrier for name, each in wired.subscriptions.items()})


def located(name: str) -> AnyService:
    """The service that a command is told: a module that has one as ``service``, or MODULE.ATTRIBUTE.

    Raises Misconfigured.
    """
    module, _, attribute = name.rpartition(".")
    for place, wanted in ((name, "service"), (module, attribute)):
        if not place:
            continue
        try:
            found = getattr(importlib.import_module(place), wanted, None)
        except ModuleNotFoundError as error:
            if error.name is None or not f"{place}.".startswith(f"{error.name}."):
                raise
            continue
        if isinstance(found, Service | SubscriberService):
            return found
    raise Misconfigured(
        f"--service {name}: there is no Service there. Name the module that declares one as service, such as "
        "bookings.service, or MODULE.NAME, and run the command in the folder above"
    )
