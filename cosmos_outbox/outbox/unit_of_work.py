"""The port of the write half: stores aggregates and their events together or not at all.

Adapters are in other packages; one contract suite runs over every adapter, including the in-memory one.

:class:`OnCommit` notifies a relay in the same process, which then need not wait for its next poll. It is only a hint:
a commit of another process does not notify it, and the poll finds that.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Generic, Protocol, Self, TypeVar

from cosmos_outbox.outbox.aggregate import Aggregate
from cosmos_outbox.outbox.selection import ALL, Selection

PartitionKey = str | float | bool | Sequence[str | float | bool]
"""The partition key of a stored document; a hierarchical key has several values."""

Listener = Callable[[PartitionKey], None]


@dataclass(frozen=True)
class OnCommit:
    """Notifies listeners after each commit that may have stored events; every store calls it."""

    _listeners: list[Listener] = field(default_factory=list)

    def __call__(self, partition_key: PartitionKey) -> None:
        """Notifies that a commit was stored, or may have been if its answer was lost. Listeners never wait or raise."""
        for listener in self._listeners:
            listener(partition_key)

    @contextmanager
    def listening(self, listener: Listener) -> Iterator[None]:
        """Calls ``listener`` after each commit, until the block ends."""
        self._listeners.append(listener)
        try:
            yield
        finally:
            self._listeners.remove(listener)


A = TypeVar("A", bound=Aggregate[Any])

ETag = str
"""An opaque, quoted version of a stored aggregate, as in HTTP's ``ETag``."""


@dataclass(frozen=True)
class Origin:
    """The cause of a change, by which an event can be traced back to its request."""

    correlation_id: str
    """An id in every event of the change and in its message, such as that of the request; not personal data."""
    traceparent: str | None = None
    """The W3C trace context of the request; None: it has none."""
    tracestate: str | None = None
    """The vendors' part of the trace context, at most 512 characters; never without ``traceparent``."""
    causation_id: str | None = None
    """The id of the event to which a reaction reacts; None: no event caused the change."""
    caused_by: str | None = None
    """The signed-in user, as a text that reveals nothing else, such as a digest; None: unknown."""


@dataclass(frozen=True)
class Versioned(Generic[A]):
    """A stored aggregate and the version that it was read at."""

    aggregate: A
    etag: ETag
    """The opaque, quoted version, as in HTTP's ``ETag``."""


@dataclass(frozen=True)
class Receipt(Generic[A]):
    """An aggregate that was stored."""

    aggregate: A
    etag: ETag | None
    """Its new version; None: another writer has changed the aggregate since."""
    events: int = 0
    """The number of events that the changes raised; 0: there was nothing to store."""


@dataclass(frozen=True)
class Commit:
    """The result of one transaction: a receipt for each aggregate of the unit of work."""

    receipts: Sequence[Receipt[Any]]

    def receipt(self, aggregate: A) -> Receipt[A]:
        """Returns the receipt of one aggregate. Raises KeyError if it was not part of the unit of work."""
        for receipt in self.receipts:
            if receipt.aggregate.key == aggregate.key:
                return receipt
        raise KeyError(f"{aggregate.key} was not part of this unit of work: add or get it before the commit")


@dataclass(frozen=True)
class Page(Generic[A]):
    """A page of aggregates."""

    items: Sequence[A]
    continuation_token: str | None
    """The token of the next page of the same list; None: this page is the last."""
    etags: Sequence[ETag] = ()
    """The version of each item, in their order."""


@dataclass(frozen=True)
class KeyRecord(Generic[A]):
    """The outcome of a request with a key, kept so that its repetition gets the same answer.

    Its existence proves that the request has an outcome (``created_only``).
    """

    name: str
    """The record's name, unique in the partition."""
    fingerprint: str
    """A digest of the caller's request."""
    sequence: int = 0
    """The aggregate's last sequence after the request; the commit sets it for a created aggregate."""
    refused: int | None = None
    """The status with which the aggregate refused the request; None: it succeeded."""
    made: A | None = None
    """The aggregate, if the request created it: the first answer. Nothing else in a record is personal data."""
    erased: bool = False
    """Whether the aggregate was deleted, and with it the first answer."""
    lifetime_seconds: int | None = None
    """The lifetime of the stored record; None: that of the setting."""


