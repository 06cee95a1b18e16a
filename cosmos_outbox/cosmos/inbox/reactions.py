"""Stores a message's record, its cursor, the target and its events in one transaction, the record first.

So a refusal of the first operation means that the message has an outcome, by this call or by another one, and a refusal
of a later one that it had none then (``record_first``). The cursor changes in the same transaction, at its version
(``same_transaction``). The transaction is sent again unchanged while its answer is lost: the store commits it once.
"""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Generic, TypeVar

from cosmos_outbox.cosmos.aggregates.documents import (
    REACTION_CURSOR_TYPE,
    REACTION_TYPE,
    aggregate_from_item,
    request_id,
)
from cosmos_outbox.cosmos.aggregates.unit_of_work import AggregateBatches, Changed, Lifetimes
from cosmos_outbox.cosmos.inbox.entries import store_away
from cosmos_outbox.cosmos.store.container import Container, StoreFailed, Write
from cosmos_outbox.cosmos.store.errors import Failure, Kind
from cosmos_outbox.cosmos.store.partition_key import KEEP_FOR_EVER, Item
from cosmos_outbox.cosmos.transaction import TAKEN, Batch
from cosmos_outbox.inbox.errors import EntryChanged, ReactionRefused, RecordChanged, StoreAway, Unstorable
from cosmos_outbox.inbox.event import Event
from cosmos_outbox.inbox.reaction_decision import (
    Cursor,
    InOrder,
    ReactionOutcome,
    ReactionRecord,
    SeenTarget,
    TargetPlace,
    ToWrite,
)
from cosmos_outbox.kernel.clock import utc_now
from cosmos_outbox.outbox.aggregate import Aggregate
from cosmos_outbox.outbox.errors import ChangeTooLarge, Unavailable, Unpublishable
from cosmos_outbox.outbox.unit_of_work import OnCommit, Origin
from cosmos_outbox.telemetry.tracing import committing

A = TypeVar("A", bound=Aggregate[Any])


