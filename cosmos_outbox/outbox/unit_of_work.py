"""The port of the write half: aggregates and their events are stored together or not at all.

Adapters are in other packages; one contract suite runs over every adapter, the in-memory one too.

A relay in the process that commits need not wait for its next poll: whoever commits tells it at once.

It is a hint, and nothing rests on it: a commit of another process tells nobody here, and the poll finds it.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Generic, Protocol, Self, TypeVar

from cosmos_outbox.outbox.aggregate import Aggregate
from cosmos_outbox.outbox.selection import ALL, Selection

PartitionKey = str | float | bool | Sequence[str | float | bool]
"""Where something was stored; a hierarchical key has several values."""

Listener = Callable[[PartitionKey], None]


@dataclass(frozen=True)
class OnCommit:
    """Called after each commit that may have stored events, by whatever stores them; tells those who listen."""

    _listeners: list[Listener] = field(default_factory=list)

    def __call__(self, partition_key: PartitionKey) -> None:
        """Something was stored there, or may have been: the answer was lost. A listener neither waits nor raises."""
        for listener in self._listeners:
            listener(partition_key)

    @contextmanager
    def listening(self, listener: Listener) -> Iterator[None]:
        """Call ``listener`` after each commit, until the block ends."""
        self._listeners.append(listener)
        try:
            yield
        finally:
            self._listeners.remove(listener)


A = TypeVar("A", bound=Aggregate[Any])

ETag = str
"""An opaque, quoted version of a stored aggregate, as HTTP's ``ETag`` has it."""


@dataclass(frozen=True)
class Origin:
    """What caused a change, so that an event can be traced back to its request."""

    correlation_id: str
    """Stands in every event of the change, and in its message: an id of the request, say, with nothing personal."""
    traceparent: str | None = None
    """The W3C trace context of the request; None: it has none."""
    tracestate: str | None = None
    """What vendors add to that trace context, at most 512 characters; never without ``traceparent``."""
    causation_id: str | None = None
    """The id of the event that a reaction reacts to; None: no event caused it."""
    caused_by: str | None = None
    """Who has signed in to make the change: a text that tells nobody more, a digest say; None: nobody is known."""


@dataclass(frozen=True)
class Versioned(Generic[A]):
    """A stored aggregate and the version that it was read at."""

    aggregate: A
    etag: ETag
    """Opaque and quoted, as HTTP's ``ETag`` has it."""


@dataclass(frozen=True)
class Receipt(Generic[A]):
    """An aggregate that was stored."""

    aggregate: A
    etag: ETag | None
    """Its new version; None: others have changed the aggregate since."""
    events: int = 0
    """How many events the changes raised; 0: there was nothing to store."""


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
    """A page of aggregates."""

    items: Sequence[A]
    continuation_token: str | None
    """Of the next page, for the same list alone; None: this page is the last."""
    etags: Sequence[ETag] = ()
    """The version of each item, in their order."""


@dataclass(frozen=True)
class RequestRecord(Generic[A]):
    """A request that created an aggregate, kept so that its repetition gets the same answer."""

    name: str
    """Unlike that of any other record in the aggregate's partition."""
    fingerprint: str
    """A digest of the caller's request."""
    aggregate: A | None
    """The aggregate as the first answer had it. None: the aggregate was deleted, and this answer erased."""
    lifetime_seconds: int
    """How long the record is kept after it was stored."""


class RequestRecords(Protocol):
    """The records of earlier requests, each beside the aggregate that the request created.

    A commit that stores an aggregate as deleted erases the record of the aggregate's id, or puts an erased one in its
    place: no read is needed, and none can be too old.
    """

    def add(self, record: RequestRecord[Any]) -> None:
        """Store the record in the transaction of the commit."""

    async def get(self, aggregate: A, name: str, *, newest: bool = False) -> RequestRecord[A] | None:
        """The record of this name beside the aggregate; None when this read sees none, which is no proof.

        With ``newest``, None is proof: that costs a second round trip.

        Raises:
            Throttled, Unavailable: the store could not answer.
        """


@dataclass(frozen=True)
class ChangeRecord:
    """What became of a change with a key, kept so that its repetition gets the same answer. Nothing in it is personal.

    That it is there proves that the request has an outcome (``created_only``).
    """

    name: str
    """A digest of caller, key and aggregate: that of no other request."""
    fingerprint: str
    """A digest of the caller's request."""
    sequence: int
    """The aggregate's last after it."""
    refused: int | None = None
    """The status with which the aggregate refused it; None: it is as the request wants it."""


class ChangeRecords(Protocol):
    """The records of changes with a key, each in the partition of the aggregate that the request names."""

    def add(self, record: ChangeRecord) -> None:
        """Store the record in the transaction of the commit, as its first operation, and only if it is not there
        (``one_batch``, ``record_first``)."""

    async def find(self, name: str, partition_key: str) -> ChangeRecord | None:
        """The record, no older than this call: None is proof, of now. Raises Throttled, Unavailable."""

    async def create(self, record: ChangeRecord, partition_key: str, until: float) -> None:
        """Store the record alone. ``until``: a time of the monotonic clock; no attempt is made that could end later.

        Raises:
            PreconditionFailed: it is there already, by an earlier attempt perhaps.
            Throttled, Unavailable: the store could not answer; nothing is stored.
            OutcomeUnknown: the store's answer was lost.
        """


class UnitOfWork(Protocol):
    """Stores what changed in its aggregates, with the events that the changes raise, together or not at all.

    All aggregates of a unit of work share one partition key: a transaction does not reach further. One object serves
    one request. After its context, however that ended, the unit of work tracks nothing.
    """

    @property
    def requests(self) -> RequestRecords:
        """The records of requests that create."""

    @property
    def changes(self) -> ChangeRecords:
        """The records of requests that change."""

    def add(self, aggregate: Aggregate[Any]) -> None:
        """Track a new aggregate."""

    async def get(
        self, kind: type[A], aggregate_id: str, *, partition_key: str | None = None, newest: bool = False
    ) -> Versioned[A]:
        """Read and track an aggregate. Without ``partition_key`` the id is the partition key.

        A read may be old: it shows that the aggregate was there at some time, at some version. With ``newest`` the
        answer is as new as the last write that was committed before the call, and "there is none" is proven; that costs
        a second round trip.

        Raises:
            AggregateNotFound: no aggregate of this type has the id, or the aggregate was deleted.
            Throttled, Unavailable: the store could not answer.
        """

    async def page(
        self, kind: type[A], size: int, continuation_token: str | None, selection: Selection = ALL
    ) -> Page[A]:
        """At most ``size`` aggregates that are not deleted, in the order of the selection; not tracked.

        Raises:
            UnknownContinuation: the token was not made by this service for this list.
            Throttled, Unavailable: the store could not answer.
        """

    def check(self) -> None:
        """Raise what :meth:`commit` would raise without asking the store: ChangeTooLarge, Unpublishable, ValueError.

        Nothing is stored, and everything stays tracked.
        """

    async def commit(self, *, until: float | None = None) -> Commit:
        """Store every tracked change and its events in one transaction.

        ``until``: a time of the monotonic clock. No attempt is made that could end later.

        Raises:
            PreconditionFailed: an aggregate was changed or deleted by another since it was read; nothing is stored.
            ChangeTooLarge: the changes do not fit one transaction; nothing is stored.
            Unpublishable: an event or a state holds what JSON's readers do not agree on; nothing is stored.
            Throttled, Unavailable: the store could not answer; nothing is stored.
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
