"""A service has an archive where the setting ARCHIVE says where: a second reader of its feed, beside the relay."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from cosmos_outbox.cosmos.aggregates.documents import EventReader
from cosmos_outbox.operations.relay_status import RelayObserver
from cosmos_outbox.outbox.archive import Archiver
from cosmos_outbox.outbox.paced import pace
from cosmos_outbox.telemetry import gauges


@dataclass(frozen=True)
class Archiving:
    """What a reader of the feed gives its pages to."""

    archiver: Archiver
    events: EventReader
    observer: RelayObserver
    """Of the archive's own leases."""

    @property
    def lease_prefix(self) -> str:
        """Of the archive's place in the feed."""
        return self.observer.lease_prefix

    async def keep(self, items: Iterable[Mapping[str, Any]]) -> int:
        """Archive the events among the items of a feed. Raises NotDelivered, Unavailable, Misconfigured."""
        return await self.archiver.keep(
            [event async for some in pace(items) for event in self.events.events(some)]
        )

    async def watch(self) -> None:
        """Report how old the oldest event is that is not archived. Raises as :meth:`RelayObserver.status` does."""
        gauges.archive(await self.observer.tend())