@dataclass(frozen=True)
class CosmosReactions(Generic[A]):
    """The targets of one reaction. See :class:`cosmos_outbox.inbox.reaction.Reactions`."""

    container: Container
    kind: type[A]
    name: str
    order: InOrder
    lifetimes: Lifetimes
    """The lifetimes, including that of the records."""
    on_commit: OnCommit
    clock: Callable[[], datetime] = utc_now

    async def find(self, place: TargetPlace) -> ReactionRecord | None:
        """Returns the record with a consistent read. Raises StoreAway."""
        item_id = record_id(place)
        try:
            item = await self.container.read(item_id, place.partition_key, consistent=True)
        except StoreFailed as error:
            raise store_away(error.failure) from error
        if item is None:
            return None
        data = item["data"]
        return ReactionRecord(
            ReactionOutcome(data["outcome"]),
            data["fingerprint"],
            data["sequence"],
            data["reason"],
            str(item["_etag"]),
        )

    async def read(self, place: TargetPlace) -> SeenTarget[A]:
        """Returns the target, and the cursor if the reaction has one. Raises StoreAway, Unstorable."""
        try:
            item = await self.container.read(place.target, place.partition_key)
            cursor = await self._cursor(place)
        except StoreFailed as error:
            raise store_away(error.failure) from error
        if item is None:
            return SeenTarget(cursor=cursor)
        if item.get("type") != self.kind.aggregate_type:
            raise Unstorable(
                f"{place.target} is no {self.kind.aggregate_type}: let the reaction {self.name} name another target"
            )
        found = aggregate_from_item(self.kind, item)
        deleted = found.aggregate.deleted
        return SeenTarget(None if deleted else found.aggregate, found.etag, deleted, cursor)

    async def _cursor(self, place: TargetPlace) -> Cursor:
        item = await self.container.read(_cursor_id(place), place.partition_key) if place.cursor else None
        return Cursor() if item is None else Cursor(item["data"]["last"], str(item["_etag"]))

    async def write(
        self, place: TargetPlace, event: Event, seen: SeenTarget[A], write: ToWrite[A], until: float
    ) -> None:
        """Stores all or nothing. Raises RecordChanged, EntryChanged, ReactionRefused, Unstorable, StoreAway."""
        records = self._records(place, seen, write)
        if write.changed is None:
            await _store(Batch(self.container, place.partition_key, [], records=records), until)
            return
        with committing(_origin(event)) as origin:
            changed = self._changed(place, seen, write.changed)
            try:
                batches = AggregateBatches(self.container, self.lifetimes, self.on_commit)
                batch = batches.of([changed], origin, records)
            except (ChangeTooLarge, Unpublishable) as error:
                raise ReactionRefused(str(error)) from error
            await _store(batch, until)

    def _changed(self, place: TargetPlace, seen: SeenTarget[A], aggregate: A) -> Changed:
        if (aggregate.aggregate_id, aggregate.partition_key) != (place.target, place.partition_key):
            raise Unstorable(
                f"the reaction {self.name} changes {aggregate.key}, which is not the target that it named: name it, "
                "and where its partition key is not its id, as {id: partition key}"
            )
        changes = aggregate.changes()
        assert changes is not None, "without changes it is a no"
        return Changed(aggregate, None if aggregate.is_new else seen.version, changes)

    def _records(self, place: TargetPlace, seen: SeenTarget[A], write: ToWrite[A]) -> list[Write]:
        record = self._record_item(place, write.record)
        made = [Write.create(record) if write.over is None else Write.replace(record, write.over)]
        if write.cursor is not None:
            cursor, version = self._cursor_item(place, seen, write.cursor), seen.cursor.version
            made.append(Write.create(cursor) if version is None else Write.replace(cursor, version))
        return made

    def _record_item(self, place: TargetPlace, record: ReactionRecord) -> Item:
        data = {
            "reaction": self.name,
            "outcome": record.outcome.value,
            "sequence": record.sequence,
            "fingerprint": record.fingerprint,
            "reason": record.reason[:LONGEST_REASON],
            "at": self.clock().isoformat(),
        }
        return _item(record_id(place), place, REACTION_TYPE, data, self.lifetimes.reactions)

    def _cursor_item(self, place: TargetPlace, seen: SeenTarget[A], last: int) -> Item:
        """Returns the cursor's item. It expires when older messages are too old to be applied; for "each in order" it
        expires only with the target."""
        for_ever = self.order is InOrder.EACH and not seen.deleted
        ttl = KEEP_FOR_EVER if for_ever else self.lifetimes.reactions
        return _item(
            _cursor_id(place), place, REACTION_CURSOR_TYPE, {"reaction": self.name, "last": last}, ttl
        )


async def _store(batch: Batch, until: float) -> None:
    """Stores the batch. If the answer does not name the refused operation, both errors lead to a consistent read."""
    try:
        await batch.store(until)
    except Unavailable as error:  # too late, or its outcome is not known
        raise StoreAway(str(error), retry_after_seconds=error.retry_after_seconds) from error
    except StoreFailed as error:
        raise _error(error.failure) from error


LONGEST_REASON = 500
"""The number of characters of a reason that are stored."""


def _item(item_id: str, place: TargetPlace, kind: str, data: Item, ttl: int) -> Item:
    return {"id": item_id, "partitionKey": place.partition_key, "type": kind, "data": data, "ttl": ttl}


def record_id(place: TargetPlace) -> str:
    """Returns the id of the document: an aggregate can have none that begins like it."""
    return request_id(f"reaction-{place.record}")


def _cursor_id(place: TargetPlace) -> str:
    return request_id(f"cursor-{place.cursor}")


def _origin(event: Event) -> Origin:
    given = {name: event.data.get(name) for name in ("correlationId", "traceparent", "tracestate")}
    told = {name: value for name, value in given.items() if isinstance(value, str)}
    return Origin(
        told.get("correlationId", event.id),
        told.get("traceparent"),
        told.get("tracestate"),
        causation_id=event.id,
    )


def _error(failure: Failure) -> Exception:
    if failure.kind in TAKEN and failure.index == 0:
        return RecordChanged("the message has an outcome: its record says which")
    if failure.kind in TAKEN:
        return EntryChanged("another writer changed the target: it is read again")
    match failure.kind:
        case Kind.TOO_LARGE:
            return ReactionRefused("the change is too large for one transaction")
        case Kind.INVALID:
            return Unstorable(f"the store refuses the change as it is ({failure.detail})")
        case _:
            return store_away(failure)
