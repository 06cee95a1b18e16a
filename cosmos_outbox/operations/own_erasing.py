"""What the outbox holds of one of a team's own aggregates leaves the store, and no subscriber misses an event by it.

The team erases its own documents itself, in a transaction with an event that tells subscribers. Then the events are
removed here, in this order: after the relay has forwarded them, and a parked one after it was sent, or discarded with a
notice in its place. Each step finds by itself what is left: the same call again goes on where one was cut off.

A document that is still due would raise an event when its time comes, so it is asked for first (``erased-is-not-due``).

The note of what was dealt with (``remember-erased``) counts for this partition alone: where an aggregate has raised
events in several, each is erased by a call of its own. What others raise meanwhile is not removed.
"""

from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cosmos_outbox.cosmos.own.due import DueTimes
from cosmos_outbox.cosmos.store import changefeed
from cosmos_outbox.cosmos.store.container import Container, StoreFailed
from cosmos_outbox.cosmos.store.partition_key import Key, Value, at
from cosmos_outbox.cosmos.upkeep.erasure import EventsEraser, ParkedEraser
from cosmos_outbox.kernel.aggregate_key import AggregateKey
from cosmos_outbox.operations.leaving import (
    NOT_EMPTIED,
    WayOut,
    collect_dead_letters,
    note_erased,
    unpark,
    wait_until_forwarded,
)
from cosmos_outbox.settings.errors import NotErased

if TYPE_CHECKING:
    from cosmos_outbox.inbox.deliveries import Collected

WAIT_SECONDS = 60.0


@dataclass(frozen=True)
class KeptBy:
    """What a subscriber of the same service keeps of the aggregates of one type."""

    aggregate_type: str
    collect: "Callable[[], Awaitable[Collected]]"
    """Move dead letters into records, for some seconds."""
    empty_records: Callable[[str], Awaitable[int]]
    """Close and empty the records of an aggregate, by its id. Returns how many were there."""
    settle: Callable[[AggregateKey], Awaitable[None]]
    """Read the entry anew from the team's document, or give up what waits."""


@dataclass(frozen=True)
class OwnEraser:
    """Erases the events of a team's own aggregates."""

    way: WayOut
    container: Container
    parked: Container
    times: DueTimes
    kept: Sequence[KeptBy] = ()

    async def erase(
        self,
        of: tuple[str, str],
        partition_key: Value | Sequence[Value],
        *,
        keep: Collection[str] = (),
        patience_seconds: float = WAIT_SECONDS,
    ) -> AsyncGenerator[str]:
        """Erase the events of an aggregate, by its type and id, telling each step when it is done.

        ``keep``: actions whose events hold nothing personal, such as the one that tells of the erasing.
        ``patience_seconds``: for the relay.

        Raises:
            NotForwardedYet: the relay has not forwarded all events; nothing is erased.
            NotErased: all is erased but events that were parked meanwhile, or dead letters of which nothing is known.
            OutboxError, InboxError: the store or the broker could not be used, or others changed the same documents.
            ValueError: the container can have no such key, or the aggregate's document is still due; nothing is erased.
        """
        aggregate, key = AggregateKey(*of), self.container.paths.key(partition_key)
        if self.times.paths:
            await self._check_not_due(aggregate, key)
        events = EventsEraser(self.container, aggregate, key, keep)
        parked = ParkedEraser(self.parked, self.container.paths, aggregate)
        ids, session_token = await events.look()
        yield await wait_until_forwarded(self.way, aggregate, key, session_token, patience_seconds)
        lsn = changefeed.session_lsn(session_token)
        await note_erased(self.way.parking.lot, aggregate, self.container.paths.name(key), lsn)
        sent, discarded = await unpark(self.way.parking, aggregate)
        yield f"{sent} parked event(s) sent, {discarded} discarded"
        collected = True
        for kept in [each for each in self.kept if each.aggregate_type == aggregate.type]:
            collected = (await collect_dead_letters(kept.collect))[1] and collected
            records = await kept.empty_records(aggregate.id)
            await kept.settle(aggregate)
            yield f"a subscriber has settled it, {records} record(s) of messages set aside emptied"
        yield f"{await events.erase(ids)} event(s) removed"
        yield f"{await parked.erase(key)} discarded event(s) emptied"
        if left := await parked.list_left(key):
            raise NotErased(
                f"all is erased but events of {aggregate} that were parked meanwhile: {', '.join(left)}. Run this again"
            )
        if not collected:
            raise NotErased(NOT_EMPTIED)

    async def _check_not_due(self, aggregate: AggregateKey, key: Key) -> None:
        try:
            await self.container.fence(key)
            item = await self.container.read(aggregate.id, key)
        except StoreFailed as error:
            raise error.failure.error() from error
        if due := [path for path in self.times.paths if item is not None and at(item, path) is not None]:
            raise ValueError(
                f"the document of {aggregate} has a time at {', '.join(due)}, and would raise an event when it has "
                "come: replace the document without it, then run this again"
            )
