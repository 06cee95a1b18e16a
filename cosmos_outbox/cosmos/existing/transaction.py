"""Stores a team's own documents together with the events of their change, or nothing, and reports which.

Everything is checked before anything is sent. At the end of the block the documents and events are one batch in one
partition; a block that raises stores nothing, and a process that dies has stored all or nothing.
"""

from collections.abc import Mapping, Sequence
from dataclasses import field
from datetime import datetime, timedelta
from types import TracebackType
from typing import Any, Self

from cosmos_outbox.cosmos.existing.documents import (
    Numbering,
    Raised,
    check_id,
    event_data,
    event_document,
    own_document,
    patch_of,
)
from cosmos_outbox.cosmos.store.container import Container, StoreFailed, Write
from cosmos_outbox.cosmos.store.errors import Failure, Kind
from cosmos_outbox.cosmos.store.partition_key import Item, Key, Value
from cosmos_outbox.cosmos.transaction import Batch, OnCommit, refused
from cosmos_outbox.kernel.aggregate_key import AggregateKey
from cosmos_outbox.kernel.clock import Clock, new_id, utc_now
from cosmos_outbox.kernel.dataclass import dataclass
from cosmos_outbox.outbox.aggregate import ETag, Origin
from cosmos_outbox.outbox.errors import AlreadyExists, PreconditionFailed, Unpublishable
from cosmos_outbox.settings.names import ExistingContainer
from cosmos_outbox.telemetry import correlation
from cosmos_outbox.telemetry.tracing import committing, nearest


class Transaction:
    """One transaction in one partition: an async context that stores what it was given when it is left.

    A method raises ValueError for a call that can never be right, and Unpublishable for a document that cannot be
    stored, or an event that nobody could read. Leaving the block raises these too, and

        PreconditionFailed: a document is not at the version that was read, or is gone, or the condition of its patch
            does not hold; nothing is stored.
        AlreadyExists: a document that was to be created is there, or one breaks a unique key; nothing is stored.
        ChangeTooLarge: more than 100 documents and events, or than 2 MB; nothing is stored.
        Unpublishable: a document or an event that the store or the relay could not take; nothing is stored.
        Throttled, Unavailable, Misconfigured: the store could not be used; nothing is stored.
        OutcomeUnknown: the store's answer was lost: everything is stored, or nothing.
    """

    def __init__(self, parts: "Transactions", key: Key, origin: Origin) -> None:
        self._parts = parts
        self._key, self._paths = key, parts.container.paths
        self._origin = origin
        self._writes: dict[str, Write] = {}
        self._raised: list[Raised] = []
        self._etags: Mapping[str, ETag | None] = {}
        self._state = "new"

    async def __aenter__(self) -> Self:
        if self._state != "new":
            raise ValueError("a transaction is used once: ask for another one")
        self._state = "open"
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._state = "over"
        if kind is None and (self._writes or self._raised):
            with committing(self._origin) as origin:
                await self._commit(origin)

    def create(self, document: Mapping[str, Any]) -> None:
        """Store a document that is not there yet."""
        self._add(Write.create(self._own(document)))

    def replace(self, document: Mapping[str, Any], *, if_match: ETag) -> None:
        """Store a document in the place of the version with this ETag: the ``_etag`` that was read with it."""
        self._add(Write.replace(self._own(document), self._version(if_match)))

    def upsert(self, document: Mapping[str, Any]) -> None:
        """Store a document whatever is there: of two writers at once, one is overwritten unseen."""
        self._add(Write.upsert(self._own(document)))

    def patch(
        self,
        item_id: str,
        operations: Sequence[Mapping[str, Any]],
        *,
        if_match: ETag | None = None,
        condition: str | None = None,
    ) -> None:
        """Change parts of a document that is there, by 1 to 10 operations of the store's partial update.

        With ``if_match``, at this version alone; with ``condition``, such as ``from c where c.seats > 0``, if it holds.
        """
        patch = patch_of(
            item_id,
            operations,
            condition,
            key=self._paths,
            sequences=self._parts.numbering.paths,
        )
        self._add(Write.patch(patch, None if if_match is None else self._version(if_match)))

    def delete(self, item_id: str, *, if_match: ETag | None = None) -> None:
        """Remove a document that is there; with ``if_match``, at this version alone."""
        check_id(item_id)
        self._add(Write.delete(item_id, None if if_match is None else self._version(if_match)))

    def event(
        self,
        action: str,
        *,
        of: tuple[str, str],
        data: Mapping[str, Any] | None = None,
        document: str | None = None,
        schema_version: int = 1,
    ) -> str:
        """Raise an event of an aggregate, by its type and id. Returns the event's id.

        Where the type has a sequence, the aggregate's document is in the same transaction, created or replaced; it is
        the one with the aggregate's id, unless ``document`` gives another id.
        """
        self._must_be_open()
        aggregate = AggregateKey(*of)
        self._parts.numbering.check(aggregate)
        event_id = str(new_id())
        self._raised.append(
            Raised(
                event_id,
                aggregate,
                action,
                self._now(),
                event_data(data),
                aggregate.id if document is None else document,
                schema_version,
            )
        )
        return event_id

    def etag(self, item_id: str) -> ETag | None:
        """After the block: the new version of a document. None: it was deleted, or others have changed it since.

        None, too, of a document that was patched by an attempt whose answer was lost: what it is like is not known.

        Raises KeyError: it was not written here, or nothing was stored.
        """
        return self._etags[item_id]

    def _own(self, document: Mapping[str, Any]) -> Item:
        return own_document(document, self._key, self._paths)

    def _version(self, etag: ETag) -> ETag:
        if not etag:
            raise ValueError("if_match must be the _etag that was read with the document")
        return etag

    def _add(self, write: Write) -> None:
        self._must_be_open()
        item_id = write.item["id"]
        if item_id in self._writes:
            raise ValueError(
                f"document {item_id} is written twice in one transaction: write it once, in its final form"
            )
        self._writes[item_id] = write

    def _now(self) -> datetime:
        """Returns a time later than the last one, which orders events without a sequence inside their transaction."""
        before = [event.at for event in self._raised[-1:]]
        return max([self._parts.clock(), *(at + timedelta(microseconds=1) for at in before)])

    def _must_be_open(self) -> None:
        if self._state != "open":
            raise ValueError("the transaction is not open: use it inside its async with block")

    async def _commit(self, origin: Origin) -> None:
        parts = self._parts
        sequences = parts.numbering.number(self._raised, self._writes)
        events = [
            event_document(
                raised, sequence, self._key, origin, paths=self._paths, ttl=parts.event_ttl_seconds
            )
            for raised, sequence in zip(self._raised, sequences, strict=True)
        ]
        documents = [*self._writes.values()]
        batch = Batch(parts.container, self._key, documents, events, on_commit=parts.on_commit)
        try:
            etags = await batch.store()
        except StoreFailed as error:
            place = batch.place_of(error.failure)
            raise _error(error.failure, None if place is None else documents[place]) from error
        self._etags = dict(zip(self._writes, etags, strict=True))


