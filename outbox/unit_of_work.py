"""The port of the write half: aggregates and their events are stored together or not at all.

Adapters live elsewhere; one contract suite runs over all of them, an in-memory one included.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from types import TracebackType
from typing import Any, Generic, Protocol, Self, TypeVar

from outbox.aggregate import Aggregate

A = TypeVar("A", bound=Aggregate[Any])

ETag = str
"""An opaque, quoted version of a stored aggregate, as HTTP's ``ETag`` has it."""

Clock = Callable[[], datetime]
"""Tells the time in UTC."""


def utc_now() -> datetime:
    """The one clock of a deployed service."""
    return datetime.now(UTC)


@dataclass(frozen=True)
class Origin:
    """What caused a change, so that an event can be traced back to its request."""

    correlation_id: str
    traceparent: str | None = None


@dataclass(frozen=True)
class Versioned(Generic[A]):
    """A stored aggregate and the version that it was read at."""

    aggregate: A
    etag: ETag


@dataclass(frozen=True)
class Receipt(Generic[A]):
    """What a committed aggregate became. ``etag`` is None when others have changed the aggregate since."""

    aggregate: A
    etag: ETag | None
    events: int = 0
    """How many events its changes raised; 0: nothing was to be stored."""


@dataclass(frozen=True)
class Commit:
    """What one transaction stored: a receipt for each aggregate of the unit of work."""

    receipts: Sequence[Receipt[Any]]

    def receipt(self, aggregate: A) -> Receipt[A]:
        """The receipt of one aggregate. Raises KeyError when it was not part of the unit of work."""
        for receipt in self.receipts:
            if receipt.aggregate.key == aggregate.key:
                return receipt
        raise KeyError(f"{aggregate.key} was not part of this unit of work: add or get it before the commit")


@dataclass(frozen=True)
class Page(Generic[A]):
    """Some aggregates, and where the next ones start (None: there are no more)."""

    items: Sequence[A]
    continuation_token: str | None


@dataclass(frozen=True)
class RequestRecord(Generic[A]):
    """A request that created an aggregate, kept so that its repetition gets the same answer."""

    key_digest: str
    """A digest of the caller's idempotency key."""
    fingerprint: str
    """A digest of what the caller asked for."""
    aggregate: A
    """The aggregate as the first answer had it."""


class RequestRecords(Protocol):
    """The requests answered before, each beside the aggregate that it created."""

    def add(self, record: RequestRecord[Any]) -> None:
        """Store the record in the transaction of the commit."""

    async def get(self, aggregate: A, key_digest: str) -> RequestRecord[A] | None:
        """The record of a request that created an aggregate of this id, unless there is none or it has expired.

        Raises:
            Throttled, Unavailable: the store could not answer.
        """


class UnitOfWork(Protocol):
    """Stores what changed in its aggregates, with the events that the changes raise, together or not at all.

    Its aggregates share one partition key: a transaction does not reach further. One object serves one request.
    Whatever happens in its context, the unit of work tracks nothing afterwards.
    """

    @property
    def requests(self) -> RequestRecords:
        """The records of requests."""

    def add(self, aggregate: Aggregate[Any]) -> None:
        """Track a new aggregate."""

    async def get(
        self, kind: type[A], aggregate_id: str, *, partition_key: str | None = None, newest: bool = False
    ) -> Versioned[A]:
        """An aggregate and its version; tracked. Without ``partition_key`` the id is the partition key.

        A read may be old: it shows that the aggregate was there at some time, at some version. With ``newest`` the
        answer is as new as the last write that was committed before the call, and "there is none" is proven; that costs
        a second round trip.

        Raises:
            AggregateNotFound: there is none, or it was deleted.
            Throttled, Unavailable: the store could not answer.
        """

    async def page(self, kind: type[A], size: int, continuation_token: str | None) -> Page[A]:
        """At most ``size`` aggregates that are not deleted, in no promised order; not tracked.

        Raises:
            UnknownContinuation: the token was not made by this service for this list.
            Throttled, Unavailable: the store could not answer.
        """

    async def commit(self) -> Commit:
        """Store every tracked change and its events in one transaction.

        Raises:
            PreconditionFailed: an aggregate was changed or deleted by another since it was read; nothing is stored.
            ChangeTooLarge: the changes do not fit one transaction; nothing is stored.
            Unpublishable: an event holds what JSON's readers do not agree on; nothing is stored.
            Throttled: nothing is stored.
            Unavailable: nothing is stored; its kind OutcomeUnknown: that could not be found out.
            ValueError: nothing is tracked, or aggregates of two partitions are changed: a bug of the caller.
        """

    async def __aenter__(self) -> Self: ...

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


class UnitOfWorkFactory(Protocol):
    """Opens a unit of work; the events that it stores carry ``origin``."""

    def __call__(self, origin: Origin) -> UnitOfWork: ...
