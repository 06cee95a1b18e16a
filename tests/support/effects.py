"""A ledger in memory, with the failures of a real one, and effects that note that they ran."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from cosmos_outbox.inbox.effect import EffectRules, Mark, Marker, Seen
from cosmos_outbox.inbox.effects import EffectInbox
from cosmos_outbox.inbox.event import AggregateKey, Event
from cosmos_outbox.inbox.ledger import Ledger
from cosmos_outbox.testing.ledger import MemoryLedger
from tests.support.inbox import NOON, Faults

RULES = EffectRules(
    events_come_for=timedelta(days=20), ids_are_kept_for=timedelta(days=21), waits_at_most=timedelta(days=10)
)


@dataclass
class FakeLedger(MemoryLedger):
    """The test kit's, with failures. ``lag``: how many versions a read that is not behind a fence is behind."""

    faults: Faults = field(default_factory=Faults)
    lag: int = 0

    async def read(self, key: AggregateKey, event_id: str, *, fenced: bool) -> Seen:
        marker, marks = self.faults.run(lambda: self.at(key, 0 if fenced else self.lag))
        return Seen(marker, marks.get(event_id))

    async def write(self, key: AggregateKey, marker: Marker, mark: Mark) -> Seen:
        written: Seen = self.faults.run(lambda: self.store(key, marker, mark))
        return written

    async def waiting(self, key: AggregateKey) -> Sequence[Mark]:
        held: Sequence[Mark] = self.faults.run(lambda: self.held(key))
        return held


@dataclass
class Outbound:
    """The service that the effects call: what was asked for, in order. ``raises``: what it answers, in turn."""

    asked: list[str] = field(default_factory=list)
    raises: list[Exception | None] = field(default_factory=list)

    async def effect(self, event: Event) -> None:
        self.asked.append(event.id)
        if self.raises and (error := self.raises.pop(0)) is not None:
            raise error


@dataclass
class Clock:
    now: datetime = NOON

    def __call__(self) -> datetime:
        return self.now

    def pass_by(self, **time: float) -> None:
        self.now += timedelta(**time)


def inbox_over(ledger: Ledger, outbound: Outbound, clock: Clock, rules: EffectRules = RULES) -> EffectInbox:
    return EffectInbox(ledger, outbound.effect, rules, clock, pause=no_pause)


async def no_pause(seconds: float) -> None:
    await asyncio.sleep(0)
