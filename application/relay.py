"""Each contact's events leave in the order of its changes, and the feed moves on only after the broker has them.

The change feed gives no order inside one transaction and delivers at least once. So events are sorted by their
``sequence`` within each contact, and a batch of the feed counts as done only when :meth:`Relay.forward` returns: any
failure that may pass is raised, the host brings the same batch again, and the broker drops what it already has.
"""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from application.ports import EventPublisher, OutboxEvent, Unsendable
from domain.errors import NotDelivered

SESSIONS_AT_ONCE = 6
"""How many contacts' events are sent at the same time. Each takes a connection; Microsoft's emulator allows 10."""

_log = logging.getLogger("contacts.relay")


@dataclass(frozen=True)
class Forwarded:
    """What became of one batch of the feed."""

    sent: int
    unsendable: tuple[Unsendable, ...]


@dataclass(frozen=True)
class Relay:
    """Forwards event documents to the broker."""

    publisher: EventPublisher

    async def forward(self, documents: Iterable[OutboxEvent | Unsendable]) -> Forwarded:
        """Send every event, one contact's in order, several contacts at once.

        Raises:
            NotDelivered: at least one contact's events were not all accepted; those of the others were.
        """
        events, unsendable = _split(documents)
        groups = by_contact(events)
        places = asyncio.Semaphore(SESSIONS_AT_ONCE)

        async def publish(contact_id: str) -> Sequence[Unsendable]:
            async with places:
                return await self._publish(contact_id, groups[contact_id])

        results = await asyncio.gather(*map(publish, groups), return_exceptions=True)
        refused = _refused(results)
        for one in (*unsendable, *refused):
            _log.error(
                "skipped event %s of contact %s, which can never be sent: %s",
                one.event_id,
                one.contact_id,
                one.reason,
            )
        return Forwarded(sent=len(events) - len(refused), unsendable=(*unsendable, *refused))

    async def _publish(self, contact_id: str, events: Sequence[OutboxEvent]) -> Sequence[Unsendable]:
        refused = await self.publisher.publish(contact_id, events)
        refused_ids = {one.event_id for one in refused}
        for event in events:
            if event.id not in refused_ids:
                _log.info(
                    "forwarded %s %s of contact %s, sequence %d",
                    event.action,
                    event.id,
                    contact_id,
                    event.sequence,
                )
        return refused


def _split(documents: Iterable[OutboxEvent | Unsendable]) -> tuple[list[OutboxEvent], list[Unsendable]]:
    events: list[OutboxEvent] = []
    unsendable: list[Unsendable] = []
    for document in documents:
        if isinstance(document, OutboxEvent):
            events.append(document)
        else:
            unsendable.append(document)
    return events, unsendable


def _refused(results: Sequence[Sequence[Unsendable] | BaseException]) -> list[Unsendable]:
    """What the broker refused for good. Raises when anything else went wrong: a bug before a failure that passes."""
    refused: list[Unsendable] = []
    waiting: list[NotDelivered] = []
    for result in results:
        if isinstance(result, NotDelivered):
            waiting.append(result)
        elif isinstance(result, BaseException):
            raise result
        else:
            refused.extend(result)
    if waiting:
        raise NotDelivered(f"the events of {len(waiting)} of {len(results)} contacts wait: {waiting[0]}")
    return refused


def by_contact(events: Iterable[OutboxEvent]) -> dict[str, list[OutboxEvent]]:
    """Each contact's events, sorted by sequence."""
    groups: defaultdict[str, list[OutboxEvent]] = defaultdict(list)
    for event in events:
        groups[event.contact_id].append(event)
    for group in groups.values():
        group.sort(key=lambda event: event.sequence)
    return dict(groups)
