"""Each destination has a relay with nothing in common with another's but the feed: place, parked events, failures."""

from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace

from cosmos_outbox.cosmos.aggregates.documents import EventReader
from cosmos_outbox.cosmos.relay.history import CosmosEventHistory
from cosmos_outbox.cosmos.relay.originals import CosmosOriginals
from cosmos_outbox.cosmos.relay.parked_documents import ParkedDocuments, partition_of
from cosmos_outbox.cosmos.relay.parking_lot import CosmosParkingLot
from cosmos_outbox.cosmos.store.client import ContainerProxy
from cosmos_outbox.cosmos.store.container import Container
from cosmos_outbox.cosmos.upkeep.relay_failures import RelayFailures
from cosmos_outbox.operations.dependencies import Dependency
from cosmos_outbox.operations.forwarding import Forwarding
from cosmos_outbox.operations.instance import Instance
from cosmos_outbox.operations.relay_status import RelayObserver
from cosmos_outbox.outbox.destination import Destination
from cosmos_outbox.outbox.parking import Parking
from cosmos_outbox.outbox.relay import Relay
from cosmos_outbox.outbox.republish import ChosenHistory, EventHistory
from cosmos_outbox.settings.environment import FeedSettings, Settings
from cosmos_outbox.wiring.clients import Clients
from cosmos_outbox.wiring.late_publisher import LatePublisher
from cosmos_outbox.wiring.transports import check as check_transport
from cosmos_outbox.wiring.transports import kind_of


@dataclass(frozen=True)
class Relaying:
    """What forwards the events of a service to one destination, and what watches and mends that."""

    of: Destination
    relay: Relay
    forwarding: Forwarding
    """What a reader of the feed gives its pages to."""
    parking: Parking
    observer: RelayObserver
    reading: FeedSettings
    history: Callable[[str], EventHistory]
    """The events for it that are still stored, read behind a session token of all physical partitions."""
    dependency: Dependency
    """What it sends to."""


@dataclass(frozen=True)
class RelayGround:
    """What the relays of one service stand on."""

    settings: Settings
    source: str
    clients: Clients
    resources: AsyncExitStack
    feed: ContainerProxy
    leases: ContainerProxy
    container: Container
    """The same as ``feed``."""
    parked: Container
    scope: str
    events: EventReader
    instance: Instance

    def towards(self, of: Destination) -> Relaying:
        """The relay to one destination. Opens no connection."""
        settings = self.settings
        if of.name:
            settings = replace(settings, transport=settings.destinations[of.name])
        reading = settings.feed.towards(of.name)
        publisher = LatePublisher(lambda: self.clients.publisher(settings, self.source, self.resources))
        originals = CosmosOriginals(self.container, self.events)
        partition = partition_of(of.name)
        ttl, send_seconds = settings.event_ttl_seconds, settings.relay_send_seconds
        documents = ParkedDocuments(self.events, partition)
        lot = CosmosParkingLot(self.parked, f"{self.scope}/{partition}", documents, ttl_seconds=ttl)
        failures = RelayFailures(
            self.leases,
            f"{reading.lease_prefix}failures.{settings.cosmos_database}.{settings.cosmos_container}",
            ttl,
            destination=of.name,
        )
        relay = Relay(publisher, lot, originals, send_seconds)

        async def look() -> float | None:
            return await check_transport(settings.transport)

        return Relaying(
            of,
            relay,
            Forwarding(relay, self.events, self.instance, failures, of),
            Parking(lot, publisher, originals, send_seconds, settings.parked_max_age_seconds),
            RelayObserver(
                self.feed, self.leases, lot, reading.lease_prefix, ttl, failures, destination=of.name
            ),
            reading,
            lambda token: ChosenHistory(CosmosEventHistory(self.container, self.events, token), of),
            Dependency(_named(of, kind_of(settings.transport).service), look),
        )


def _named(of: Destination, service: str) -> str:
    return f"{of.name} ({service})" if of.name else service
