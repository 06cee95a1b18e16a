"""Items and stored events in memory, with the failures of a real store, and effects that note that they ran."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from cosmos_outbox.inbox.effect import EffectItem, EffectItems, EffectRules, EffectSource, HeldBack
from cosmos_outbox.inbox.effects import EffectInbox
from cosmos_outbox.inbox.errors import RecordChanged
from cosmos_outbox.inbox.event import Event, utc
from cosmos_outbox.kernel.aggregate_key import AggregateKey
from tests.support.inbox import NOON, Faults

EVENTS_LIVE, ITEMS_LIVE = timedelta(days=10), timedelta(days=42)
RULES = EffectRules(EVENTS_LIVE, ITEMS_LIVE, frozenset({"Mailed", "NameChanged"}))


@dataclass
class FakeItems:
    """Every version of every item. ``lag``: how many versions a read that is not behind a fence is behind."""

    faults: Faults = field(default_factory=Faults)
    lag: int = 0
    versions: dict[AggregateKey, list[EffectItem]] = field(default_factory=dict)
    reads: int = 0
    fences: int = 0
    """How many of the reads were behind one."""
    writes: int = 0

    async def read(self, key: AggregateKey, *, fenced: bool) -> EffectItem | None:
        self.reads, self.fences = self.reads + 1, self.fences + fenced
        found: EffectItem | None = self.faults.run(lambda: self._at(key, 0 if fenced else self.lag))
        return found

    async def write(self, key: AggregateKey, item: EffectItem) -> EffectItem:
        def change() -> EffectItem:
            before = self._at(key, 0)
            if item.version != (before.version if before else None):
                raise RecordChanged("another version")
            self.writes += 1
            self.versions.setdefault(key, []).append(replace(item, version=str(self.writes)))
            return self.versions[key][-1]

        written: EffectItem = self.faults.run(change)
        return written

    async def page(
        self, size: int, position: str | None, *, unfinished: bool
    ) -> tuple[Sequence[tuple[AggregateKey, EffectItem]], str | None]:
        found = [
            (key, each[-1]) for key, each in self.versions.items() if not (unfinished and each[-1].expires)
        ]
        start = int(position or 0)
        return found[start : start + size], str(start + size) if start + size < len(found) else None

    def _at(self, key: AggregateKey, lag: int) -> EffectItem | None:
        versions = self.versions.get(key, [])
        return versions[-1 - lag] if len(versions) > lag else None


@dataclass
class FakeEvents:
    """The publisher's stored events. ``lag``: how many of the newest a read that is not behind a fence lacks."""

    stored: list[Event] = field(default_factory=list)
    what_is_held: HeldBack = field(default_factory=HeldBack)
    lag: int = 0
    queries: int = 0
    fences: int = 0
    """How many of the queries were behind one."""

    async def put(self, event: Event) -> None:
        self.stored.append(event)

    async def forget(self, event: Event) -> None:
        self.stored.remove(event)

    async def hold(self, held: HeldBack) -> None:
        self.what_is_held = held

    async def events(
        self, key: AggregateKey, places: range, since: datetime | None, *, fenced: bool
    ) -> Sequence[Event]:
        self.queries, self.fences = self.queries + 1, self.fences + fenced
        seen = self.stored if fenced or not self.lag else self.stored[: -self.lag]
        return [
            each
            for each in seen
            if each.aggregate == key
            and each.sequence in places
            and (since is None or utc(each.created_at) >= since)
        ]

    async def held(self, key: AggregateKey) -> HeldBack:
        return self.what_is_held

    async def last(self, key: AggregateKey) -> int | None:
        return max((each.sequence or 0 for each in self.stored if each.aggregate == key), default=None)


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
    items: EffectItems,
    source: EffectSource | None,
    outbound: Outbound,
    clock: Clock,
    rules: EffectRules = RULES,
) -> EffectInbox:
    return EffectInbox(items, source, outbound.effect, rules, clock, clock.monotonic, clock.pause)
