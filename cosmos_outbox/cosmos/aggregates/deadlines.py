"""Calls ``on_due`` of aggregates that are due: once, not before the time, and only if their state still says so.

When it is due follows from the state alone, and stands in the document that has the state (``stored_with_the_state``):
so a change that moves or cancels it needs no second write. What a search finds is a hint: it may be old, and what it
misses is found by the next one. The state that is read decides (``state_decides``), and its change is stored at its
version, with its events, as any other (``at_its_version``): of two processes that meet one deadline, or of a deadline
and a payment, the one that is stored first is what the other finds.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from dataclasses import field
from datetime import datetime
from typing import Any

from cosmos_outbox.cosmos.aggregates.aggregates import Aggregates
from cosmos_outbox.cosmos.aggregates.documents import (
    DUE,
    aggregate_from_item,
    due_field,
    due_time,
    text_of_now,
)
from cosmos_outbox.cosmos.store.container import Container, StoreFailed, Write, reported
from cosmos_outbox.cosmos.store.errors import Kind
from cosmos_outbox.kernel.clock import monotonic, new_id, randomness, utc_now
from cosmos_outbox.kernel.dataclass import dataclass
from cosmos_outbox.kernel.loops import own_failures
from cosmos_outbox.outbox import telemetry
from cosmos_outbox.outbox.aggregate import Aggregate, Origin
from cosmos_outbox.outbox.errors import AggregateNotFound, ConcurrentChange, Throttled, Unavailable

BEAT_SECONDS = 10.0
"""The pause between two searches: a deadline may be about as late."""

CAUSE = "due-"
"""The prefix of the correlation ids of changes that a deadline makes."""

ROUND_SECONDS = 60.0
"""The maximum time of one round; the next one searches again."""

_AT_ONCE = 8
_REST_SECONDS = 300.0
"""The pause of this process before a deadline that failed is tried again."""

LIST_DUE = "SELECT c.id, c.due, c.partitionKey, c.type FROM c WHERE c.due <= @now"
"""Over all partitions, at any number of documents."""
_PAGE = 100
_CHANGED = {Kind.STALE, Kind.MISSING}

_log = logging.getLogger(__name__)


class NotSettled(Exception):
    """The aggregate is as due as before, or its time cannot be computed: a bug of its declaration. The text is ours."""


@dataclass(frozen=True)
class DueDocument:
    """A due document, as a search found it."""

    kind: str
    """The aggregate's type."""
    id: str
    partition_key: str
    due: datetime


