"""Parked events and the contacts that they block change together: all are in one logical partition of one container.

A contact that is parked has a document of its own, its marker. Whoever parks behind it replaces the marker at the
version that was seen, and whoever releases it deletes it at that version, so neither can miss the other. Events keep
their place in the feed in ``position``, by which they are replayed.

The relay looks at the markers before it sends. They are read with the session token of this process's newest write; an
instance that takes a lease over does so seconds after the former owner's last write, when every replica has it.
"""

import hashlib
import json
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from application.ports import (
    Clock,
    FeedEvent,
    OutboxEvent,
    ParkedContact,
    ParkedEvent,
    ParkedPage,
    Poison,
    Position,
    utc_now,
)
from domain.errors import PreconditionFailed
from infra.cosmos import continuation
from infra.cosmos.container import Container, StoreError, Write
from infra.cosmos.errors import Kind
from infra.documents import Item, event_from_item

PARTITION = "parked"
_CONTACT, _EVENT, _DISCARDED = "parkedContact", "parkedEvent", "discardedEvent"
_BATCH, _BATCH_BYTES = 40, 900_000
"""Events in one transaction, and their bytes unless it is a single one."""

_MARKERS = "SELECT * FROM c WHERE c.type = @type"
_EVENTS = "SELECT * FROM c WHERE c.type = @type ORDER BY c.parkedAt"
_OF_CONTACT = "SELECT * FROM c WHERE c.type = @type AND c.contactId = @contact ORDER BY c.position"


class CosmosParkingLot:
    """See :class:`application.ports.ParkingLot`."""

    def __init__(
        self, container: Container, scope: str, *, discarded_ttl_seconds: int, clock: Clock = utc_now
    ) -> None:
        self._container = container
        self._scope = scope
        self._discarded_ttl = discarded_ttl_seconds
        self._clock = clock

    async def contacts(self) -> Mapping[str, ParkedContact]:
        """The contacts that are parked, by id."""
        found = [_contact(item) async for item in self._all(_MARKERS, {"@type": _CONTACT})]
        return {contact.contact_id: contact for contact in found}

    async def contact(self, contact_id: str) -> ParkedContact | None:
        """One contact, if it is parked."""
        item = await self._read(_marker_id(contact_id))
        return None if item is None else _contact(item)

    async def park(self, contact: ParkedContact, events: Sequence[FeedEvent]) -> None:
        """Park events of a contact. Raises PreconditionFailed when it is not at ``contact.version``."""
        marker, version = self._marker_item(contact), contact.version
        for chunk in _chunks([self._event_item(event, contact) for event in events]):
            first = Write.replace(marker, version) if version else Write.create(marker)
            try:
                version, *_ = await self._write(first, *map(Write.upsert, chunk))
            except StoreError as error:
                if error.failure.kind is not Kind.TOO_LARGE:
                    raise error.failure.error() from error
                version, *_ = await self._write(
                    first, *(Write.upsert(_without_document(item)) for item in chunk)
                )

    async def park_alone(self, poison: Poison) -> None:
        """Park a document that belongs to no contact."""
        item = self._event_item(poison, None)
        try:
            await self._write(Write.upsert(item))
        except StoreError as error:
            if error.failure.kind is not Kind.TOO_LARGE:
                raise error.failure.error() from error
            await self._store(Write.upsert(_without_document(item)))

    async def page(self, size: int, continuation_token: str | None) -> ParkedPage:
        """Parked events, oldest first. Raises InvalidRequest for a foreign token."""
        token = continuation.unseal(self._scope, continuation_token) if continuation_token else None
        try:
            items, token = await self._container.page(
                _EVENTS, {"@type": _EVENT}, size, token, partition_key=PARTITION
            )
        except StoreError as error:
            if continuation_token and error.failure.kind is Kind.INVALID:
                raise continuation.unusable() from error
            raise error.failure.error() from error
        return ParkedPage(
            [_event(item) for item in items], continuation.seal(self._scope, token) if token else None
        )

    async def get(self, parking_id: str) -> ParkedEvent | None:
        """One parked event."""
        item = await self._read(parking_id)
        return _event(item) if item is not None and item["type"] == _EVENT else None

    async def waiting(self, contact_id: str, limit: int) -> Sequence[tuple[ParkedEvent, FeedEvent]]:
        """A contact's first parked events, in order."""
        found: list[tuple[ParkedEvent, FeedEvent]] = []
        async for item in self._all(_OF_CONTACT, {"@type": _EVENT, "@contact": contact_id}, size=limit):
            parked = _event(item)
            event = event_from_item(parked.document)
            found.append(
                (parked, event or Poison(parked.event_id, contact_id, "its document was too large to keep"))
            )
            if len(found) == limit:
                break
        return found

    async def remove(self, parked: Sequence[ParkedEvent]) -> None:
        """Forget events that have been delivered; another replay may have been faster."""
        if not parked:
            return
        try:
            await self._write(*(Write.delete(event.id) for event in parked))
        except StoreError as error:
            if error.failure.kind is not Kind.MISSING:
                raise error.failure.error() from error
            half = len(parked) // 2  # one of them is gone: the others are found by halving
            await self.remove(parked[:half])
            await self.remove(parked[half:] if half else ())

    async def move_block(self, contact: ParkedContact) -> None:
        """Say which event is in the way now. Raises PreconditionFailed."""
        await self._store(Write.replace(self._marker_item(contact), contact.version))

    async def discard(self, parked: ParkedEvent, reason: str) -> None:
        """Keep the event as discarded until it expires."""
        item = await self._read(parked.id)
        if item is None or item["type"] != _EVENT:
            return  # another operator was faster
        discarded = {name: value for name, value in item.items() if not name.startswith("_")} | {
            "type": _DISCARDED,
            "discardedAt": self._clock().isoformat(),
            "discardReason": reason,
            "ttl": self._discarded_ttl,
        }
        await self._store(Write.replace(discarded, item["_etag"]))

    async def release(self, contact: ParkedContact) -> bool:
        """Delete the marker at the version that was seen."""
        try:
            await self._store(Write.delete(_marker_id(contact.contact_id), contact.version))
        except PreconditionFailed:
            return False
        return True

    async def _all(
        self, query: str, parameters: Mapping[str, Any], *, size: int = 1000
    ) -> AsyncIterator[Item]:
        token: str | None = None
        while True:
            try:
                items, token = await self._container.page(
                    query, parameters, size, token, partition_key=PARTITION
                )
            except StoreError as error:
                raise error.failure.error() from error
            for item in items:
                yield item
            if token is None:
                return

    async def _read(self, item_id: str) -> Item | None:
        try:
            return await self._container.read(item_id, PARTITION)
        except StoreError as error:
            raise error.failure.error() from error

    async def _store(self, *writes: Write) -> list[str]:
        """As :meth:`_write`, but every failure is one of ours."""
        try:
            return await self._write(*writes)
        except StoreError as error:
            raise error.failure.error() from error

    async def _write(self, *writes: Write) -> list[str]:
        """One transaction. Raises PreconditionFailed for what somebody else has changed, StoreError for the rest."""
        try:
            return await self._container.execute(PARTITION, writes)
        except StoreError as error:
            if error.failure.kind in (Kind.CONFLICT, Kind.STALE) or (
                error.failure.kind is Kind.MISSING and writes[0].if_match is not None
            ):
                raise PreconditionFailed("what is parked was changed by somebody else: look again") from error
            raise

    def _marker_item(self, contact: ParkedContact) -> Item:
        return {
            "id": _marker_id(contact.contact_id),
            "partitionKey": PARTITION,
            "type": _CONTACT,
            "contactId": contact.contact_id,
            "blockedBy": contact.blocked_by,
            "reason": contact.reason,
            "position": _position_text(contact.position),
        }

    def _event_item(self, event: FeedEvent, contact: ParkedContact | None) -> Item:
        valid = event if isinstance(event, OutboxEvent) else None
        if isinstance(event, Poison):
            reason = event.reason
        elif contact is None or contact.blocked_by == event.id:
            reason = contact.reason if contact else ""
        else:
            reason = f"waits behind event {contact.blocked_by}"
        return {
            "id": _parking_id(event),
            "partitionKey": PARTITION,
            "type": _EVENT,
            "eventId": event.id,
            "contactId": event.contact_id,
            "action": valid.action if valid else None,
            "sequence": valid.sequence if valid else None,
            "position": _position_text(event.position),
            "reason": reason,
            "parkedAt": self._clock().isoformat(),
            "document": dict(event.document),
        }


