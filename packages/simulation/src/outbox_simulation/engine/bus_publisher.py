"""A publisher over a broker in memory: it keeps a publisher's promises under every fault of a send.

An aggregate's events are accepted in order, and none after one that was refused or whose outcome is unknown. A send is
accepted whole or not at all. A sent message arrives although its sender is gone by then.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from cosmos_outbox.kernel.aggregate_key import AggregateKey
from cosmos_outbox.kernel.clock import monotonic
from cosmos_outbox.outbox.feed import FeedEvent
from cosmos_outbox.outbox.publisher import Accepted, AggregateEvents, Guarantees, Outcome, Refused, Unknown
from cosmos_outbox.servicebus.message import session_of
from cosmos_outbox.testing.messages import message_of
from outbox_simulation.engine.bus import Bus
from outbox_simulation.engine.bus_queue import Sent
from outbox_simulation.invariants.language import SKIP_MARKER

LARGEST_MESSAGE_BYTES = 256 * 1024
ANYTHING_GOES = Guarantees(ordered=True, deduplicates=True, mixes_aggregates=True, largest_message_bytes=None)

NO_ANSWER_SECONDS = 20.0
"""The time after which a send is taken to have no answer."""

AWAY, BUSY, FULL = "Service Bus cannot be reached", "Service Bus is busy", "the topic is full"
NO_ANSWER, LATE = "Service Bus did not answer in time", "too late"
_REFUSED_AGAIN = 0.5
"""The share of repeated sends of refused events that are refused again."""

NEVER = "a value in the message is outside the limits of Service Bus"
TOO_LARGE = "too large"


@dataclass(frozen=True)
class _Failure:
    """A fault after which no send of the page gets an answer."""

    reason: str
    seconds: float = 0.0
    """The time until that is known; 0: the next way's time."""
    arrived: bool = False


_Part = tuple[int, AggregateEvents]
"""Events of one aggregate, and their place in the page."""


@dataclass
class _Page:
    """The progress of a page."""

    groups: Sequence[AggregateEvents]
    outcomes: list[Outcome | None]
    accepted: list[int]
    away: str | None = None
    """Why the rest of it is not tried."""

    def note(self, place: int, outcome: Outcome, events: int) -> None:
        """Records the outcome of an aggregate's next events, behind those that were accepted."""
        before = self.accepted[place]
        if isinstance(outcome, Accepted):
            self.accepted[place] += events
        else:
            self.outcomes[place] = replace(outcome, accepted=before + outcome.accepted)

    def result(self) -> Sequence[Outcome]:
        """Returns one outcome for each aggregate."""
        return [self._verdict(place) for place in range(len(self.groups))]

    def _verdict(self, place: int) -> Outcome:
        if (outcome := self.outcomes[place]) is not None:
            return outcome
        if self.accepted[place] == len(self.groups[place].events):
            return Accepted()
        return Unknown(self.accepted[place], self.away or LATE)


