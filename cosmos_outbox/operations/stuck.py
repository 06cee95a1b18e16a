"""Lists all that is stuck for operators, with three calls on each: show, retry, discard.

Stuck are the events that are parked, and the messages and effects that a subscriber has set aside. Parking
(:mod:`cosmos_outbox.cosmos.relay.parking`) and the retrier (:mod:`cosmos_outbox.inbox.retrier`) keep each call safe
against a crash, a second operator and a lost answer: it can always be asked for again.

A list holds no personal data; what is shown by its id may.
"""

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import field
from datetime import datetime
from enum import StrEnum
from typing import Any, TypeVar

from cosmos_outbox.cosmos.relay.parked_documents import Discarding, ParkedEvent
from cosmos_outbox.cosmos.relay.parking import Parking
from cosmos_outbox.inbox.effect import EffectInbox
from cosmos_outbox.inbox.errors import NotSetAside
from cosmos_outbox.inbox.retrier import Retrier
from cosmos_outbox.inbox.set_aside import Record
from cosmos_outbox.kernel.aggregate_key import AggregateKey
from cosmos_outbox.kernel.dataclass import dataclass
from cosmos_outbox.lists.continuation import unusable
from cosmos_outbox.outbox.errors import NotInTheWay, NotParked, NotStuck

LONGEST_REASON = 500
"""The maximum length of the reason for a discarding, in characters."""

_ID = re.compile(r"[0-9a-f]{32}")

View = Mapping[str, Any]
T = TypeVar("T")


class StuckKind(StrEnum):
    """The kind of a stuck thing."""

    EVENT = "event"
    """A parked event: it cannot be sent, or waits behind one that cannot."""
    MESSAGE = "message"
    """A message that a subscriber could not apply."""
    EFFECT = "effect"
    """The same of an effect; one that is refused may have been done."""


@dataclass(frozen=True)
class Stuck:
    """An event, a message or an effect that is stuck."""

    kind: StuckKind
    id: str
    aggregate: AggregateKey | None
    reason: str
    """Why, without personal data."""
    since: datetime
    attempts: int
    state: str
    """Of an event: ``inTheWay``, ``waiting`` behind that one, ``alone`` (of no aggregate) or ``discarded``. Of what was
    set aside: ``waiting`` for the timer, or ``refused``: an operator decides."""
    event_id: str | None
    action: str | None
    sequence: int | None
    subscriber: str | None = None
    """None: it is a parked event."""
    discarding: Discarding | None = None
    payload: View | None = field(default=None, repr=False)
    """The event's document, or the message; None in a list, and of a message that was too large to keep."""

    def view(self) -> View:
        """As JSON, without what may be personal."""
        given_up = self.discarding
        return {
            "kind": self.kind.value,
            "id": self.id,
            "aggregateType": self.aggregate and self.aggregate.type,
            "aggregateId": self.aggregate and self.aggregate.id,
            "reason": self.reason,
            "since": self.since.isoformat(),
            "attempts": self.attempts,
            "state": self.state,
            "subscriber": self.subscriber,
            "eventId": self.event_id,
            "action": self.action,
            "sequence": self.sequence,
            **(
                {"discardedAt": given_up.at.isoformat(), "discardReason": given_up.reason} if given_up else {}
            ),
        }

    def whole_view(self) -> View:
        """The same with the payload."""
        return {**self.view(), "payload": self.payload}


@dataclass(frozen=True)
class StuckPage:
    """A page of the list, and the token of the next one (None: this page is the last)."""

    items: Sequence[Stuck]
    continuation_token: str | None

    def view(self) -> View:
        """As JSON."""
        return {"items": [each.view() for each in self.items], "continuationToken": self.continuation_token}


@dataclass(frozen=True)
class Retried:
    """How many events or messages were sent or applied; not ``done``: others of the aggregate follow by themselves."""

    count: int
    done: bool = True

    def view(self) -> View:
        """As JSON."""
        return {"retried": self.count, "remaining": not self.done}


@dataclass(frozen=True)
class _ParkedEvents:
    parking: Parking

    async def page(self, size: int, token: str | None, *, discarded: bool) -> StuckPage:
        page = await self.parking.page(size, token, discarded=discarded)
        return StuckPage([_of_event(each) for each in page.items], page.continuation_token)

    async def show(self, stuck_id: str) -> Stuck:
        found = await self.parking.show(stuck_id)
        return _of_event(found, dict(found.document))

    async def retry(self, stuck_id: str, *, to_the_end: bool) -> Retried:
        """Sends all of the event's aggregate: what waits before it, and what waits behind it."""
        aggregate, sent = (await self.parking.show(stuck_id)).aggregate, 0
        if aggregate is None:
            raise NotInTheWay("the document belongs to no aggregate, so it is never sent: discard it")
        while True:
            result = await self.parking.replay(aggregate)
            sent += result.replayed
            if result.done or not (to_the_end and result.replayed):
                return Retried(sent, result.done)

    async def discard(self, stuck_id: str, reason: str) -> None:
        await self.parking.discard(stuck_id, reason)


