"""Builds what the roles of a service need from its declaration and its settings: opens nothing, and runs nothing.

A service and its functions take from here what only some of them run; it is imported when its name is first used.
"""

from typing import TYPE_CHECKING

from cosmos_outbox.kernel.lazy_imports import lazy_imports

if TYPE_CHECKING:
    from cosmos_outbox.composition.operator import wire_operator as wire_operator
    from cosmos_outbox.composition.relay import wire_relay as wire_relay
    from cosmos_outbox.composition.subscriptions import Subscriptions as Subscriptions
    from cosmos_outbox.composition.transports import Clients as Clients
    from cosmos_outbox.composition.writer import wire_outbox as wire_outbox
    from cosmos_outbox.cosmos.existing.documents import Numbering as Numbering
    from cosmos_outbox.cosmos.inbox.documents import SourceDocuments as SourceDocuments
    from cosmos_outbox.cosmos.inbox.reaction_decision import InOrder as InOrder
    from cosmos_outbox.cosmos.inbox.store import CosmosNames as CosmosNames
    from cosmos_outbox.cosmos.inbox.store import CosmosStore as CosmosStore
    from cosmos_outbox.cosmos.store.partition_key import PARTITION_KEY as PARTITION_KEY
    from cosmos_outbox.cosmos.store.partition_key import PartitionKeyPaths as PartitionKeyPaths
    from cosmos_outbox.inbox.ports import NoSource as NoSource
    from cosmos_outbox.inbox.receiver import WAIT_SECONDS as WAIT_SECONDS
    from cosmos_outbox.operations.health import HEALTH_SECONDS as HEALTH_SECONDS
    from cosmos_outbox.operations.health import RecentCheck as RecentCheck
    from cosmos_outbox.operations.stuck import StuckList as StuckList
    from cosmos_outbox.servicebus.delivery import delivery_of as delivery_of
    from cosmos_outbox.storagequeue.message import arrived as arrived
    from cosmos_outbox.telemetry.export import export as export
    from cosmos_outbox.telemetry.messaging import STORAGEQUEUE as STORAGEQUEUE
    from cosmos_outbox.telemetry.messaging import handling as handling

if not TYPE_CHECKING:  # to a type checker a name that is not imported above is an error
    __getattr__, __dir__ = lazy_imports(
        __name__,
        {
            "cosmos_outbox.composition.operator": ("wire_operator",),
            "cosmos_outbox.composition.relay": ("wire_relay",),
            "cosmos_outbox.composition.subscriptions": ("Subscriptions",),
            "cosmos_outbox.composition.transports": ("Clients",),
            "cosmos_outbox.composition.writer": ("wire_outbox",),
            "cosmos_outbox.cosmos.existing.documents": ("Numbering",),
            "cosmos_outbox.cosmos.inbox.documents": ("SourceDocuments",),
            "cosmos_outbox.cosmos.inbox.reaction_decision": ("InOrder",),
            "cosmos_outbox.cosmos.inbox.store": ("CosmosNames", "CosmosStore"),
            "cosmos_outbox.cosmos.store.partition_key": ("PARTITION_KEY", "PartitionKeyPaths"),
            "cosmos_outbox.inbox.ports": ("NoSource",),
            "cosmos_outbox.inbox.receiver": ("WAIT_SECONDS",),
            "cosmos_outbox.operations.health": ("HEALTH_SECONDS", "RecentCheck"),
            "cosmos_outbox.operations.stuck": ("StuckList",),
            "cosmos_outbox.servicebus.delivery": ("delivery_of",),
            "cosmos_outbox.storagequeue.message": ("arrived",),
            "cosmos_outbox.telemetry.export": ("export",),
            "cosmos_outbox.telemetry.messaging": ("STORAGEQUEUE", "handling"),
        },
    )
