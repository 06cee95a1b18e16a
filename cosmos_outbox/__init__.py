"""The transactional outbox and inbox on Azure Cosmos DB: an event is stored with its change, or neither is.

This is the public face. It keeps its names and their meaning within a major version:

- the names in ``__all__`` here;
- ``cosmos_outbox.errors``: every error that a program may want to catch, or that an effect raises;
- ``cosmos_outbox.http``: what the calls on a resource are made of;
- ``cosmos_outbox.functions``: the function app of a service;
- ``cosmos_outbox.store``: a subscriber's store of one's own;
- ``cosmos_outbox.publisher``: a publisher of one's own;
- ``cosmos_outbox.testing``: what the tests of a service need.

``docs/use/face.md`` has an example of each name. A name is imported when it is first used, so that a process loads what
it needs: no broker before it sends, no Functions where there are none.
"""

from typing import TYPE_CHECKING

from cosmos_outbox.kernel.lazy_imports import lazy_imports

if TYPE_CHECKING:
    from cosmos_outbox.cosmos.aggregates.aggregates import Aggregates
    from cosmos_outbox.cosmos.inbox.store import CosmosDatabase
    from cosmos_outbox.inbox.entry import After, Condition, EntrySchema, ListedPage
    from cosmos_outbox.inbox.message import Event, TolerantReader
    from cosmos_outbox.inbox.ports import NoSource
    from cosmos_outbox.inbox.retrier import Retries
    from cosmos_outbox.kernel.clock import utc_now
    from cosmos_outbox.lists.listing import Listing
    from cosmos_outbox.outbox.aggregate import (
        Aggregate,
        AggregateState,
        Origin,
        Page,
        Receipt,
        Versioned,
        input_rule,
    )
    from cosmos_outbox.outbox.event import DomainEvent, Timestamp, WireModel
    from cosmos_outbox.service import Service
    from cosmos_outbox.settings.names import DocumentSource, ExistingContainer, Named, Names
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
    "Retries",
    "Service",
    "Timestamp",
    "TolerantReader",
    "Versioned",
    "WireModel",
    "input_rule",
    "running",
    "utc_now",
]  # fmt: skip

if not TYPE_CHECKING:  # to a type checker a name that is not imported above is an error
    __getattr__, __dir__ = lazy_imports(
        __name__,
        {
            "cosmos_outbox.cosmos.aggregates.aggregates": ("Aggregates",),
            "cosmos_outbox.cosmos.inbox.store": ("CosmosDatabase",),
            "cosmos_outbox.inbox.entry": (
                "After",
                "Condition",
                "EntrySchema",
                "ListedPage",
            ),
            "cosmos_outbox.inbox.message": (
                "Event",
                "TolerantReader",
            ),
            "cosmos_outbox.inbox.ports": ("NoSource",),
            "cosmos_outbox.inbox.retrier": ("Retries",),
            "cosmos_outbox.kernel.clock": ("utc_now",),
            "cosmos_outbox.lists.listing": ("Listing",),
            "cosmos_outbox.outbox.aggregate": (
                "Aggregate",
                "AggregateState",
                "Origin",
                "Page",
                "Receipt",
                "Versioned",
                "input_rule",
            ),
            "cosmos_outbox.outbox.event": (
                "DomainEvent",
                "Timestamp",
                "WireModel",
            ),
            "cosmos_outbox.service": ("Service",),
            "cosmos_outbox.settings.names": (
                "DocumentSource",
                "ExistingContainer",
                "Named",
                "Names",
            ),
            "cosmos_outbox.sources.http": ("HttpApi",),
            "cosmos_outbox.worker.running": ("running",),
        },
    )
