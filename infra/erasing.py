"""A person's data leaves every container of ours, and no subscriber misses an event by it; a crash leaves less to do.

The order is the rule. First the aggregate is deleted, then all its events leave for the topic: an event is removed only
after the relay has forwarded it, and a parked one only after it was sent, or discarded with a notice in its place. Only
then is anything emptied. So the sequence that subscribers see has no gap, and the event of the deletion reaches them.
Each step finds by itself what is left to do: the same call again goes on where one was cut off.

Before parked events are looked for, the aggregate's marker notes up to which transaction all was dealt with
(``remember-erased``). A relay that was paused with a page in its hands parks at the version of the marker that it has
read: either it has parked before the note, and that is seen, or it finds the note, and drops the page.
"""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Awaitable, Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import changefeed
from inbox.errors import InboxError
from infra.cosmos.erasure import ParkedEraser, PartitionEraser, SetAsideEraser
from infra.errors import NotErased, NotForwardedYet
from infra.wiring import Outbox
from outbox.aggregate import AggregateKey
from outbox.errors import ConcurrentChange, NotParked, OutboxError, PreconditionFailed, StillUnsendable
from outbox.marker import Marker

if TYPE_CHECKING:
    from infra.servicebus.dead_letters import Collected

REASON = "a person's data is erased"
"""Of the discarding of an event that cannot be sent."""

_LOOK_SECONDS = 1.0
_MOST_PARKED = 1_000
_RACES = 5

ERASING_ERRORS = (NotForwardedYet, NotErased, OutboxError, InboxError)
"""What an erasing can end with; it can be run again."""


@dataclass(frozen=True)
class Eraser:
    """Erases aggregates of one type of one service."""

    outbox: Outbox
    partition: PartitionEraser
    parked: ParkedEraser
    set_aside: SetAsideEraser
    delete: Callable[[AggregateKey], Awaitable[None]]
    """Delete the living aggregate, with its event."""
    collect: "Callable[[], Awaitable[Collected]]"
    """Move dead letters of the subscription into records, for some seconds."""
    empty_read_model: Callable[[AggregateKey], Awaitable[bool]]
    """Make the entry a deleted one. Returns whether there was something to empty."""

    async def erase(self, key: AggregateKey, *, patience_seconds: float) -> AsyncGenerator[str]:
        """Erase, telling each step when it is done. ``patience_seconds``: for the relay.

        Raises:
            NotForwardedYet: the relay has not forwarded all events; nothing is erased.
            NotErased: all is erased but documents of kinds that the service did not name, parked events of others, or
            dead letters of which nothing is known.
            OutboxError, InboxError: the store or the broker could not be used, or others changed the same documents.
        """
        yield await self._deleted(key)
        forwarded, lsn = await self._forwarded(key, patience_seconds)
        yield forwarded
        await self._noted(key, lsn)
        yield await self._unparked(key)
        dead_letters, emptied = await self._collected()
        records = await self.set_aside.erase(key.id)
        yield f"{dead_letters}, {records} record(s) of messages set aside emptied"
        yield "entry emptied" if await self.empty_read_model(key) else "no entry to empty"
        yield f"{await self.partition.erase(key.id)} document(s) of events, requests and the {key.type} emptied"
        yield f"{await self.parked.erase(key.id)} discarded event(s) emptied"
        if parked := await self.parked.left(key.id):
            raise NotErased(
                f"all is erased but parked events in the partition of {key} that name another owner, or that came "
                f"meanwhile: {', '.join(parked)}. Discard each with POST /api/parked/ID/discard, then run this command "
                "again"
            )
        if foreign := (await self.partition.look(key.id)).foreign:
            raise NotErased(
                f"all is erased but documents of other kinds in the partition of {key} ({', '.join(foreign)}), which "
                "this command does not know: look at them, and delete what holds the person's data"
            )
        if not emptied:
            raise NotErased(
                "all is erased but perhaps dead letters: their queue could not be read to its end in time, so what is "
                "in it is not known. Run this command again"
            )

    async def _collected(self) -> tuple[str, bool]:
        """What was collected, in words; and whether that was all."""
        collected = 0
        while True:
            found = await self.collect()
            collected += found.messages
            if found.emptied or not found.messages:
                more = "" if found.emptied else ", and how many are left is not known"
                return f"{collected} dead letter(s) collected{more}", found.emptied

    async def _deleted(self, key: AggregateKey) -> str:
        if not (await self.partition.look(key.id)).living:
            return "deleted before, or not there"
        await self.delete(key)
        return "deleted, with its event"

    async def _forwarded(self, key: AggregateKey, patience_seconds: float) -> tuple[str, int]:
        """In words; and the LSN up to which the relay has forwarded, or parked, all of the aggregate."""
        held = await self.partition.look(key.id)
        lsn = changefeed.session_lsn(held.session_token)
        if not held.has_events:
            return "no event is stored", lsn
        until = asyncio.get_running_loop().time() + patience_seconds
        while not (await self.outbox.observer.progress(key.id)).is_past(held.session_token):
            if asyncio.get_running_loop().time() > until:
                raise NotForwardedYet(
                    f"the relay has not forwarded all events of {key}, and subscribers would miss what is erased now. "
                    "Nothing is erased. See GET /api/relay, and run this command again when the relay has caught up"
                )
            await asyncio.sleep(_LOOK_SECONDS)
        return "the relay has forwarded all events", lsn

    async def _noted(self, key: AggregateKey, lsn: int) -> None:
        lot = self.outbox.observer.lot
        for _ in range(_RACES):
            marker = (await lot.markers([key])).get(key) or Marker(key)
            with contextlib.suppress(PreconditionFailed):
                await lot.store(replace(marker, erased=lsn))
                return
        raise ConcurrentChange(f"others changed the parked events of {key} each time: run this command again")

    async def _unparked(self, key: AggregateKey) -> str:
        """Rule: a parked event is sent or discarded, never just removed."""
        sent, discarded = 0, 0
        for _ in range(_MOST_PARKED):
            try:
                sent += (await self.outbox.parking.replay(key)).replayed
            except NotParked:
                break
            except StillUnsendable:
                for event, _feed in await self.outbox.observer.lot.waiting(key, 1):
                    await self.outbox.parking.discard(event.id, REASON)
                    discarded += 1
        for parking_id in await self.parked.alone(key.id):
            await self.outbox.parking.discard(parking_id, REASON)
            discarded += 1
        return f"{sent} parked event(s) sent, {discarded} discarded"
