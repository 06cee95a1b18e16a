"""Each contact's events leave in the order of its changes, and the feed moves on only after the broker has them.

The change feed gives no order inside one transaction and delivers at least once. So events are sorted by their
``sequence`` within each contact, and a batch of the feed counts as done only when :meth:`Relay.forward` returns: any
failure that may pass is raised, the host brings the same batch again, and the broker drops what it already has.

An event that can never be sent is parked, durably, with all that come after it in its contact, before the batch
counts as done; other contacts go on. Dying anywhere in between brings the batch again: what was sent is dropped as a
duplicate, what was parked is there.
"""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from application.delivery import deliver
from application.once import OnceAMinute
from application.ports import (
    EventPublisher,
    FeedEvent,
    OutboxEvent,
    ParkedContact,
    ParkingLot,
    Poison,
)
from application.ttl_guard import TtlGuard
from domain.errors import NotDelivered, PreconditionFailed, Throttled, Unavailable

SESSIONS_AT_ONCE = 6
"""How many contacts' events are sent at the same time. Each takes a connection; Microsoft's emulator allows 10."""

_ATTEMPTS_TO_PARK = 5

_log = logging.getLogger("contacts.relay")


@dataclass(frozen=True)
class Forwarded:
    """What became of one batch of the feed, in numbers of events."""

    sent: int = 0
    parked: int = 0

    def __add__(self, other: "Forwarded") -> "Forwarded":
        return Forwarded(self.sent + other.sent, self.parked + other.parked)


@dataclass(frozen=True)
class Relay:
    """Forwards event documents to the broker."""

    publisher: EventPublisher
    parking: ParkingLot
    guard: TtlGuard = field(default_factory=TtlGuard)
    saying: OnceAMinute = field(default_factory=OnceAMinute)

    async def forward(self, events: Sequence[FeedEvent]) -> Forwarded:
        """Send or park every event, one contact's in order, several contacts at once.

        Raises:
            NotDelivered: some contact's events are neither sent nor parked; those of the others are.
            Misconfigured: the container for parked events is not there.
        """
        if not events:
            return Forwarded()
        self.guard.watch(events)
        try:
            forwarded = await self._forward(events)
        except NotDelivered as reason:
            if self.saying.due():
                _log.error(
                    "%d event(s) wait, and will be tried again until they are accepted: %s",
                    len(events),
                    reason,
                )
            raise
        self.saying.reset()
        return forwarded

    async def _forward(self, events: Sequence[FeedEvent]) -> Forwarded:
        try:
            parked = await self.parking.contacts()
        except (Throttled, Unavailable) as error:
            raise NotDelivered(f"what is parked cannot be read: {error}") from error
        places = asyncio.Semaphore(SESSIONS_AT_ONCE)

        async def one(contact_id: str | None, group: Sequence[FeedEvent]) -> Forwarded:
            async with places:
                return await self._forward_group(contact_id, group, parked)

        groups = by_contact(events)
        return _sum(await asyncio.gather(*(one(*group) for group in groups.items()), return_exceptions=True))

    async def _forward_group(
        self, contact_id: str | None, events: Sequence[FeedEvent], parked: Mapping[str, ParkedContact]
    ) -> Forwarded:
        try:
            if contact_id is None:
                return await self._park_alone(events)
            return await self._forward_contact(contact_id, events, parked.get(contact_id))
        except (Throttled, Unavailable) as error:
            raise NotDelivered(f"an event that cannot be sent could not be parked: {error}") from error

    async def _park_alone(self, events: Sequence[FeedEvent]) -> Forwarded:
        for event in events:
            if isinstance(event, Poison):
                await self.parking.park_alone(event)
                _log.error("parked document %s, which belongs to no contact: %s", event.id, event.reason)
        return Forwarded(parked=len(events))

    async def _forward_contact(
        self, contact_id: str, events: Sequence[FeedEvent], parked: ParkedContact | None
    ) -> Forwarded:
        for _ in range(_ATTEMPTS_TO_PARK):
            if parked is None:
                sent, parked = await self._send(contact_id, events)
                behind = events[sent:]
            else:  # whatever was before the event in the way had been delivered when the contact was parked
                block = parked.position
                sent, behind = 0, [event for event in events if event.position >= block]
            if parked is None or not behind:
                return Forwarded(sent=sent)
            try:
                await self.parking.park(parked, behind)
            except PreconditionFailed:  # an operator replayed it, or another instance parked it: look again
                parked = await self.parking.contact(contact_id)
                continue
            _log.log(
                logging.INFO if parked.version else logging.ERROR,
                "parked %d event(s) of contact %s behind event %s: %s",
                len(behind),
                contact_id,
                parked.blocked_by,
                parked.reason,
            )
            return Forwarded(sent=sent, parked=len(behind))
        raise NotDelivered(f"contact {contact_id} is being parked and replayed by others all the time")

    async def _send(self, contact_id: str, events: Sequence[FeedEvent]) -> tuple[int, ParkedContact | None]:
        """Send what can be sent: how many events that was, and, where it ended early, the contact to be parked."""
        delivery = await deliver(self.publisher, contact_id, events)
        for event in events[: delivery.sent]:
            if isinstance(event, OutboxEvent):
                _log.info(
                    "forwarded %s %s of contact %s, sequence %d",
                    event.action,
                    event.id,
                    contact_id,
                    event.sequence,
                )
        if delivery.block is None:
            return delivery.sent, None
        event = delivery.block.event
        return delivery.sent, ParkedContact(
            contact_id, event.id, delivery.block.reason, event.position, version=""
        )


def by_contact(events: Iterable[FeedEvent]) -> dict[str | None, list[FeedEvent]]:
    """Each contact's events in the order of its changes; under None what belongs to no contact."""
    groups: defaultdict[str | None, list[FeedEvent]] = defaultdict(list)
    for event in events:
        groups[event.contact_id].append(event)
    return {contact_id: in_order(group) for contact_id, group in groups.items()}


def in_order(events: Iterable[FeedEvent]) -> list[FeedEvent]:
    """One contact's events by sequence; what has none, by the place in the feed that it was written at."""
    valid: list[FeedEvent] = []
    poison: list[Poison] = []
    for event in events:
        poison.append(event) if isinstance(event, Poison) else valid.append(event)
    valid.sort(key=lambda event: event.position[1])
    for one in sorted(poison, key=lambda event: event.lsn):
        place = next((place for place, event in enumerate(valid) if event.lsn >= one.lsn), len(valid))
        valid.insert(place, one)
    return valid


def _sum(results: Sequence[Forwarded | BaseException]) -> Forwarded:
    """All results together. Raises when one of them is a failure: a bug before one that passes."""
    total, waiting = Forwarded(), []
    for result in results:
        if isinstance(result, NotDelivered):
            waiting.append(result)
        elif isinstance(result, BaseException):
            raise result
        else:
            total += result
    if waiting:
        raise NotDelivered(f"the events of {len(waiting)} of {len(results)} contacts wait: {waiting[0]}")
    return total
