"""A command works for a service of either kind: one that publishes, or one that only subscribes."""

import importlib

from cosmos_outbox.operations.views import PathNames, names_of, names_of_type
from cosmos_outbox.settings.errors import Misconfigured
from cosmos_outbox.wiring.service import Service, Wired
from cosmos_outbox.wiring.subscribing import SubscriberService, WiredSubscriber

AnyService = Service | SubscriberService
AnyWired = Wired | WiredSubscriber


def operator_names(service: AnyService) -> list[PathNames]:
    """What operators call the aggregates of a service, or those of whose events it keeps something."""
    if isinstance(service, SubscriberService):
        return [*map(names_of_type, sorted({each.aggregate_type for each in service.subscribers}))]
    own = service.own.aggregates if service.own else ()
    return [*map(names_of, service.aggregates), *map(names_of_type, own)]


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