@dataclass(frozen=True)
class _SetAsideRecords:
    subscriber: str
    retrier: Retrier

    async def page(self, size: int, token: str | None, *, discarded: bool) -> StuckPage:
        page = await self.retrier.page(size, token)
        return StuckPage([self._of(each) for each in page.items], page.continuation_token)

    async def show(self, stuck_id: str) -> Stuck:
        record = await self.retrier.show(stuck_id)
        if record.delivery is None:
            return self._of(record)
        body = record.delivery.body.decode(errors="replace")
        return self._of(record, {"body": body, "properties": dict(record.delivery.properties)})

    async def retry(self, stuck_id: str, *, to_the_end: bool) -> Retried:
        await self.retrier.apply(stuck_id)
        return Retried(1)

    async def discard(self, stuck_id: str, reason: str) -> None:
        await self.retrier.discard(stuck_id, reason)

    def _of(self, record: Record, message: View | None = None) -> Stuck:
        is_effect = isinstance(self.retrier.asked, EffectInbox)
        return Stuck(
            StuckKind.EFFECT if is_effect else StuckKind.MESSAGE, record.id, record.aggregate, record.reason,
            record.set_aside_at, record.attempts, record.state.value, record.event_id, record.action,
            record.sequence, self.subscriber, payload=message,
        )  # fmt: skip


_Source = _ParkedEvents | _SetAsideRecords
"""The places where something may be stuck. A call raises NotParked or NotSetAside for an id that is not there."""


def _of_event(parked: ParkedEvent, document: View | None = None) -> Stuck:
    return Stuck(
        StuckKind.EVENT, parked.id, parked.aggregate, parked.reason, parked.parked_at, parked.attempts,
        parked.state.value, parked.event_id, parked.action, parked.sequence, None, parked.discarding, document,
    )  # fmt: skip


class StuckList:
    """All that is stuck of a service: its parked events, then what each subscriber has set aside."""

    def __init__(self, parking: Parking | None, retriers: Mapping[str, Retrier]) -> None:
        """``parking`` None: the service publishes nothing. ``retriers``: by the names of its subscribers."""
        self._parked = [] if parking is None else [_ParkedEvents(parking)]
        self._all: list[_Source] = [
            *self._parked, *(_SetAsideRecords(name, each) for name, each in retriers.items())
        ]  # fmt: skip

    async def page(self, size: int, token: str | None, *, discarded: bool = False) -> StuckPage:
        """A page, the oldest of each source first; or of the events that were discarded.

        Raises UnknownContinuation; Throttled, Unavailable, StoreUnavailable: a store could not answer.
        """
        sources = dict(enumerate(self._parked if discarded else self._all))
        number, inner = _position(token, len(sources))
        items: list[Stuck] = []
        while number in sources:
            if len(items) == size:
                return StuckPage(items, f"{number}.")
            page = await sources[number].page(size - len(items), inner, discarded=discarded)
            items += page.items
            if page.continuation_token is not None:
                return StuckPage(items, f"{number}.{page.continuation_token}")
            number, inner = number + 1, None
        return StuckPage(items, None)

    async def show(self, stuck_id: str) -> Stuck:
        """One of them with its payload. Raises NotStuck, and as :meth:`page`."""
        return await self._first(stuck_id, lambda source: source.show(stuck_id))

    async def retry(self, stuck_id: str, *, to_the_end: bool = False) -> Retried:
        """Try it now: of an event, its whole aggregate; of a message, those of its aggregate before it too.

        ``to_the_end``: go on with an aggregate whose events take longer than one replay. Raises NotStuck; NotInTheWay:
        it can only be discarded; as :class:`cosmos_outbox.cosmos.relay.parking.Replay` and ``Retrier.apply`` do.
        """
        return await self._first(stuck_id, lambda source: source.retry(stuck_id, to_the_end=to_the_end))

    async def discard(self, stuck_id: str, reason: str) -> None:
        """Discard it for good. Raises NotStuck, and as ``Parking.discard`` and ``Retrier.discard`` do."""
        await self._first(stuck_id, lambda source: source.discard(stuck_id, reason))

    async def _first(self, stuck_id: str, verb: Callable[[_Source], Awaitable[T]]) -> T:
        for source in self._all if _ID.fullmatch(stuck_id) else []:
            try:
                return await verb(source)
            except (NotParked, NotSetAside):
                continue
        raise NotStuck(
            "nothing is stuck under this id, or not any more: take an id from the list of what is stuck"
        )


def _position(token: str | None, sources: int) -> tuple[int, str | None]:
    """The number of a source, and the token of its own list. Raises UnknownContinuation."""
    if token is None:
        return 0, None
    number, dot, inner = token.partition(".")
    known = [each for each in range(sources) if str(each) == number]
    if not (dot and known):
        raise unusable()
    return known[0], inner or None
