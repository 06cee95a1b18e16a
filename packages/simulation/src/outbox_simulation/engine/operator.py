"""Settles what is parked and set aside as an operator does, by the service's own calls, in an instance of its own."""

import asyncio
import json
from collections.abc import Callable, Iterable
from datetime import datetime

from cosmos_outbox.cosmos.relay.parked_documents import ParkedEvent
from cosmos_outbox.inbox.errors import InboxError
from cosmos_outbox.inbox.set_aside import Record
from cosmos_outbox.kernel.clock import Clock
from cosmos_outbox.outbox.errors import OutboxError
from cosmos_outbox.service import Wired
from cosmos_outbox.settings.errors import InfraError
from outbox_simulation.engine.trace import RunTrace
from outbox_simulation.invariants.history import History
from outbox_simulation.invariants.records import DiscardAsked, Discarded, Free, SeenParked

PASSING = (OutboxError, InboxError, InfraError)
"""The errors of a call of the service that failed temporarily."""


class SimulatedOperator:
    """Replays parked events, discards broken ones, and applies what is set aside."""

    def __init__(
        self,
        history: History,
        trace: RunTrace,
        now: Clock | None = None,
        *,
        applies: bool = True,
        dares: Callable[[], bool] = lambda: True,
    ) -> None:
        """``now``: the clock that all processes agree on; None: there is none, and rules that need one are not judged.

        ``applies``: False leaves what is set aside to the timer, and only checks whether it is done.
        ``dares``: whether broken events are discarded at this look; else they are replayed once more.
        """
        self._dares = dares
        self._now = now
        self._applies = applies
        self._history = history
        self._trace = trace
        self.broken: set[str] = set()
        """Documents to be discarded."""
        self._seen: set[tuple[str, datetime]] = set()

    async def settle(self, wired: Wired, now: float) -> bool:
        """Settles what is there; returns whether all could be read, and nothing is left."""
        try:
            parked = await self.list_parked(wired)
        except PASSING as error:
            self._trace.note("operator fails", detail=repr(error))
            return False
        self._history.still_parked = [_seen(each, now) for each in parked]
        for each, seen in zip(parked, self._history.still_parked, strict=True):
            if (each.id, each.parked_at) not in self._seen:
                self._seen.add((each.id, each.parked_at))
                self._history.add([seen])
            if each.event_id in self.broken and self._dares():
                await self.discard(wired, each)
        for aggregate in {each.aggregate: None for each in parked if each.aggregate}:
            try:
                result = await wired.operator.parking.replay(aggregate)
            except PASSING as error:
                self._trace.note("replay fails", aggregate.id, repr(error))
            else:
                self._trace.note("replays", aggregate.id, f"{result.replayed}, done: {result.done}")
                if result.done and self._now is not None:
                    time = self._now()
                    self._history.add([Free(at=now, aggregate=aggregate.id, time=time)])
        return not parked and await self.apply(wired)

    async def apply(self, wired: Wired) -> bool:
        """Collects dead letters, and applies every record that was set aside; returns whether there was none."""
        none = True
        for subscription in wired.subscriptions.values():
            try:
                if self._applies:
                    await subscription.subscriber.collect()
                waiting = await list_set_aside(wired)
            except PASSING as error:
                self._trace.note("operator fails", detail=repr(error))
                return False
            none = none and not waiting
            for record in waiting if self._applies else ():
                try:
                    await subscription.subscriber.retrier.apply(record.id)
                    self._trace.note("applies", record.id)
                except PASSING as error:
                    self._trace.note("apply fails", record.id, repr(error))
        return none

    async def discard(self, wired: Wired, parked: ParkedEvent) -> None:
        """Discards an event, which may last until no relay can be sending it."""
        loop = asyncio.get_running_loop()
        self._history.add([DiscardAsked(at=loop.time(), document=parked.event_id)])
        try:
            await wired.operator.parking.discard(parked.id, "the simulation broke it")
        except PASSING as error:
            self._trace.note("discard fails", parked.event_id, repr(error))
        else:
            self._trace.note("discards", parked.event_id)
            self._history.add(
                [Discarded(at=loop.time(), document=parked.event_id, surely=self._now is not None)]
            )

    async def list_parked(self, wired: Wired) -> list[ParkedEvent]:
        """Returns all parked events. Raises the errors of a call of the service."""
        found: list[ParkedEvent] = []
        token: str | None = None
        while True:
            page = await wired.operator.parking.page(100, token)
            found.extend(page.items)
            token = page.continuation_token
            if token is None:
                return found


async def list_set_aside(wired: Wired) -> list[Record]:
    """Returns every record that waits. Raises StoreUnavailable."""
    found: list[Record] = []
    for subscription in wired.subscriptions.values():
        token: str | None = None
        while True:
            page = await subscription.subscriber.retrier.page(100, token)
            found.extend(page.items)
            token = page.continuation_token
            if token is None:
                break
    return found


def reasons(records: Iterable[Record]) -> dict[str, str]:
    """Returns the reason for each event that is set aside."""
    return {_event(each): each.reason for each in records}


def _event(record: Record) -> str:
    if record.delivery is None:
        return record.id
    return str(json.loads(record.delivery.body).get("id", record.id))


def _seen(parked: ParkedEvent, now: float) -> SeenParked:
    return SeenParked(
        at=now, event=parked.event_id, aggregate=parked.aggregate.id if parked.aggregate else None,
        action=parked.action, reason=parked.reason, parked_at=parked.parked_at,
    )  # fmt: skip
