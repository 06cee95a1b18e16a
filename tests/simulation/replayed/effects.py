"""Each write of an item of effects, and each beginning of an effect, is a step that the model of effects allows.

An effect begins by its own start, which is the newest write of its item, and once by each start, unless the service
that it calls was away. What became of an effect is written by the process that ran it, after its end; anybody else
takes over only when the longest call is over. What the model leaves out (dates, who asked, how often) may be anything;
notices are not known to it.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import cache
from typing import Any, NamedTuple

from cosmos_outbox.inbox.effect import CALL, EffectItem, Open, RunningEffect, WhyOpen
from cosmos_outbox.inbox.effect_decision import By, EffectChange
from cosmos_outbox.inbox.stored import item_of
from cosmos_outbox.kernel.aggregate_key import AggregateKey
from tests.models.effects import BEGAN, Model, Process, State, Story
from tests.simulation.replayed.commits import Commit, Document, NotAllowed

_CLOCKS_DIFFER = timedelta(seconds=30)


@dataclass(frozen=True)
class Ran:
    """An effect began, or ended: ``how`` is "begins", "done", "failed" or "away"."""

    how: str
    event: str
    by: str
    """Whose process it was."""


class _Item(NamedTuple):
    """What is compared of an item."""

    last: int
    first: int
    event: str
    running: tuple[int, str] | None
    open: frozenset[tuple[int, str, WhyOpen]]


@dataclass
class _Aggregate:
    """The events of one aggregate, and what is known of its effects."""

    events: dict[int, tuple[str, bool]] = field(default_factory=dict)
    """By place: the id, and whether it has an effect."""
    by: str = ""
    """Who wrote the newest start."""
    ran: str = ""
    """How that effect has gone on since."""

    def name(self, event: str) -> str:
        """Of an event, in the model."""
        return next((f"e{place}" for place, (each, _) in self.events.items() if each == event), event)

    @property
    def kinds(self) -> str:
        """As the model has the events; where one is not known yet, it is none that is run."""
        places = range(1, max(self.events, default=0) + 1)
        return "".join("e" if self.events.get(each, ("", False))[1] else "n" for each in places)


class EffectsReplayed:
    """One run of a subscriber's effects, step by step."""

    def __init__(self, kinds: frozenset[str] | None, *, repeatable: bool = True) -> None:
        """``kinds``: the events that have an effect; None: all."""
        self._kinds, self._repeatable = kinds, repeatable
        self._aggregates: dict[AggregateKey, _Aggregate] = {}
        self._items: dict[AggregateKey, Document] = {}
        self._places: dict[str, tuple[AggregateKey, int]] = {}
        """Of events, by id."""

    def not_allowed(self, steps: Iterable[Commit | Ran]) -> Iterator[NotAllowed | str]:
        """The steps that the model does not allow."""
        for step in steps:
            if isinstance(step, Ran):
                if why := self._why_not_ran(step):
                    yield why
                continue
            for was, now in step.changes:
                document = now or was or {}
                if document.get("type") == "domainEvent":
                    self._stored(document)
                elif document.get("type") == "effects":
                    key = AggregateKey(document["aggregateType"], document["aggregateId"])
                    if why := self._why_not_written(key, was, now, step):
                        yield NotAllowed(step, str(key), why)

    def _stored(self, document: Document) -> None:
        data, key = document["data"], AggregateKey(document["aggregateType"], document["partitionKey"])
        has_effect = self._kinds is None or data["action"] in self._kinds
        self._aggregates.setdefault(key, _Aggregate()).events[data["sequence"]] = (data["id"], has_effect)
        self._places[data["id"]] = (key, data["sequence"])

    def _why_not_ran(self, step: Ran) -> str:
        """Empty: the model allows it."""
        key, place = self._places[step.event]
        aggregate, item = self._aggregates[key], self._items.get(key, {})
        running = item.get("running") or {}
        if step.how != "begins":
            if aggregate.by == step.by and running.get("event_id") == step.event:
                aggregate.ran = step.how
            return ""
        if running.get("event_id") != step.event or aggregate.by != step.by:
            return f"place {place} of {key} is begun by {step.by} without its start (start-first)"
        if aggregate.ran not in ("", "away"):
            return f"place {place} of {key} is begun again by one start"
        aggregate.ran = "begins"
        return ""

    def _why_not_written(
        self, key: AggregateKey, was: Document | None, now: Document | None, commit: Commit
    ) -> str:
        """Empty: the model allows it."""
        if now is None:
            return "an item is removed"
        aggregate = self._aggregates[key]
        before, after = self._item(aggregate, was), self._item(aggregate, now)
        own = was is not None and was["running"] is not None and aggregate.by == commit.by
        late = was is not None and was["running"] is not None and self._is_late(was, commit)
        how = aggregate.ran if own else ""
        self._items[key] = now
        if now["running"] is not None:
            aggregate.by, aggregate.ran = commit.by, ""
        if now["ttl"] > 0 and (now["running"] or now["open"]):
            return "what an operator has to know of expires (open-stays)"
        made = _made(aggregate.kinds, before, own, how, late, self._repeatable)
        return "" if after in made else f"no step leads from {before} to {after}; {how or 'not begun'}"

    def _is_late(self, was: Document, commit: Commit) -> bool:
        started = item_of(was, "").running
        assert started is not None, "who asks has looked"
        return commit.at - started.at > CALL - _CLOCKS_DIFFER

    def _item(self, aggregate: _Aggregate, document: Document | None) -> _Item | None:
        if document is None:
            return None
        item, name = item_of(document, ""), aggregate.name
        running = None if item.running is None else (item.running.sequence, name(item.running.event_id))
        told = frozenset((each.sequence, name(each.event_id), each.why) for each in item.open)
        return _Item(item.last, item.first, name(item.last_event_id), running, told)


