"""Builds what a relay needs. Opens nothing."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from cosmos_outbox.composition.transports import Clients, LazyPublisher
from cosmos_outbox.composition.writer import Outbox
from cosmos_outbox.cosmos.aggregates.deadlines import Deadlines, deadlines_of
from cosmos_outbox.cosmos.relay.forwarding import Forwarding, Instance, RelayFailures
from cosmos_outbox.cosmos.relay.originals import CosmosOriginals
from cosmos_outbox.cosmos.relay.parked_documents import ParkedDocuments
from cosmos_outbox.cosmos.relay.parking_lot import CosmosParkingLot
from cosmos_outbox.cosmos.relay.relay import Relay
from cosmos_outbox.kernel.dataclass import dataclass
from cosmos_outbox.outbox.aggregate import Aggregate
from cosmos_outbox.settings.environment import shown

if TYPE_CHECKING:
    from cosmos_outbox.cosmos.store.client import ContainerProxy


@dataclass(frozen=True)
class Relaying:
    """The parts that a relay needs: it forwards the stored events, and parks what cannot be sent."""

    relay: Relay
    forwarding: Forwarding
    """The handler that a reader of the feed gives its pages to; it counts, and stores why pages fail."""
    leases: "ContainerProxy"
    lot: CosmosParkingLot
    deadlines: Deadlines | None
    """The changes that happen by themselves; None: none do, in this service."""


def wire_relay(outbox: Outbox, clients: Clients, kinds: Sequence[type[Aggregate[Any]]]) -> Relaying:
    """Build what a relay needs; ``kinds``: the service's aggregates."""
    settings = outbox.settings
    leases = outbox.proxy(settings.cosmos_lease_container)
    publisher = LazyPublisher(lambda: clients.publisher(settings, outbox.names.source, outbox.resources))
    lot = CosmosParkingLot(
        outbox.container(settings.cosmos_parked_container),
        f"{outbox.scope}/parked",
        ParkedDocuments(outbox.events),
        ttl_seconds=settings.event_ttl_seconds,
    )
    failures = RelayFailures(
        leases,
        f"{settings.feed.lease_prefix}failures.{settings.cosmos_database}.{settings.cosmos_container}",
        settings.event_ttl_seconds,
    )
    originals = CosmosOriginals(outbox.stored, outbox.events)
    relay = Relay(publisher, lot, originals, settings.relay_send_seconds)
    return Relaying(
        relay=relay,
        forwarding=Forwarding(relay, outbox.events, Instance(shown(settings)), failures),
        leases=leases,
        lot=lot,
        deadlines=deadlines_of(kinds, outbox.stored, outbox.aggregates),
    )
