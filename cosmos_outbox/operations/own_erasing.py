"""What the outbox holds of one of a team's own aggregates leaves the store, and no subscriber misses an event by it.

The team erases its own documents itself, in a transaction with an event that tells subscribers. Then the events are
removed here, in this order: after the relay has forwarded them, and a parked one after it was sent, or discarded with a
notice in its place. Each step finds by itself what is left: the same call again goes on where one was cut off.

All of an aggregate's events are in one partition: the note of what was dealt with (``remember-erased``) is an LSN of
it. What others raise meanwhile is not removed.
"""

from collections.abc import AsyncGenerator, Collection, Sequence
from dataclasses import dataclass

from cosmos_outbox.cosmos.store import changefeed
from cosmos_outbox.cosmos.store.container import Container
from cosmos_outbox.cosmos.store.partition_key import Value
from cosmos_outbox.cosmos.upkeep.erasure import EventsEraser, ParkedEraser
from cosmos_outbox.kernel.aggregate_key import AggregateKey
from cosmos_outbox.operations.leaving import note_erased, unpark, wait_until_forwarded
from cosmos_outbox.operations.relay_status import RelayObserver
from cosmos_outbox.outbox.parking import Parking
from cosmos_outbox.settings.errors import NotErased

WAIT_SECONDS = 60.0


@dataclass(frozen=True)
class OwnEraser:
    """Erases the events of a team's own aggregates."""

    observer: RelayObserver
    parking: Parking
    container: Container
    parked: Container

    async def erase(
        self,
        of: tuple[str, str],
        partition_key: Value | Sequence[Value],
        *,
        keep: Collection[str] = (),
        patience_seconds: float = WAIT_SECONDS,
    ) -> AsyncGenerator[str]:
        """Erase the events of an aggregate, by its type and id, telling each step when it is done.

        ``keep``: actions whose events hold nothing personal, such as the one that tells of the erasing.
        ``patience_seconds``: for the relay.

        Raises:
            NotForwardedYet: the relay has not forwarded all events; nothing is erased.
            NotErased: all is erased but events that were parked meanwhile.
            OutboxError: the store or the broker could not be used, or others changed the same documents.
            ValueError: the container can have no such key.
        """
        aggregate, key = AggregateKey(*of), self.container.paths.key(partition_key)
        events = EventsEraser(self.container, aggregate, key, keep)
        parked = ParkedEraser(self.parked, self.container.paths, aggregate)
        ids, session_token = await events.look()
        yield await wait_until_forwarded(self.observer, aggregate, key, session_token, patience_seconds)
        await note_erased(self.observer.lot, aggregate, changefeed.session_lsn(session_token))
        sent, discarded = await unpark(self.observer, self.parking, aggregate)
        yield f"{sent} parked event(s) sent, {discarded} discarded"
        yield f"{await events.erase(ids)} event(s) removed"
        yield f"{await parked.erase(key)} discarded event(s) emptied"
        if left := await parked.list_left(key):
            raise NotErased(
                f"all is erased but events of {aggregate} that were parked meanwhile: {', '.join(left)}. Run this again"
            )
