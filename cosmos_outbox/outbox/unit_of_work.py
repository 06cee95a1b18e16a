"""Defines what a unit of work is asked for and what it gives: origin, versions, receipts, records of requests.

:class:`OnCommit` notifies a relay in the same process, which then need not wait for its next poll. It is only a hint:
a commit of another process does not notify it, and the poll finds that.
"""

import hashlib
import json
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from cosmos_outbox.outbox.aggregate import Aggregate
from cosmos_outbox.outbox.errors import PreconditionFailed

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
class Precondition:
    """The versions of an aggregate that a caller allows."""

    if_match: Collection[ETag] = ()
    """The allowed versions; empty: any."""
    refuse: Callable[[Versioned[Any]], bool] | None = None
    """Returns whether one of these is refused nevertheless."""

    def allows(self, found: Versioned[Any]) -> bool:
        """Whether the version is allowed."""
        named = not self.if_match or found.etag in self.if_match
        return named and not (self.refuse and self.refuse(found))

    def check(self, found: Versioned[Any]) -> None:
        """Raises PreconditionFailed for a version that is not allowed."""
        if not self.allows(found):
            raise PreconditionFailed(
                f"{found.aggregate.key} is at another version than the request's conditions allow: read it again and "
                "use its new ETag as it comes, since a weak one matches none"
            )


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


LONGEST_REQUEST_SECONDS = 30.0
"""The maximum time of a request with a key, from its claim to the end of its last transaction."""


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


@dataclass(frozen=True)
class ChangeAnswer(Generic[A]):
    """The result of a change, for the first request and each repetition."""

    sequence: int
    """The aggregate's last sequence after the change."""
    receipt: Receipt[A] | None
    """None: another writer has changed or deleted the aggregate since, and the request did not create it."""
    replayed: bool = False
    """Whether this repeats the answer to an earlier request."""


def _no_status(_: Exception) -> int | None:
    return None


@dataclass(frozen=True)
class KeyedRequest:
    """Identifies a repeatable request for ``create_once`` and ``change_once`` of ``Aggregates``."""

    caller: str
    """The sender: the same key of another caller is another key."""
    key: str
    """The caller's ``Idempotency-Key``; it is stored as a digest for ``IDEMPOTENCY_TTL_SECONDS``."""
    fingerprint: str
    """A digest of what the caller sent, independent of this version's interpretation of it."""
    status_of: Callable[[Exception], int | None] = field(default=_no_status, compare=False)
    """Returns the status of an aggregate's refusal; None: the error is no refusal, but a bug."""

    def of_change(self, aggregate_type: str, aggregate_id: str) -> str:
        """Returns the name of a change's record. A key is scoped to its target (``caller_in_id``, ``target_in_id``)."""
        return digest(json.dumps(["key", self.caller, self.key, aggregate_type, aggregate_id]))

    @property
    def key_digest(self) -> str:
        """The name of the claim. Both digests have a fixed length, so no other caller and key give the same text."""
        return digest(f"{digest(self.caller)} {digest(self.key)}")


def digest(text: str) -> str:
    """Returns a text's SHA-256 digest, stored in place of the text: keys and requests may hold personal data."""
    return hashlib.sha256(text.encode()).hexdigest()
