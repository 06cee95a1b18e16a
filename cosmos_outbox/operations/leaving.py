"""No event is removed before it has left, or a notice in its place: so subscribers see no gap."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from cosmos_outbox.cosmos.store.partition_key import Key
from cosmos_outbox.kernel.aggregate_key import AggregateKey
from cosmos_outbox.kernel.clock import monotonic
from cosmos_outbox.operations.relay_status import RelayObserver
from cosmos_outbox.outbox.errors import ConcurrentChange, NotParked, PreconditionFailed, StillUnsendable
from cosmos_outbox.outbox.marker import Marker
from cosmos_outbox.outbox.parking import Parking
from cosmos_outbox.outbox.parking_lot import ParkingLot
from cosmos_outbox.settings.errors import NotForwardedYet

if TYPE_CHECKING:
    from cosmos_outbox.inbox.deliveries import Collected

REASON = "a person's data is erased"
"""Of the discarding of an event that cannot be sent."""

NOT_EMPTIED = (
    "all is erased but perhaps dead letters: their queue could not be read to its end in time, so what is in it is not "
    "known. Run this again"
)

_LOOK_SECONDS = 1.0
_MOST_PARKED = 1_000
_RACES = 5


@dataclass(frozen=True)
class WayOut:
    """How events leave."""

    observer: RelayObserver
    parking: Parking


async def wait_until_forwarded(
    way: WayOut,
    aggregate: AggregateKey,
    partition_key: Key,
    session_token: str,
    patience_seconds: float,
) -> str:
    """Return when all that the token knows of has left, or is parked.

    By the numbers of the transactions (LSN) alone: the store's clock may be turned back. Raises NotForwardedYet.
    """
    until = monotonic() + patience_seconds
    while not (await way.observer.progress(partition_key)).is_past(session_token):
        if monotonic() > until:
            raise NotForwardedYet(
                f"the relay has not forwarded all events of {aggregate}, and subscribers would miss what is erased "
                "now. Nothing is erased. See cosmos-outbox status, and run this again when the relay has caught up"
            )
        await asyncio.sleep(_LOOK_SECONDS)
    return "the relay has forwarded all events"


async def note_erased(lot: ParkingLot, aggregate: AggregateKey, partition: str, lsn: int) -> None:
    """Rule ``remember-erased``: what this partition holds up to this LSN is dealt with, and dropped if it comes again.

    An LSN of another partition tells nothing of it.
    """
    for _ in range(_RACES):
        marker = (await lot.markers([aggregate])).get(aggregate) or Marker(aggregate)
        with contextlib.suppress(PreconditionFailed):
            await lot.store(replace(marker, erased={**marker.erased, partition: lsn}))
            return
    raise ConcurrentChange(f"others changed the parked events of {aggregate} each time: run this again")


async def collect_dead_letters(collect: "Callable[[], Awaitable[Collected]]") -> tuple[str, bool]:
    """Move all dead letters into records: what was moved, in words; and whether that was all."""
    collected = 0
    while True:
        found = await collect()
        collected += found.messages
        if found.emptied or not found.messages:
            more = "" if found.emptied else ", and how many are left is not known"
            return f"{collected} dead letter(s) collected{more}", found.emptied


async def unpark(parking: Parking, aggregate: AggregateKey) -> tuple[int, int]:
    """Rule: a parked event is sent or discarded, never just removed. Returns how many were sent, how many discarded."""
    sent, discarded = 0, 0
    for _ in range(_MOST_PARKED):
        try:
            sent += (await parking.replay(aggregate)).replayed
        except NotParked:
            break
        except StillUnsendable:
            for event, _feed in await parking.lot.waiting(aggregate, 1):
                await parking.discard(event.id, REASON)
                discarded += 1
    return sent, discarded