@cache
def _made(
    kinds: str,
    before: _Item | None,
    own: bool,
    how: str,
    late: bool,
    repeatable: bool,
) -> frozenset[_Item]:
    """What can be written over this item. ``own``: by the process that started what is running; ``how`` that went."""
    story = Story(kinds, fails=1, repeatable=repeatable, calls=1)
    item = None if before is None else _whole(before)
    made: set[_Item] = set()
    if item is not None and item.running is not None and own:
        made |= {*_after_its_effect(story, item, item.running, how)}
    begins = [
        Process("read", place, by, "call", fenced=True)
        for place in range(1, len(kinds) + 1)
        for by in (By.MESSAGE, By.OPERATOR, By.SWEEP)
    ]
    made |= {*_written(story, item, begins, late=late)}
    for place in range(1, len(kinds) + 1):
        made |= {*_written(replace(story, gives_up=place), item, [Process()], late=late)}
    return frozenset(made)


def _after_its_effect(story: Story, item: EffectItem, running: RunningEffect, how: str) -> Iterator[_Item]:
    """What the process that has started it can write."""
    place = running.sequence
    started = EffectChange(item, Model(story).event(place))
    if how == "done":
        yield from _written(story, item, [Process("record", place, change=started)], late=False)
    elif how in ("failed", "away"):
        fails = replace(story, always_fails=place)
        yield from _written(fails, item, [Process("runs", place, change=started)], late=False)
    elif not how:  # too late to begin: the model's call ends without a word (fresh-start)
        yield _compared(replace(item, running=None))
    if how == "failed" and not story.repeatable:  # the model's effects fail for sure, or their process dies
        told = Open(place, running.event_id, WhyOpen.UNSURE, BEGAN)
        passed = replace(item, last=place, last_event_id=running.event_id)
        yield _compared(replace(passed, running=None, open=(*item.open, told)))


def _written(story: Story, item: EffectItem | None, begins: list[Process], *, late: bool) -> Iterator[_Item]:
    model = Model(story)
    places = frozenset(range(1, len(story.events) + 1))
    for process in begins:
        first = State((process,), (0,) * len(places), 0, (item,), places, tick=int(late))
        seen, waiting = {first}, [first]
        while waiting:
            state = waiting.pop()
            if len(state.history) > 1:
                newest = state.history[1]
                assert newest is not None, "an item is never removed"
                yield _compared(newest)
                continue
            for name, after in model.successors(state):
                if " begins" not in name and after not in seen:
                    seen.add(after)
                    waiting.append(after)


def _whole(item: _Item) -> EffectItem:
    running = None if item.running is None else RunningEffect(*item.running, "another call", BEGAN)
    told = tuple(
        Open(place, event, why, BEGAN) for place, event, why in sorted(item.open, key=lambda each: each[0])
    )
    return EffectItem(item.last, item.first, BEGAN, item.event, BEGAN, running, told, version="1")


def _compared(item: EffectItem) -> _Item:
    running = None if item.running is None else (item.running.sequence, item.running.event_id)
    told: Any = frozenset((each.sequence, each.event_id, each.why) for each in item.open)
    return _Item(item.last, item.first, item.last_event_id, running, told)