def _marker_id(contact_id: str) -> str:
    return f"contact-{contact_id}"


def _parking_id(event: FeedEvent) -> str:
    """An event's id is unique in its partition only, and a broken document may have any."""
    whose = json.dumps([event.document.get("partitionKey"), event.id])
    return hashlib.sha256(whose.encode()).hexdigest()[:32]


def _position_text(position: Position) -> str:
    """Sorts as text as the position does."""
    return "-".join(f"{part:020d}" for part in position)


def _position(text: str) -> Position:
    lsn, _, sequence = text.partition("-")
    return int(lsn), int(sequence)


def _contact(item: Item) -> ParkedContact:
    return ParkedContact(
        item["contactId"], item["blockedBy"], item["reason"], _position(item["position"]), str(item["_etag"])
    )


def _event(item: Item) -> ParkedEvent:
    return ParkedEvent(
        id=item["id"],
        event_id=item["eventId"],
        contact_id=item["contactId"],
        action=item["action"],
        sequence=item["sequence"],
        reason=item["reason"],
        parked_at=datetime.fromisoformat(item["parkedAt"]),
        document=item["document"],
    )


def _chunks(items: Sequence[Item]) -> Iterator[list[Item]]:
    """In order, each small enough for one transaction; a single item may be larger than that."""
    chunk: list[Item] = []
    size = 0
    for item in items:
        weight = len(json.dumps(item))
        if chunk and (len(chunk) == _BATCH or size + weight > _BATCH_BYTES):
            yield chunk
            chunk, size = [], 0
        chunk.append(item)
        size += weight
    if chunk:
        yield chunk


def _without_document(item: Item) -> Item:
    where = {name: item["document"].get(name) for name in ("id", "partitionKey")}
    reason = f"{item['reason']} (its document is too large to be kept here: see the contacts container)"
    return item | {"document": where, "reason": reason}
