"""Records in memory, with the failures of a real store, and a handler that notes that it ran."""

import asyncio
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from cosmos_outbox.inbox.effect import EffectInbox, EffectRecord, EffectRecords, EffectRules
from cosmos_outbox.inbox.errors import RecordChanged
from cosmos_outbox.inbox.message import Event
from tests.support.inbox import NOON, Faults

LIVES = timedelta(days=42)
RULES = EffectRules(LIVES, frozenset({"Mailed", "NameChanged"}))


@dataclass
class FakeRecords:
    """The records of one subscriber."""

    faults: Faults = field(default_factory=Faults)
    stored: dict[str, EffectRecord] = field(default_factory=dict)
    writes: int = 0

    async def find(self, event_id: str) -> EffectRecord | None:
        found: EffectRecord | None = self.faults.run(lambda: self.stored.get(event_id))
        return found

    async def write(self, record: EffectRecord) -> EffectRecord:
        def change() -> EffectRecord:
            before = self.stored.get(record.event_id)
            if record.version != (before and before.version):
                raise RecordChanged("another version")
            self.writes += 1
            self.stored[record.event_id] = replace(record, version=str(self.writes))
            return self.stored[record.event_id]

        written: EffectRecord = self.faults.run(change)
        return written


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

    def monotonic(self) -> float:
        return self.now.timestamp()

    async def pause(self, seconds: float) -> None:
        self.pass_by(seconds=seconds)
        await asyncio.sleep(0)


def inbox_over(
    records: EffectRecords, outbound: Outbound, clock: Clock, rules: EffectRules = RULES
) -> EffectInbox:
    return EffectInbox(records, outbound.effect, rules, clock, clock.monotonic, clock.pause)