def _error(failure: Failure, document: Write | None) -> Exception:
    which = "a document of the transaction" if document is None else f"document {document.item['id']}"
    match failure.kind:
        case Kind.CONFLICT:
            return AlreadyExists(
                f"{which} is there already, or breaks a unique key of the container: read it, and decide again"
            )
        case Kind.STALE | Kind.MISSING:
            return PreconditionFailed(
                f"{which} was changed or removed by another writer, or the condition of its patch does not hold: "
                "read it again, then repeat the change"
            )
        case Kind.INVALID:
            return Unpublishable(
                f"the store does not take {which} ({failure.detail}): look at its ttl and its partition key, that "
                "the paths of a patch are in the document, and that the container's partition key paths are those "
                "of the ExistingContainer"
            )
        case _:
            return refused(failure)


@dataclass(frozen=True)
class Transactions:
    """Begins transactions in one container of a team's own."""

    container: Container
    declared: ExistingContainer
    event_ttl_seconds: int
    on_commit: OnCommit = field(default_factory=OnCommit)
    clock: Clock = utc_now
    numbering: Numbering = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "numbering", Numbering(self.declared.aggregates))

    def __call__(
        self, partition_key: Value | Sequence[Value], *, origin: Origin | None = None
    ) -> Transaction:
        """A transaction in this partition; of a hierarchical key it takes the list of all its values.

        ``origin``: what caused the change; without it the events carry the correlation id and the trace that this task
        has. Raises ValueError: the container can have no such key.
        """
        return Transaction(self, self.container.paths.key(partition_key), origin or _origin())


def _origin() -> Origin:
    trace = nearest(None)
    cause = correlation.current() or str(new_id())
    return Origin(cause) if trace is None else Origin(cause, trace.parent, trace.state)