@dataclass
class BusPublisher:
    """See :class:`cosmos_outbox.outbox.publisher.Publisher`."""

    bus: Bus = field(default_factory=Bus)
    fail_for: set[str] = field(default_factory=set)
    """The ids of the aggregates for which the broker is unavailable."""
    limit: int = LARGEST_MESSAGE_BYTES
    guarantees: Guarantees = ANYTHING_GOES
    source: str = ""
    """The service whose events it sends, as named in their messages."""
    sessions: int | None = None
    """The number of buckets of aggregates; None: each aggregate has a session of its own."""
    until: float = 0.0
    """The value of the last call."""
    _found: dict[AggregateKey, str] = field(default_factory=dict)
    """The sessions, cached in this process: the broker delivers messages in a context of its own."""

    @property
    def sent(self) -> list[tuple[str, str]]:
        """(aggregate id, message id), in the order accepted."""
        return [(taken.sent.aggregate, taken.sent.message.id) for taken in self.bus.taken]

    @property
    def bodies(self) -> set[bytes]:
        """The message bodies that subscribers would get."""
        return {taken.sent.message.body for taken in self.bus.taken}

    def of(self, aggregate: AggregateKey) -> list[str]:
        """Returns the ids of an aggregate's events, in the order accepted."""
        return [event_id for owner, event_id in self.sent if owner == aggregate.id]

    async def publish(self, page: Sequence[AggregateEvents], until: float) -> Sequence[Outcome]:
        """Sends each aggregate's events in order."""
        self.until = until
        self._found.update((each.aggregate, session_of(each.aggregate, self.sessions)) for each in page)
        going = _Page(page, [None] * len(page), [0] * len(page))
        if monotonic() > until:
            going.away = LATE
        try:
            async with asyncio.timeout(until - monotonic()):
                for batch in self._batches(page):
                    await self._send(going, batch)
        except TimeoutError:
            going.away = LATE
        return going.result()

    def take(self, group: AggregateEvents) -> Outcome:
        """Returns the outcome of these events without faults; the topic has the accepted ones."""
        if group.aggregate.id in self.fail_for:
            return Unknown(0, "the broker is away")
        for number, event in enumerate(group.events):
            message = message_of(event, self.source)
            if len(message.body) > self.limit:
                return Refused(number, TOO_LARGE, shown_by_event=True)
            session = self._session_of(group.aggregate)
            self.bus.accept([Sent(message, group.aggregate.id, session, event.correlation_id)])
        return Accepted()

    def _session_of(self, aggregate: AggregateKey) -> str:
        return self._found.get(aggregate) or session_of(aggregate, self.sessions)

    def _batches(self, page: Sequence[AggregateEvents]) -> Sequence[Sequence[_Part]]:
        """Returns all at once, or random batches; an aggregate may be cut in two, its second part comes later."""
        parts: list[_Part] = list(enumerate(page))
        if self.bus.rates.is_calm or not parts:
            return [parts]
        batches: list[list[_Part]] = [[]]
        later: list[list[_Part]] = []
        for place, group in parts:
            events, cut = group.events, 1 + self.bus.one_of(2 * len(group.events))
            batches[-1].append((place, replace(group, events=events[:cut])))
            if events[cut:]:
                later.append([(place, replace(group, events=events[cut:]))])
            if not self.guarantees.mixes_aggregates or not self.bus.one_of(4):
                batches.append([])
        return [batch for batch in [*batches, *later] if batch]

    async def _send(self, page: _Page, batch: Sequence[_Part]) -> None:
        batch = [part for part in batch if page.away is None and page.outcomes[part[0]] is None]
        if not batch:
            return
        bus, mixes = self.bus, self.guarantees.mixes_aggregates
        if (failure := self._failure()) is not None:
            await self._fail(page, batch, failure)
        elif len(batch) > 1 and mixes and bus.strikes(bus.rates.refuse_mix):
            self.guarantees = replace(self.guarantees, mixes_aggregates=False)
            bus.note("bus refuses", detail="a batch of several sessions")
            for part in batch:
                await self._send(page, [part])
        else:
            unlucky = self._unlucky(batch)
            outcomes = await self._answer(lambda: self._taken(batch, unlucky))
            for (place, group), outcome in zip(batch, outcomes, strict=True):
                page.note(place, outcome, len(group.events))

    def _unlucky(self, batch: Sequence[_Part]) -> int | None:
        """Draws the part with a refused event; one that was refused is often refused again: its reason remains."""
        bus = self.bus
        sure = (at for at, (_, group) in enumerate(batch) if any(map(self._is_refused, group.events)))
        if (found := next(sure, None)) is not None or not bus.rates.refuse_one:
            return found
        again = [
            at for at, (_, group) in enumerate(batch) if any(each.id in bus.refused for each in group.events)
        ]
        if again and bus.strikes(_REFUSED_AGAIN):
            return again[0]
        return bus.one_of(len(batch)) if bus.strikes(bus.rates.refuse_one) else None

    def _is_refused(self, event: FeedEvent) -> bool:
        aggregate = event.aggregate.id if event.aggregate else ""
        return self.bus.refuses(aggregate, event.id)

    def _failure(self) -> _Failure | None:
        """Draws the fault of a send as a whole, if any."""
        bus, chances = self.bus, self.bus.rates
        if bus.is_away():
            return _Failure(AWAY)
        if bus.strikes(chances.cut):
            return _Failure(AWAY, arrived=bus.one_of(2) == 1)
        kinds = [
            (chances.busy, _Failure(BUSY)),
            (chances.quota, _Failure(FULL)),
            (chances.lost_before, _Failure(NO_ANSWER, NO_ANSWER_SECONDS)),
            (chances.lost_after, _Failure(NO_ANSWER, NO_ANSWER_SECONDS, arrived=True)),
        ]
        return next((failure for chance, failure in kinds if bus.strikes(chance)), None)

    async def _fail(self, page: _Page, batch: Sequence[_Part], failure: _Failure) -> None:
        """Ends the page: the rest of it is not tried."""
        if failure.arrived:
            self.bus.later(self.bus.way_seconds(), lambda: (self._taken(batch), None)[1])
        for place, _ in batch:
            page.note(place, Unknown(0, failure.reason), 0)
        page.away = failure.reason
        self.bus.note("send failed", detail=failure.reason)
        await asyncio.sleep(failure.seconds or self.bus.way_seconds())

    async def _answer(self, do: Callable[[], Sequence[Outcome]]) -> Sequence[Outcome]:
        """Lets the broker do it."""
        bus = self.bus
        answer: asyncio.Future[Sequence[Outcome]] = asyncio.get_running_loop().create_future()

        def carry_out() -> None:
            done = do()
            bus.later(bus.way_seconds(), lambda: None if answer.done() else answer.set_result(done))

        bus.later(bus.way_seconds(), carry_out)
        return await answer

    def _taken(self, batch: Sequence[_Part], unlucky: int | None = None) -> Sequence[Outcome]:
        """Returns the broker's answers; for good it refuses one event of the ``unlucky`` one."""
        outcomes: list[Outcome] = []
        for number, (_, group) in enumerate(batch):
            if number != unlucky:
                outcomes.append(self.take(group))
                continue
            known = [at for at, each in enumerate(group.events) if self._is_refused(each)]
            known += [at for at, each in enumerate(group.events) if each.id in self.bus.refused]
            refused = known[0] if known else self.bus.one_of(len(group.events))
            if (
                group.events[refused].action == SKIP_MARKER
            ):  # a skip marker is small and has only known values
                outcomes.append(self.take(group))
                continue
            self.bus.refused.add(group.events[refused].id)
            before = self.take(replace(group, events=group.events[:refused]))
            self.bus.note("bus refuses", group.aggregate.id, group.events[refused].id)
            outcomes.append(Refused(refused, NEVER) if isinstance(before, Accepted) else before)
        return outcomes
