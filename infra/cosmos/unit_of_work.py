"""A contact and its events are stored together or not at all, and whoever asked learns which.

The answer to a batch can get lost after the batch was committed, and the SDK may have repeated the batch on its own.
A batch is therefore repeated as it is, with the same event ids and the same ETag condition: the store can commit it
only once. When it is refused because something is there already, the unit of work looks for its own event document
before it blames another writer. Every await may be the last: whoever dies here has stored all or nothing, and a
client that asks again finds which.
"""

import asyncio
import logging
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from application.ports import ETag, Origin, Receipt, RequestRecord
from domain.errors import ChangeTooLarge, OutcomeUnknown, PreconditionFailed
from infra.cosmos.container import Container, StoreError, Write, size_in_bytes
from infra.cosmos.errors import Failure, Kind
from infra.cosmos.repository import CosmosContactRepository, CosmosRequestRecords, Tracked
from infra.documents import contact_from_item, contact_item, event_item, request_item

MAX_OPERATIONS = 100
MAX_BYTES = 2 * 1024 * 1024
"""Limits of a transactional batch (https://learn.microsoft.com/azure/cosmos-db/nosql/transactional-batch)."""

PATIENCE_SECONDS = 7.0
"""How long a commit whose answer was lost is tried again before its outcome counts as unknown."""

_FIRST_PAUSE_SECONDS = 0.1
_TAKEN = {Kind.CONFLICT, Kind.STALE, Kind.MISSING}
_REFUSED = {Kind.INVALID, Kind.DENIED, Kind.NO_CONTAINER}

_log = logging.getLogger("contacts.store")


@dataclass(frozen=True)
class Lifetimes:
    """How long documents that expire are kept, in seconds from when they were written."""

    events: int
    """Events, and the tombstones of deleted contacts."""
    requests: int
    """Records of requests with an idempotency key."""


@dataclass(frozen=True)
class _Batch:
    """A contact's new state with its events, ready to be stored; the contact comes first."""

    receipt: Receipt
    partition_key: str
    writes: tuple[Write, ...]


class CosmosUnitOfWork:
    """Tracks the contacts of one request and stores what changed. See :class:`application.ports.UnitOfWork`."""

    def __init__(self, container: Container, scope: str, origin: Origin, lifetimes: Lifetimes) -> None:
        self._container = container
        self._origin = origin
        self._lifetimes = lifetimes
        self._tracked: list[Tracked] = []
        self._records: list[RequestRecord] = []
        self.contacts = CosmosContactRepository(container, scope, self._tracked)
        self.requests = CosmosRequestRecords(container, self._records)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._clear()

    async def commit(self) -> Receipt:
        """Store every tracked change and its events in one transaction. See the port for what it raises."""
        try:
            return await self._commit([*self._tracked])
        finally:
            self._clear()

    def _clear(self) -> None:
        self._tracked.clear()
        self._records.clear()

    async def _commit(self, tracked: list[Tracked]) -> Receipt:
        if not tracked:
            raise ValueError("nothing is tracked: add or get a contact first")
        batches = [batch for one in tracked if (batch := self._batch(one))]
        if not batches:
            return Receipt(tracked[-1].contact.state, tracked[-1].etag)
        if len(batches) > 1:
            raise ValueError(
                "two contacts cannot be stored in one transaction: each has a partition of its own"
            )
        [batch] = batches
        _check_limits(batch.writes)
        etag = await self._store(batch)
        return Receipt(batch.receipt.contact, etag, batch.receipt.events)

    def _batch(self, tracked: Tracked) -> _Batch | None:
        changes = tracked.contact.changes()
        if changes is None:
            return None
        ttl = self._lifetimes.events
        item = contact_item(changes.state, tombstone_ttl=ttl)
        contact = Write.create(item) if tracked.etag is None else Write.replace(item, tracked.etag)
        events = [Write.create(event_item(event, self._origin, ttl=ttl)) for event in changes.events]
        records = [
            Write.create(request_item(record, ttl=self._lifetimes.requests)) for record in self._records
        ]
        return _Batch(
            receipt=Receipt(changes.state, tracked.etag, len(events)),
            partition_key=str(changes.state.id),
            writes=(contact, *events, *records),
        )

    async def _store(self, batch: _Batch) -> ETag | None:
        """Store the batch once; the contact's new ETag, or None when it has been changed by others since."""
        pause = _FIRST_PAUSE_SECONDS
        answer_lost = False
        loop = asyncio.get_running_loop()
        give_up_at = loop.time() + PATIENCE_SECONDS
        while True:
            try:
                etags = await self._container.execute(batch.partition_key, batch.writes)
                return etags[0]
            except StoreError as error:
                failure = error.failure
                if failure.kind in _TAKEN:
                    return await self._own_commit(batch)
                if failure.kind in _REFUSED or (failure.kind is Kind.THROTTLED and not answer_lost):
                    raise failure.error() from error
                if failure.kind is Kind.TOO_LARGE:
                    raise _too_large() from error
                answer_lost = answer_lost or failure.kind in (Kind.PASSING, Kind.BEHIND)
                if loop.time() + pause > give_up_at:
                    raise _unknown(failure) from error
            _log.warning("storing contact %s again: %s", batch.partition_key, failure.detail)
            await asyncio.sleep(pause)
            pause *= 2

    async def _own_commit(self, batch: _Batch) -> ETag | None:
        """Find out whether it was our own earlier attempt that stored the batch. Raises PreconditionFailed if not."""
        event = batch.writes[1].item
        try:
            stored = await self._container.read(event["id"], batch.partition_key)
            if stored is None or stored.get("data") != event["data"]:
                raise PreconditionFailed(f"contact {batch.partition_key} has changed: read it again")
            item = await self._container.read(batch.partition_key, batch.partition_key)
        except StoreError as error:
            raise _unknown(error.failure) from error
        if item is None:
            return None
        newest = contact_from_item(item)
        return newest.etag if newest.contact.last_sequence == batch.receipt.contact.last_sequence else None


def _check_limits(writes: tuple[Write, ...]) -> None:
    if len(writes) > MAX_OPERATIONS or size_in_bytes(writes) > MAX_BYTES:
        raise _too_large()


def _too_large() -> ChangeTooLarge:
    return ChangeTooLarge(
        f"the change is over {MAX_OPERATIONS} documents or {MAX_BYTES} bytes, which is what one transaction can hold: "
        "make it in smaller steps"
    )


def _unknown(failure: Failure) -> OutcomeUnknown:
    return OutcomeUnknown(
        f"the store did not answer ({failure.detail}); the change may or may not have been stored: "
        "read the contact, or repeat the request"
    )
