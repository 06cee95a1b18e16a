"""Stores one transaction in one partition once or not at all, and reports which, or that it is not known.

The answer to a transaction can get lost after it was committed, and the SDK may have repeated it on its own. What the
store can commit only once is therefore repeated as it is, until it is committed or refused. A refusal may be against an
earlier attempt: an event whose id was made for this transaction is looked for before another writer is blamed.

The records of requests come first, so that a refusal of the first operation says that the request has an outcome
(``record_first``). Then come the events: the repetition of what was stored is refused at a record or an event, and in
no other way, since a patch that is repeated could be refused as invalid. What has neither is not sent again after an
answer was lost.
"""

import asyncio
import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import field

from cosmos_outbox.cosmos.store.container import (
    DEADLINE_SECONDS,
    Container,
    StoreFailed,
    Write,
    size_in_bytes,
)
from cosmos_outbox.cosmos.store.errors import Failure, Kind
from cosmos_outbox.cosmos.store.partition_key import Item, Key, without_system_fields
from cosmos_outbox.kernel.clock import monotonic
from cosmos_outbox.kernel.dataclass import dataclass
from cosmos_outbox.outbox import telemetry
from cosmos_outbox.outbox.aggregate import ETag
from cosmos_outbox.outbox.errors import ChangeTooLarge, OutcomeUnknown, Unavailable

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


MAX_OPERATIONS = 100
MAX_BYTES = 2 * 1024 * 1024
"""Limits of a transactional batch (https://learn.microsoft.com/azure/cosmos-db/nosql/transactional-batch)."""

