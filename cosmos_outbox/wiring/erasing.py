"""An aggregate leaves all that its service keeps: its own documents, every read model, every subscriber's records.

Nobody lists these places for it: they are those that the service declares, so that a subscriber that is added later is
not forgotten.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cosmos_outbox.cosmos.upkeep.erasure import PartitionEraser, Remains, SetAsideEraser
from cosmos_outbox.inbox.entry import Entry, Stamp
from cosmos_outbox.inbox.errors import Contended, EntryChanged
from cosmos_outbox.inbox.state import ATTEMPTS, StateInbox
from cosmos_outbox.kernel.aggregate_key import AggregateKey
from cosmos_outbox.kernel.clock import new_id, utc_now
from cosmos_outbox.operations.erasing import Eraser
from cosmos_outbox.operations.leaving import WayOut
from cosmos_outbox.outbox.erasable import Erasable
from cosmos_outbox.outbox.errors import AggregateNotFound
from cosmos_outbox.outbox.unit_of_work import Origin
from cosmos_outbox.wiring.service import Wired

if TYPE_CHECKING:
    from cosmos_outbox.inbox.deliveries import Collected


def wire_eraser(wired: Wired, of: Erasable) -> Eraser:
    """The eraser of one type of aggregate. Opens no connection: the first use opens it."""
    outbox, settings = wired.outbox, wired.settings
    remains = Remains(of.aggregate_type, of.data, of.kept)
    places = _Places(wired, of)
    records = outbox.container(settings.cosmos_set_aside_container)
    return Eraser(
        way=WayOut(outbox.observer, outbox.parking),
        partition=PartitionEraser(outbox.container(settings.cosmos_container), remains),
        parked=outbox.container(settings.cosmos_parked_container),
        set_aside=AllSetAside(
            [
                SetAsideEraser(records, each.subscriber.subscription, settings.event_ttl_seconds)
                for each in wired.subscriptions.values()
            ]
        ),
        delete=places.delete,
        collect=places.collect,
        empty_read_model=places.empty,
        kept=of.kept,
    )


@dataclass(frozen=True)
class AllSetAside:
    """The records of all subscriptions of a service."""

    each: list[SetAsideEraser]

    async def erase(self, aggregate_id: str) -> int:
        """As :meth:`SetAsideEraser.erase` does, of each."""
        return sum([await one.erase(aggregate_id) for one in self.each])


@dataclass(frozen=True)
class _Places:
    wired: Wired
    of: Erasable

    async def delete(self, key: AggregateKey) -> None:
        """Delete the aggregate; somebody else may have been faster. Raises as ``Aggregates.change`` does."""
        origin = Origin(correlation_id=f"erase-{new_id()}")
        try:
            await self.wired.aggregates.change(
                self.of.kind, key.id, lambda found: self.of.delete(found, at=utc_now()), origin
            )
        except AggregateNotFound:
            return

    async def collect(self) -> "Collected":
        """Move the dead letters of every subscription into records. Raises StoreAway."""
        from cosmos_outbox.inbox.deliveries import Collected  # noqa: PLC0415 - slow to import

        found = [await each.subscriber.collect() for each in self.wired.subscriptions.values()]
        return Collected(sum(each.messages for each in found), all(each.emptied for each in found))

    async def empty(self, key: AggregateKey) -> bool:
        """Empty the entries of every read model; of effects nothing is kept. Raises StoreAway, Contended."""
        emptied = False
        for each in self.wired.subscriptions.values():
            if each.read_model is not None:
                emptied = await _empty_entry(each.read_model.inbox, key) or emptied
        return emptied


async def _empty_entry(inbox: StateInbox[Any], key: AggregateKey) -> bool:
    """Make the entry a deleted one, whatever its sequence: events that come later find it deleted.

    Without an entry a deleted one is made, from the source, which is deleted: a first event that is in somebody's hands
    would make a living one (``create-first``). Where the source is gone, no event is young enough for that.
    """
    for _ in range(ATTEMPTS):
        read = await inbox.entries.newest(key)
        if read is None:
            await inbox.heal(key)
            return False
        if read.entry.deleted:
            return False
        deleted = Entry[Any](read.entry.last_sequence, None, None, read.entry.healed)
        try:
            await inbox.entries.put(key, deleted, Stamp(inbox.clock(), None), over=read.version)
        except EntryChanged:
            continue
        return True
    raise Contended(f"the entry of {key} changed each time: run the same command again")
