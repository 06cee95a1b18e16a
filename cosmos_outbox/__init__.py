"""The transactional outbox and inbox on Azure Cosmos DB: an event is stored with its change, or neither is.

This is the public face. It keeps its names and their meaning within a major version:

- the names in ``__all__`` here;
- ``cosmos_outbox.errors``: every error that a program may want to catch, or that an effect raises;
- ``cosmos_outbox.http``: what the calls on a resource are made of;
- ``cosmos_outbox.functions``: the function app of a service;
- ``cosmos_outbox.store``: a subscriber's store of one's own;
- ``cosmos_outbox.testing``: what the tests of a service need.

``docs/use/face.md`` has an example of each name. A name is imported when it is first used, so that a process loads what
it needs: no broker before it sends, no Functions where there are none.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cosmos_outbox.cosmos.aggregates.aggregates import Aggregates
    from cosmos_outbox.cosmos.inbox.store import CosmosDatabase
    from cosmos_outbox.inbox.entry import After, Condition, EntrySchema, ListedPage, Listing
    from cosmos_outbox.inbox.message import Event, TolerantReader
    from cosmos_outbox.inbox.ports import NoSource
    from cosmos_outbox.kernel.clock import utc_now
    from cosmos_outbox.outbox.aggregate import Aggregate, AggregateState, input_rule
    from cosmos_outbox.outbox.event import DomainEvent, Timestamp, WireModel
    from cosmos_outbox.outbox.unit_of_work import Origin, Page, Receipt, Versioned
    from cosmos_outbox.service import Service
    from cosmos_outbox.settings.existing_container import DocumentSource, ExistingContainer
    from cosmos_outbox.settings.names import Named, Names
    from cosmos_outbox.sources.http import HttpApi
    from cosmos_outbox.worker.running import running

__version__ = "1.0.0rc1"

__all__ = [
    "After",
    "Aggregate",
    "AggregateState",
    "Aggregates",
    "Condition",
    "CosmosDatabase",
    "DocumentSource",
    "DomainEvent",
    "EntrySchema",
    "Event",
    "ExistingContainer",
    "HttpApi",
    "ListedPage",
    "Listing",
    "Named",
    "Names",
    "NoSource",
    "Origin",
    "Page",
    "Receipt",
    "Service",
    "Timestamp",
    "TolerantReader",
    "Versioned",
    "WireModel",
    "input_rule",
    "running",
    "utc_now",
]  # fmt: skip

_HOME = {
    "After": "cosmos_outbox.inbox.entry",
    "Aggregate": "cosmos_outbox.outbox.aggregate",
    "AggregateState": "cosmos_outbox.outbox.aggregate",
    "Aggregates": "cosmos_outbox.cosmos.aggregates.aggregates",
    "CosmosDatabase": "cosmos_outbox.cosmos.inbox.store",
    "Condition": "cosmos_outbox.inbox.entry",
    "DomainEvent": "cosmos_outbox.outbox.event",
    "EntrySchema": "cosmos_outbox.inbox.entry",
    "Event": "cosmos_outbox.inbox.message",
    "HttpApi": "cosmos_outbox.sources.http",
    "ListedPage": "cosmos_outbox.inbox.entry",
    "Listing": "cosmos_outbox.inbox.entry",
    "Named": "cosmos_outbox.settings.names",
    "Names": "cosmos_outbox.settings.names",
    "NoSource": "cosmos_outbox.inbox.ports",
    "Origin": "cosmos_outbox.outbox.unit_of_work",
    "Page": "cosmos_outbox.outbox.unit_of_work",
    "ExistingContainer": "cosmos_outbox.settings.existing_container",
    "DocumentSource": "cosmos_outbox.settings.existing_container",
    "Receipt": "cosmos_outbox.outbox.unit_of_work",
    "Service": "cosmos_outbox.service",
    "Timestamp": "cosmos_outbox.outbox.event",
    "TolerantReader": "cosmos_outbox.inbox.message",
    "Versioned": "cosmos_outbox.outbox.unit_of_work",
    "WireModel": "cosmos_outbox.outbox.event",
    "input_rule": "cosmos_outbox.outbox.aggregate",
    "running": "cosmos_outbox.worker.running",
    "utc_now": "cosmos_outbox.kernel.clock",
}
"""The module of each name."""

if not TYPE_CHECKING:  # to a type checker a name that is not imported above is an error

    def __getattr__(name: str) -> Any:
        if name not in _HOME:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        found = getattr(importlib.import_module(_HOME[name]), name)
        globals()[name] = found
        return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