class KeyRecords(Protocol):
    """Stores the records of requests with a key, each in the partition of the request's aggregate.

    A commit that stores an aggregate as deleted erases the record of the request that created it, or stores an erased
    one in its place, without a read, which could be stale.
    """

    def add(self, record: KeyRecord[Any]) -> None:
        """Stores the record in the transaction of the commit, as its first operation, and only if there is none
        (``one_batch``, ``record_first``)."""

    async def find(self, kind: type[A], name: str, partition_key: str) -> KeyRecord[A] | None:
        """Returns the record, with a consistent read: None is proof. Raises Throttled, Unavailable."""

    async def create(self, record: KeyRecord[Any], partition_key: str, until: float) -> None:
        """Stores only the record. ``until``: a time of the monotonic clock; no attempt is made that could end later.

        Raises:
            PreconditionFailed: it exists already, perhaps by an earlier attempt.
            Throttled, Unavailable: the store did not answer; nothing is stored.
            OutcomeUnknown: the store's answer was lost.
        """


class UnitOfWork(Protocol):
    """Stores the changes of its aggregates, with the events that they raise, together or not at all.

    All aggregates of a unit of work share one partition key, the scope of a transaction. One object serves one request.
    After its context, however that ended, the unit of work tracks nothing.
    """

    @property
    def records(self) -> KeyRecords:
        """The records of requests with a key."""

    def add(self, aggregate: Aggregate[Any]) -> None:
        """Tracks a new aggregate."""

    async def get(
        self, kind: type[A], aggregate_id: str, *, partition_key: str | None = None, newest: bool = False
    ) -> Versioned[A]:
        """Reads and tracks an aggregate. Without ``partition_key`` the id is the partition key.

        A read may be stale: it proves only that the aggregate existed at some time, at some version. With ``newest``
        the read is consistent: it includes every write that was committed before the call, and proves absence, at the
        cost of a second round trip.

        Raises:
            AggregateNotFound: no aggregate of this type has the id, or the aggregate was deleted.
            Throttled, Unavailable: the store did not answer.
        """

    async def page(
        self, kind: type[A], size: int, continuation_token: str | None, selection: Selection = ALL
    ) -> Page[A]:
        """Returns at most ``size`` aggregates that are not deleted, in the order of the selection; not tracked.

        Raises:
            UnknownContinuation: the token was not issued by this service for this list.
            Throttled, Unavailable: the store did not answer.
        """

    def check(self) -> None:
        """Raises what :meth:`commit` would raise without the store: ChangeTooLarge, Unpublishable, ValueError.

        Nothing is stored, and everything stays tracked.
        """

    async def commit(self, *, until: float | None = None) -> Commit:
        """Stores every tracked change and its events in one transaction.

        ``until``: a time of the monotonic clock. No attempt is made that could end later.

        Raises:
            PreconditionFailed: another writer has changed or deleted an aggregate since it was read; nothing is stored.
            ChangeTooLarge: the changes do not fit one transaction; nothing is stored.
            Unpublishable: an event or a state holds values that JSON parsers read differently; nothing is stored.
            Throttled, Unavailable: the store did not answer; nothing is stored.
            OutcomeUnknown: the store's answer was lost: everything is stored, or nothing.
            ValueError: nothing is tracked, or aggregates of two partitions are changed: a bug of the caller.
        """

    async def __aenter__(self) -> Self: ...

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


class UnitOfWorkFactory(Protocol):
    """Opens a unit of work. The events that the unit of work stores carry ``origin``."""

    def __call__(self, origin: Origin) -> UnitOfWork: ...