PATIENCE_SECONDS = 7.0
"""How long a transaction whose answer was lost is repeated before OutcomeUnknown is raised."""
_FIRST_PAUSE_SECONDS = 0.1
TAKEN = frozenset({Kind.CONFLICT, Kind.STALE, Kind.MISSING})
"""The kinds of refusal after which another writer was faster: a document exists, or has another version."""
_REFUSED = {Kind.INVALID, Kind.TOO_LARGE, Kind.DENIED, Kind.NO_CONTAINER}
"""A repetition is refused too. After a lost answer, the outcome of the earlier attempt stays unknown."""
_STORED = "SELECT * FROM c WHERE ARRAY_CONTAINS(@ids, c.id)"

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Batch:
    """The writes that one transaction stores. Raises ChangeTooLarge: no transaction holds them."""

    container: Container
    key: Key
    documents: Sequence[Write]
    events: Sequence[Item] = ()
    """The event documents, each with an id that was made for this transaction."""
    records: Sequence[Write] = ()
    """The first says what became of the request, and is only ever created, or replaced at its version."""
    on_commit: OnCommit = field(default_factory=OnCommit)
    """Called after every end that may have stored events."""

    def __post_init__(self) -> None:
        if len(self.writes) > MAX_OPERATIONS or size_in_bytes(self.writes) > MAX_BYTES:
            raise too_large()

    @property
    def writes(self) -> Sequence[Write]:
        """In their order."""
        return [*self.records, *map(Write.create, self.events), *self.documents]

    async def store(self, until: float | None = None) -> Sequence[ETag | None]:
        """Store all. Returns the ETags of the documents; None: others have changed it since, or it was deleted.

        ``until``: by the monotonic clock; no attempt is made that could end later (rule ``deadline``).

        Raises:
            StoreFailed: nothing is stored; ``failure`` says why.
            Unavailable: nothing is stored, since it is too late.
            OutcomeUnknown: the store's answer was lost: all is stored, or nothing.
        """
        give_up_at = monotonic() + PATIENCE_SECONDS
        if until is not None:
            give_up_at = min(give_up_at, latest(until))
        try:
            stored = await self._store(give_up_at)
        except (OutcomeUnknown, asyncio.CancelledError):
            self._notify()
            raise
        self._notify()
        telemetry.stored((event["aggregateType"], event["data"]["action"]) for event in self.events)
        return stored

    def place_of(self, failure: Failure) -> int | None:
        """Which of the documents was refused; None: none of them, or the answer does not say."""
        if failure.index is None:
            return None
        place = failure.index - len(self.records) - len(self.events)
        return place if 0 <= place < len(self.documents) else None

    def _notify(self) -> None:
        if self.events:
            self.on_commit(self.key)

    async def _store(self, give_up_at: float) -> Sequence[ETag | None]:
        writes, pause, answer_lost = self.writes, _FIRST_PAUSE_SECONDS, False
        while True:
            try:
                etags = await self.container.execute(self.key, writes)
                return [etag or None for etag in etags[len(writes) - len(self.documents) :]]
            except StoreFailed as error:
                failure = error.failure
                answer_lost = answer_lost or failure.answer_lost
                if failure.kind in TAKEN:
                    return await self._find_stored(error, answer_lost=answer_lost)
                if self._is_final(failure, answer_lost=answer_lost) or not await _wait(pause, give_up_at):
                    if answer_lost:
                        raise _unknown(failure) from error
                    raise
            _log.warning("storing a transaction again: %s", failure.detail)
            pause *= 2

    def _is_final(self, failure: Failure, *, answer_lost: bool) -> bool:
        if failure.kind in _REFUSED or (failure.kind is Kind.THROTTLED and not answer_lost):
            return True
        return answer_lost and not (self.events or self.records)

    async def _find_stored(self, refusal: StoreFailed, *, answer_lost: bool) -> Sequence[ETag | None]:
        """The ETags, when an earlier attempt has stored all. Raises the refusal when none has, OutcomeUnknown."""
        if not self.events:
            if answer_lost and not self.records:
                raise _unknown(refusal.failure) from refusal
            raise refusal
        event = self.events[0]
        try:
            stored = await self.container.read(event["id"], self.key)
        except StoreFailed as error:
            raise _unknown(error.failure) from error
        if stored is None or stored.get("data") != event["data"]:
            raise refusal
        return await self._etags_since()

    async def _etags_since(self) -> Sequence[ETag | None]:
        """Each document's ETag, if it is still as this transaction has stored it, and if that can be read."""
        ids = [write.item["id"] for write in self.documents]
        try:
            items = await self.container.first(_STORED, {"@ids": ids}, len(ids) + 1, partition_key=self.key)
        except StoreFailed as error:  # it is known that all is stored
            _log.info("the documents of a stored transaction cannot be read: %s", error.failure.detail)
            return [None] * len(ids)
        found = {item["id"]: item for item in items}
        return [_etag(write, found.get(write.item["id"])) for write in self.documents]


def _etag(write: Write, found: Item | None) -> ETag | None:
    unknown_state = write.kind in ("delete", "patch")
    if found is None or unknown_state or without_system_fields(found) != write.item:
        return None
    return str(found["_etag"])


def too_large() -> ChangeTooLarge:
    """Returns the error of a transaction that is too large, by the service's limits or its answer."""
    return ChangeTooLarge(
        f"the change is over {MAX_OPERATIONS} documents or {MAX_BYTES} bytes, the limits of one transaction: "
        "make several smaller changes"
    )


def refused(failure: Failure) -> Exception:
    """The error of a transaction of which nothing is stored."""
    return too_large() if failure.kind is Kind.TOO_LARGE else failure.error()


def _unknown(failure: Failure) -> OutcomeUnknown:
    return OutcomeUnknown(
        f"the store did not answer ({failure.detail}); the change may be stored or not: "
        "read again, or repeat the request"
    )


def latest(until: float) -> float:
    """When the last attempt may begin that ends in time (rule ``deadline``). Raises Unavailable: it is too late."""
    if monotonic() > until - DEADLINE_SECONDS:
        raise Unavailable("the request ran out of time, and stored nothing: send it again")
    return until - DEADLINE_SECONDS


async def _wait(seconds: float, until: float) -> bool:
    """Sleeps. Returns whether there is still time: a process can be suspended in its sleep, for any time."""
    if monotonic() + seconds > until:
        return False
    await asyncio.sleep(seconds)
    return monotonic() <= until
