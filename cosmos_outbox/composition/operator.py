"""Builds what an operator needs. Opens nothing."""

from collections.abc import Sequence
from functools import partial

from cosmos_outbox.composition.relay import Relaying
from cosmos_outbox.composition.transports import kind_of
from cosmos_outbox.composition.writer import Outbox
from cosmos_outbox.cosmos.maintenance.event_list import CosmosEventHistory, EventList
from cosmos_outbox.cosmos.relay.parking import Parking
from cosmos_outbox.kernel.dataclass import dataclass
from cosmos_outbox.operations.health import Dependency
from cosmos_outbox.operations.relay_status import RelayObserver


@dataclass(frozen=True)
class Operator:
    """The parts that an operator needs: to see how the relay is, and to act on parked events."""

    outbox: Outbox
    observer: RelayObserver
    parking: Parking
    event_list: EventList
    """The stored and the parked events of one aggregate."""
    dependencies: Sequence[Dependency]
    """The store and the broker."""

    def history(self, token: str) -> CosmosEventHistory:
        """The events that are still stored, read behind a session token of all physical partitions."""
        return CosmosEventHistory(self.outbox.stored, self.outbox.events, token)


def wire_operator(outbox: Outbox, relaying: Relaying) -> Operator:
    """Build what an operator needs."""
    settings, relay, lot = outbox.settings, relaying.relay, relaying.lot
    observer = RelayObserver(
        outbox.feed,
        relaying.leases,
        lot,
        settings.feed.lease_prefix,
        settings.event_ttl_seconds,
        relaying.forwarding.failures,
    )
    parking = Parking(
        lot, relay.publisher, relay.originals, settings.relay_send_seconds, settings.parked_max_age_seconds
    )
    events = EventList(
        outbox.stored,
        outbox.feed,
        lot,
        observer.progress,
        outbox.names.untyped,
        own_documents=outbox.names.own is not None,
    )
    dependencies, kind = [Dependency("Cosmos DB", outbox.stored.check)], kind_of(settings.transport)
    if kind.check is not None:
        dependencies.append(Dependency(kind.service, partial(kind.check, settings.transport)))
    return Operator(outbox, observer, parking, events, dependencies)
