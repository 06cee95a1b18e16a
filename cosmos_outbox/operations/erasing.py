"""A person's data leaves every container of ours, and no subscriber misses an event by it; a crash leaves less to do.

The order is the rule. First the aggregate is deleted, then all its events leave: an event is removed only after the
relay has forwarded it, and a parked one only after it was sent, or discarded with a notice in its
place. Only then is anything emptied. So the sequence that subscribers see has no gap, and the event of the deletion
reaches them. Each step finds by itself what is left to do: the same call again goes on where one was cut off.

Before parked events are looked for, the aggregate's marker notes up to which transaction all was dealt with
(``remember-erased``). A relay that was paused with a page in its hands parks at the version of the marker that it has
read: either it has parked before the note, and that is seen, or it finds the note, and drops the page.
"""

from collections.abc import AsyncGenerator, Awaitable, Callable, Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from cosmos_outbox.cosmos.store import changefeed
from cosmos_outbox.cosmos.store.container import Container
from cosmos_outbox.cosmos.store.partition_key import PARTITION_KEY
from cosmos_outbox.cosmos.upkeep.erasure import ParkedEraser, PartitionEraser
from cosmos_outbox.inbox.errors import InboxError
from cosmos_outbox.kernel.aggregate_key import AggregateKey
from cosmos_outbox.operations.leaving import (
    NOT_EMPTIED,
    REASON,
    WayOut,
    collect_dead_letters,
    note_erased,
    unpark,
    wait_until_forwarded,
)
from cosmos_outbox.outbox.errors import OutboxError
from cosmos_outbox.settings.errors import NotErased, NotForwardedYet

if TYPE_CHECKING:
    from cosmos_outbox.inbox.deliveries import Collected

ERASING_ERRORS = (NotForwardedYet, NotErased, OutboxError, InboxError)
"""What an erasing can end with; it can be run again."""


class Records(Protocol):
    """The records of what was set aside, of all subscriptions."""

    async def erase(self, aggregate_id: str) -> int:
        """As :meth:`cosmos_outbox.cosmos.upkeep.erasure.SetAsideEraser.erase` does."""


@dataclass(frozen=True)
class Eraser:
    """Erases aggregates of one type of one service."""

    way: WayOut
    partition: PartitionEraser
    parked: Container
    """The parking lot."""
    set_aside: Records
    delete: Callable[[AggregateKey], Awaitable[None]]
    """Delete the living aggregate, with its event."""
    collect: "Callable[[], Awaitable[Collected]]"
    """Move dead letters of the subscriptions into records, for some seconds."""
    empty_read_model: Callable[[AggregateKey], Awaitable[bool]]
    """Make each entry a deleted one. Returns whether there was something to empty."""
    kept: Collection[str] = ()
    """The kinds of events that hold nothing personal."""

    async def erase(self, key: AggregateKey, *, patience_seconds: float) -> AsyncGenerator[str]:
        """Erase, telling each step when it is done. ``patience_seconds``: for the relay.

        Raises:
            NotForwardedYet: the relay has not forwarded all events; nothing is erased.
            NotErased: all is erased but documents of kinds that the service did not name, parked events of others, or
            dead letters of which nothing is known.
            OutboxError, InboxError: the store or the broker could not be used, or others changed the same documents.
        """
        yield await self._delete(key)
        left, lsn = await self._wait_until_forwarded(key, patience_seconds)
        yield left
        await note_erased(self.way.parking.lot, key, PARTITION_KEY.name(key.id), lsn)
        yield await self._unpark(key)
        dead_letters, collected = await collect_dead_letters(self.collect)
        records = await self.set_aside.erase(key.id)
        yield f"{dead_letters}, {records} record(s) of messages set aside emptied"
        yield "entries emptied" if await self.empty_read_model(key) else "no entry to empty"
        yield f"{await self.partition.erase(key.id)} document(s) of events, requests and the {key.type} emptied"
        yield f"{await self._parked.erase(key.id)} discarded event(s) emptied"
        if parked := await self._parked.list_left(key.id):
            raise NotErased(
                f"all is erased but parked events in the partition of {key} that name another owner, or that came "
                f"meanwhile: {', '.join(parked)}. Discard each with cosmos-outbox discard parked ID, then run this "
                "command again"
            )
        if foreign := (await self.partition.look(key.id)).foreign:
            raise NotErased(
                f"all is erased but documents of other kinds in the partition of {key} ({', '.join(foreign)}), which "
                "this command does not know: look at them, and delete what holds the person's data"
            )
        if not collected:
            raise NotErased(NOT_EMPTIED)

    @property
    def _parked(self) -> ParkedEraser:
        return ParkedEraser(self.parked)

    async def _delete(self, key: AggregateKey) -> str:
        if not (await self.partition.look(key.id)).living:
            return "deleted before, or not there"
        await self.delete(key)
        return "deleted, with its event"

    async def _wait_until_forwarded(self, key: AggregateKey, patience_seconds: float) -> tuple[str, int]:
        """In words; and the LSN up to which the relay has forwarded, or parked, all of the aggregate."""
        held = await self.partition.look(key.id)
        lsn = changefeed.session_lsn(held.session_token)
        if not held.has_events:
            return "no event is stored", lsn
        return await wait_until_forwarded(self.way, key, key.id, held.session_token, patience_seconds), lsn

    async def _unpark(self, key: AggregateKey) -> str:
        sent, discarded = await unpark(self.way.parking, key)
        for parking_id in await self._parked.alone(key.id):
            await self.way.parking.discard(parking_id, REASON)
            discarded += 1
        return f"{sent} parked event(s) sent, {discarded} discarded"