@dataclass
class Deadlines:
    """Handles the deadlines of a service. Any number of processes may do so side by side."""

    container: Container
    aggregates: Aggregates
    kinds: Mapping[str, type[Aggregate[Any]]]
    """The aggregates that can be due, by their types."""
    clock: Callable[[], datetime] = utc_now
    time: Callable[[], float] = monotonic
    _resting: dict[tuple[str, str, str], float] = field(default_factory=dict, init=False)

    async def fire_due(self) -> int:
        """Handles what is due. Returns how many documents were changed. Raises Throttled, Unavailable.

        What hits one of them holds up no other: it is logged as an error, and tried again some minutes later. A
        partition that is too busy holds up no other: the rest of its page is left to the next round.
        """
        now, ends_at = self.clock(), self.time() + ROUND_SECONDS
        self._resting = {key: until for key, until in self._resting.items() if until > self.time()}
        left: dict[DueDocument, None] = {}
        met, looked, busy = 0, False, list[Exception]()
        try:
            async for page in self.pages(now):
                left |= dict.fromkeys(page)
                for some in _in_any_order(page):
                    if self.time() > ends_at:
                        return met
                    try:
                        done = await self._fire_all(some)
                    except (Throttled, Unavailable) as error:
                        busy.append(error)
                        break
                    met += sum(done.values())
                    left = {each: None for each in left if each not in done}
            looked = True
        finally:
            if looked or left:  # who could not look says nothing of what is due
                telemetry.due([each.due for each in left], self.clock())
        if busy:
            raise busy[0]
        return met

    async def _fire_all(self, some: Sequence[DueDocument]) -> Mapping[DueDocument, bool]:
        """Handles each document; returns the settled ones, and whether each was changed. Raises failures of all."""
        outcomes = await asyncio.gather(*map(self._try, some), return_exceptions=True)
        failures = [each for each in outcomes if isinstance(each, BaseException)]
        if len(failures) == len(some):  # one partition may be full, or throttled
            raise failures[0]
        return {
            found: outcome for found, outcome in zip(some, outcomes, strict=True) if isinstance(outcome, bool)
        }

    async def _try(self, found: DueDocument) -> bool | None:
        """Whether it was changed; None: it is as due as before. Raises Throttled, Unavailable."""
        key = found.kind, found.id, found.partition_key
        if key in self._resting:
            return None
        try:
            with own_failures():
                return await self.fire_one(found, self.clock())
        except (Throttled, Unavailable):
            raise
        except ConcurrentChange:
            return None
        except Exception as error:  # noqa: BLE001 - whatever one of them makes raise hits that one alone
            self._resting[key] = self.time() + _REST_SECONDS
            # The text of another error may hold what it failed on, which is personal.
            reason = str(error) if isinstance(error, NotSettled) else type(error).__name__
            _log.error("%s %s is due, but could not be handled: %s", found.kind, found.id, reason)
            return None

    async def pages(self, now: datetime) -> AsyncIterator[Sequence[DueDocument]]:
        """Yields the documents that are due at this time, in no order. Raises Throttled, Unavailable, Misconfigured."""
        with reported():
            async for items in self.container.pages(LIST_DUE, {"@now": text_of_now(now)}, _PAGE):
                yield [
                    found for found in map(_found, items) if found is not None and found.kind in self.kinds
                ]

    async def fire_one(self, found: DueDocument, at: datetime) -> bool:
        """Call ``on_due`` of the aggregate, in a change as any other. Returns whether anything was changed.

        Raises Throttled, Unavailable, ConcurrentChange, NotSettled, and whatever is raised by what happens then.
        """
        kind = self.kinds[found.kind]
        try:
            receipt = await self.aggregates.change(
                kind,
                found.id,
                lambda aggregate: fall_due(aggregate, at),
                due_origin(),
                partition_key=found.partition_key,
            )
        except AggregateNotFound:
            return False
        if not receipt.events:
            await self._correct(found, kind)
        return bool(receipt.events)

    async def _correct(self, found: DueDocument, kind: type[Aggregate[Any]]) -> None:
        """Corrects the due time in the document, such as after the aggregate's rule was changed.

        The field alone is written, at the version that was read: no event describes it. Raises Throttled, Unavailable.
        """
        try:
            item = await self.container.read(found.id, found.partition_key)
            if item is None:
                return
            wanted = due_field(kind, aggregate_from_item(kind, item).aggregate.state)
            plain = {name: value for name, value in item.items() if not name.startswith("_") and name != DUE}
            if wanted.get(DUE) != item.get(DUE):
                write = Write.replace(plain | wanted, str(item["_etag"]))
                await self.container.execute(found.partition_key, [write])
        except StoreFailed as error:
            if error.failure.kind not in _CHANGED:
                raise error.failure.error() from error


def deadlines_of(
    kinds: Sequence[type[Aggregate[Any]]],
    container: Container,
    aggregates: Aggregates,
    clock: Callable[[], datetime] = utc_now,
) -> Deadlines | None:
    """Returns the deadlines of the aggregates that can be due; None: no aggregate can."""
    due = {each.aggregate_type: each for each in kinds if each.can_be_due()}
    return Deadlines(container, aggregates, due, clock) if due else None


def due_origin() -> Origin:
    """Returns the origin of a change that a deadline makes."""
    return Origin(f"{CAUSE}{new_id()}")


def fall_due(aggregate: Aggregate[Any], at: datetime) -> None:
    """Calls ``on_due``, unless the state says that the aggregate is not due. Raises NotSettled."""
    due = aggregate.due
    if due is None or due > at:
        return
    aggregate.on_due(at=at)
    after = aggregate.due
    if after is not None and after <= due and not aggregate.deleted:
        raise NotSettled(
            f"{type(aggregate).__name__}.on_due changed nothing of when it is due: let due return a later time, or None"
        )


def _in_any_order(found: Sequence[DueDocument]) -> Iterator[Sequence[DueDocument]]:
    """Yields them shuffled, a few at a time, so that two processes at once mostly handle different ones."""
    shuffled = randomness().sample(found, len(found))
    for start in range(0, len(shuffled), _AT_ONCE):
        yield shuffled[start : start + _AT_ONCE]


def _found(item: Mapping[str, Any]) -> DueDocument | None:
    try:
        return DueDocument(str(item["type"]), item["id"], item["partitionKey"], due_time(item[DUE]))
    except (KeyError, TypeError, ValueError):  # not ours
        return None
