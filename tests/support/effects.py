"""A ledger in memory, with the failures of a real one, and effects that note that they ran."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from cosmos_outbox.inbox.effect import EffectMarker, EffectRules, Mark, SeenMark
from cosmos_outbox.inbox.effects import EffectInbox
from cosmos_outbox.inbox.errors import RecordChanged
from cosmos_outbox.inbox.event import Event
from cosmos_outbox.inbox.ledger import Ledger
from cosmos_outbox.kernel.aggregate_key import AggregateKey
from tests.support.inbox import NOON, Faults

RULES = EffectRules(
    events_come_for=timedelta(days=20), ids_are_kept_for=timedelta(days=21), waits_at_most=timedelta(days=10)
)
NO_PLACE = 10**9


@dataclass
class FakeLedger:
    """Every version of every aggregate. ``lag``: how many versions a read that is not behind a fence is behind.

    It cannot prove that a store writes both or none; the contract suite runs over the real one.
    """

    faults: Faults = field(default_factory=Faults)
    lag: int = 0
    versions: dict[AggregateKey, list[tuple[EffectMarker, dict[str, Mark]]]] = field(default_factory=dict)
    writes: int = 0

    async def read(self, key: AggregateKey, event_id: str, *, fenced: bool) -> SeenMark:
        marker, marks = self.faults.run(lambda: self._at(key, 0 if fenced else self.lag))
        return SeenMark(marker, marks.get(event_id))

    async def write(self, key: AggregateKey, marker: EffectMarker, mark: Mark) -> SeenMark:
        def change() -> SeenMark:
            before, marks = self._at(key, 0)
            stored = marks.get(mark.event_id)
            if marker.version != before.version or mark.version != (stored.version if stored else None):
                raise RecordChanged("another version")
            self.writes += 1
            after = SeenMark(
                replace(marker, version=str(self.writes)), replace(mark, version=str(self.writes))
            )
            assert after.mark is not None
            self.versions.setdefault(key, []).append((after.marker, marks | {mark.event_id: after.mark}))
            return after

        written: SeenMark = self.faults.run(change)
        return written

    async def waiting(self, key: AggregateKey) -> Sequence[Mark]:
        _, marks = self.faults.run(lambda: self._at(key, 0))
        held = [mark for mark in marks.values() if mark.waits is not None]
        return sorted(held, key=lambda mark: mark.sequence or NO_PLACE)

    async def aggregates(self) -> AsyncIterator[AggregateKey]:
        for key in [*self.versions]:
            if self._at(key, 0)[0].waiting:
                yield key

    def _at(self, key: AggregateKey, lag: int) -> tuple[EffectMarker, dict[str, Mark]]:
        versions = self.versions.get(key, [])
        return versions[-1 - lag] if len(versions) > lag else (EffectMarker(), {})


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
