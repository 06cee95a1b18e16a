"""What an operator does with parked events: look, replay in order, discard. Dying anywhere in it is safe.

A contact is released only when nothing of it is parked, and only if nothing was parked since that was seen: an event
that the relay parks in the meantime changes the contact's version, and is replayed too. An event is forgotten after the
broker has accepted it; dying in between sends it again, under the same id.
"""

import contextlib
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from application.delivery import deliver
from application.ports import EventPublisher, FeedEvent, ParkedContact, ParkedEvent, ParkedPage, ParkingLot
from domain.errors import NotParked, PreconditionFailed, StillUnsendable

REPLAY_SECONDS = 20.0
"""How long one replay goes on before it answers how much is left: HTTP callers do not wait for ever."""

_CHUNK = 50

_log = logging.getLogger("contacts.parking")


@dataclass(frozen=True)
class Replayed:
    """How far a replay got. ``done``: nothing of the contact is parked any more, and its new events flow."""

    replayed: int
    done: bool


@dataclass(frozen=True)
class Parking:
    """The parked events, for operators."""

    lot: ParkingLot
    publisher: EventPublisher
    clock: Callable[[], float] = time.monotonic

    async def page(self, size: int, continuation_token: str | None) -> ParkedPage:
        """Some parked events, oldest first, and where the next ones start."""
        return await self.lot.page(size, continuation_token)

    async def show(self, parking_id: str) -> ParkedEvent:
        """One parked event with its document. Raises NotParked."""
        parked = await self.lot.get(parking_id)
        if parked is None:
            raise NotParked(f"no event is parked under {parking_id}: the list of parked events has the ids")
        return parked

    async def replay(self, contact_id: str) -> Replayed:
        """Send a contact's parked events in order; new ones queue up behind them until all are sent.

        Raises:
            NotParked: the contact is not parked.
            StillUnsendable: an event cannot be sent; discard it, or mend what refuses it, and replay again.
            NotDelivered: the broker is away.
        """
        contact = await self.lot.contact(contact_id)
        if contact is None:
            raise NotParked(f"contact {contact_id} is not parked")
        replayed, until = 0, self.clock() + REPLAY_SECONDS
        while self.clock() < until:
            waiting = await self.lot.waiting(contact_id, _CHUNK)
            if waiting:
                replayed += await self._send(contact, waiting)
            elif await self.lot.release(contact):
                _log.info("replayed contact %s: %d event(s), it is parked no longer", contact_id, replayed)
                return Replayed(replayed, done=True)
            # The relay may have parked more, or another operator be faster: go by the newest state.
            contact = await self.lot.contact(contact_id)
            if contact is None:
                return Replayed(replayed, done=True)
        return Replayed(replayed, done=False)

    async def discard(self, parking_id: str, reason: str) -> None:
        """Give an event up for good. The contact goes on when nothing else of it is parked; else replay it.

        Raises:
            NotParked: no such event is parked.
        """
        parked = await self.show(parking_id)
        await self.lot.discard(parked, reason)
        _log.warning("discarded event %s of contact %s", parked.event_id, parked.contact_id)
        if parked.contact_id is None:
            return
        contact = await self.lot.contact(parked.contact_id)
        if contact is not None and not await self.lot.waiting(parked.contact_id, 1):
            await self.lot.release(contact)

    async def _send(self, contact: ParkedContact, waiting: Sequence[tuple[ParkedEvent, FeedEvent]]) -> int:
        delivery = await deliver(self.publisher, contact.contact_id, [event for _, event in waiting])
        await self.lot.remove([parked for parked, _ in waiting[: delivery.sent]])
        if delivery.block is None:
            return delivery.sent
        parked, event = waiting[delivery.sent]
        reason = delivery.block.reason
        with contextlib.suppress(
            PreconditionFailed
        ):  # the relay has parked more: what it says of the block is older
            await self.lot.move_block(
                replace(contact, blocked_by=parked.event_id, reason=reason, position=event.position)
            )
        raise StillUnsendable(
            f"event {parked.event_id} (parked as {parked.id}) cannot be sent: {reason}. "
            f"{delivery.sent} event(s) before it were sent. Discard it, or mend what refuses it, and replay again"
        )
