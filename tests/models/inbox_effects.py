"""The inbox's effect mode as a model: three events of one aggregate, two processes, a timer and an operator.

The decisions are those of ``cosmos_outbox.inbox.effect_decision`` itself. What is around them (what is read, written,
run and recorded, and in which order) is written down here step by step, as ``cosmos_outbox.inbox.effects`` and
``cosmos_outbox.inbox.effect_upkeep`` do it. Processes die, answers are lost and reads are old at any time. Each rule
can be turned off.

Versions are compared by what they hold: a marker that has become again what it was counts as unchanged, which the real
one does not. Time has two steps only: the longest call is over, and events are older than ids are kept.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from enum import Enum
from functools import cache
from typing import NamedTuple

from cosmos_outbox.inbox.effect import EffectMarker, EffectRules, Mark, MarkState, SeenMark, Unsure
from cosmos_outbox.inbox.effect_decision import (
    EffectCall,
    Kept,
    MarkChange,
    NotNow,
    Step,
    decide,
    failed,
    finished,
    given_up,
    next_place,
)
from cosmos_outbox.inbox.event import NOTICE, Event
from cosmos_outbox.kernel.aggregate_key import AggregateKey


class Rule(Enum):
    """A rule of the protocol. Turned off, the search must find what the rule is for."""

    OVER_IS_FINAL = "over-is-final"
    PASSED = "passed"
    NEXT_ONLY = "next-only"
    ONE_IN_A_PLACE = "one-in-a-place"
    GAP_WAITS = "gap-waits"
    START_FIRST = "start-first"
    RECORD_AFTER = "record-after"
    YOUNG_RUNS = "young-runs"
    CALLS_END = "calls-end"
    FRESH_START = "fresh-start"
    NOTICE_PASSES = "notice-passes"
    COUNT_HOLDS = "count-holds"
    ONE_TRANSACTION = "one-transaction"
    AT_ITS_VERSION = "at-its-version"
    DECIDE_AGAIN = "decide-again"
    TIMER_FOLLOWS = "timer-follows"
    ONLY_IN_TURN = "only-in-turn"
    DISCARD_MARKS = "discard-marks"
    TOO_OLD = "too-old"
    IDS_OUTLIVE_EVENTS = "ids-outlive-events"
    AGE_GIVES_UP = "age-gives-up"


LOST, AGES, FAILS, OPERATOR, OLD, DISCARD = "LOST", "AGES", "FAILS", "OPERATOR", "OLD", "DISCARD"
_EPOCH = datetime(2026, 1, 1, tzinfo=UTC)
_LONG_AGO, _EARLIER = _EPOCH - timedelta(days=1000), _EPOCH - timedelta(hours=1)
KEY = AggregateKey("thing", "1")


@dataclass(frozen=True)
class Story:
    """Three events, a letter for each: E an event, N a notice, B an event and its notice, Q one without a sequence."""

    events: str
    odd: int
    """The message, counted from 0, that comes late and twice, or never."""
    what: str = ""
    """LOST: the odd message never comes; AGES: at last, events are older than ids are kept; FAILS: an effect is refused
    once; OPERATOR: somebody gives up what is in the way; OLD: a read may be older than the newest write; DISCARD:
    somebody discards a message that was set aside and may come again, of which nothing is known here, and at last age
    gives up what is in the way."""

    @property
    def ages(self) -> bool:
        """Whether a long time passes at last."""
        return self.what in (LOST, AGES, DISCARD)

    unsure: Unsure = Unsure.RUN_AGAIN

    def __str__(self) -> str:
        return f"{self.events}, message {self.odd} {self.what or 'LATE'}, {self.unsure.name}"


@cache
def messages(letters: str) -> tuple[Event, ...]:
    """The messages of a story, in the order in which they are sent."""
    found: list[Event] = []
    sequence = 0
    for letter in letters:
        sequence += letter != "Q"
        for action in {"N": [NOTICE], "B": ["E", NOTICE]}.get(letter, ["E"]):
            place = None if letter == "Q" else sequence
            found.append(Event(f"{len(found)}{action}", KEY, action, place, _EPOCH, {}))
    return tuple(found)


class Ledger(NamedTuple):
    """What is stored."""

    marker: EffectMarker = EffectMarker()
    marks: tuple[Mark | None, ...] = ()


_NOTHING = SeenMark(EffectMarker(), None)


class Doing(NamedTuple):
    """What a process is about to do for one message (``by_timer``: for a mark that waits)."""

    step: str
    message: int
    by_timer: bool = False
    seen: SeenMark = _NOTHING
    change: MarkChange | None = None
    repeats: bool = False
    """The next read is behind a fence."""


class World(NamedTuple):
    """A state of the model."""

    ledger: Ledger
    left: tuple[int, ...]
    """How often each message will still come."""
    before: Ledger | None = None
    """What a lagging replica may show."""
    processes: tuple[Doing | None, ...] = (None, None)
    ran: frozenset[int] = frozenset()
    excused: frozenset[int] = frozenset()
    """Effects after which a process died, or an answer was lost, before the record."""
    given_up: frozenset[int] = frozenset()
    losses_left: int = 1
    failures_left: int = 0
    discards_left: int = 0
    aged: bool = False
    wrong: str = ""


def first(story: Story) -> World:
    count = len(messages(story.events))
    left = tuple((0 if story.what == LOST else 2) if number == story.odd else 1 for number in range(count))
    ledger = Ledger(EffectMarker(), (None,) * count)
    discards = int(story.what in (OPERATOR, DISCARD))
    return World(ledger, left, failures_left=int(story.what == FAILS), discards_left=discards)


@dataclass(frozen=True)
class Model:
    """The steps of a story; ``off`` is the rule that is not kept."""

    story: Story
    off: Rule | None = None

    def holds(self, rule: Rule) -> bool:
        return self.off is not rule

    @property
    def rules(self) -> EffectRules:
        days = timedelta(days=100)
        rules = EffectRules(5 * days, 6 * days, days, self.story.unsure)
        if not self.holds(Rule.YOUNG_RUNS):
            object.__setattr__(rules, "call_seconds", 0.0)  # which EffectRules itself refuses
        return rules

    def steps(self, world: World) -> Iterator[tuple[str, World]]:
        if world.wrong:
            return
        yield from self._surroundings(world)
        yield from self._operator(world)
        for who, doing in enumerate(world.processes):
            if doing is None:
                yield from self._starts(world, who)
                continue
            yield from getattr(self, f"_{doing.step}")(world, who, doing)
            if world.losses_left:
                yield f"{who} dies", self._died(world, who, doing)

    def _surroundings(self, world: World) -> Iterator[tuple[str, World]]:
        running = any(doing and doing.step in ("run", "record") for doing in world.processes)
        if not running or not self.holds(Rule.CALLS_END):
            later = self._later(world)
            if later != world:
                yield "the longest call is over", later
        idle = not any(world.processes)
        ages = self.story.ages
        if ages and not world.aged and idle:
            yield "a long time passes", self._expired(self._later(world))._replace(aged=True)
        if ages and not world.aged and idle and not self.holds(Rule.IDS_OUTLIVE_EVENTS):
            yield "ids expire", self._expired(world)

    @staticmethod
    def _later(world: World) -> World:
        """What was started is started for too long; what is about to be, will be."""

        def earlier(mark: Mark | None) -> Mark | None:
            started = mark is not None and mark.state is MarkState.STARTED
            return replace(mark, at=_EARLIER) if mark is not None and started else mark

        def slow(doing: Doing | None) -> Doing | None:
            if doing is None:
                return None
            change = doing.change and replace(
                doing.change, mark=earlier(doing.change.mark) or doing.change.mark
            )
            return doing._replace(change=change, seen=SeenMark(doing.seen.marker, earlier(doing.seen.mark)))

        ledgers = [
            each and each._replace(marks=tuple(map(earlier, each.marks)))
            for each in (world.ledger, world.before)
        ]
        first_slow, second_slow = map(slow, world.processes)
        return world._replace(
            ledger=ledgers[0] or world.ledger, before=ledgers[1], processes=(first_slow, second_slow)
        )

    @staticmethod
    def _expired(world: World) -> World:
        left = tuple(None if mark and mark.state.is_over else mark for mark in world.ledger.marks)
        return world._replace(ledger=world.ledger._replace(marks=left), before=None)

    # A message, or the timer

    def _starts(self, world: World, who: int) -> Iterator[tuple[str, World]]:
        for number in range(len(world.left)):
            earlier = (left for each, left in enumerate(world.left[:number]) if each != self.story.odd)
            if world.left[number] and (number == self.story.odd or not any(earlier)):
                yield f"{who} receives {number}", self._with(world, who, Doing("read", number))
        if world.ledger.marker.waiting > 0 and self.holds(Rule.TIMER_FOLLOWS):
            for number, mark in enumerate(world.ledger.marks):
                if mark and mark.waits:
                    yield (
                        f"the timer takes {number}",
                        self._with(world, who, Doing("read", number, by_timer=True, repeats=True)),
                    )

    def _read(self, world: World, who: int, doing: Doing) -> Iterator[tuple[str, World]]:
        versions = [world.ledger] if doing.repeats or world.before is None else [world.ledger, world.before]
        for marker in dict.fromkeys(each.marker for each in versions):
            for mark in dict.fromkeys(each.marks[doing.message] for each in versions):
                seen = SeenMark(marker, mark)
                name = f"{who} reads {seen.marker} and {mark and mark.state}"
                yield name, self._decided(world, who, doing._replace(seen=seen))

    def _decided(self, world: World, who: int, doing: Doing) -> World:
        event = messages(self.story.events)[doing.message]
        if world.aged and self.holds(Rule.TOO_OLD):
            event = replace(event, created_at=_LONG_AGO)
        decision = self._decide(world, doing.seen, event)
        if isinstance(decision, NotNow):
            return self._with(world, who, None if doing.repeats else doing._replace(repeats=True))
        if isinstance(decision, Kept):
            return self._done(world, who, doing)
        if decision.step is Step.START and not self.holds(Rule.START_FIRST):
            return self._with(
                world, who, doing._replace(step="run", seen=SeenMark(decision.marker, decision.mark))
            )
        return self._with(world, who, doing._replace(step="write", change=decision))

    def _write(self, world: World, who: int, doing: Doing) -> Iterator[tuple[str, World]]:
        change = doing.change
        assert change is not None
        same = doing.seen == SeenMark(world.ledger.marker, world.ledger.marks[doing.message])
        if not same and self.holds(Rule.AT_ITS_VERSION):
            again = Doing("read", doing.message, doing.by_timer, repeats=True)
            refused = self._with(world, who, again)
            yield (
                f"{who} is refused",
                refused if self.holds(Rule.DECIDE_AGAIN) else self._done(world, who, doing),
            )
            return
        if not self.holds(Rule.ONE_TRANSACTION):
            half = self._stored(world, change.marker, doing.message, world.ledger.marks[doing.message])
            yield f"{who} writes the marker", self._with(half, who, doing._replace(step="mark"))
            return
        yield f"{who} writes: {change.step.name}", self._written(world, who, doing, change)

    def _mark(self, world: World, who: int, doing: Doing) -> Iterator[tuple[str, World]]:
        """With the rule off: the mark is written after the marker."""
        assert doing.change is not None
        if world.ledger.marks[doing.message] == doing.seen.mark:
            yield f"{who} writes the mark", self._written(world, who, doing, doing.change)

    def _written(self, world: World, who: int, doing: Doing, change: MarkChange) -> World:
        after = self._stored(world, change.marker, doing.message, change.mark)
        if change.step is Step.START:
            begun = SeenMark(EffectMarker(), change.mark)
            return self._with(after, who, doing._replace(step="run", seen=begun, change=None))
        return self._done(after, who, doing)

    def _run(self, world: World, who: int, doing: Doing) -> Iterator[tuple[str, World]]:
        mark, number = doing.seen.mark, doing.message
        assert mark is not None
        if mark.at != _EPOCH and self.holds(Rule.FRESH_START):
            yield f"{who} is too slow to run {number}", self._with(world, who, None)
            return
        if not self.holds(Rule.RECORD_AFTER):
            early = self._recorded(world, doing, MarkState.HANDLED)
            yield f"{who} records {number} too early", self._with(early, who, doing._replace(step="late"))
            return
        ran = self._ran(world, number)
        ended = Doing(
            "record", number, doing.by_timer, doing.seen if self.off is Rule.START_FIRST else _NOTHING
        )
        yield f"the effect of {number} runs", self._with(ran, who, ended)
        if world.failures_left:
            less = world._replace(failures_left=world.failures_left - 1)
            yield f"the effect of {number} is refused", self._failed(less, who, doing)
        if world.losses_left:
            less = _lost(ran)._replace(excused=ran.excused | {number})
            name = f"the effect of {number} runs, answer lost"
            if self.story.unsure is Unsure.RUN_AGAIN:
                yield name, self._failed(less, who, doing)
            else:
                yield name, self._done(self._recorded(less, doing, MarkState.UNCERTAIN), who, doing)

    def _late(self, world: World, who: int, doing: Doing) -> Iterator[tuple[str, World]]:
        """With the rule off: the effect runs after its record."""
        yield f"the effect of {doing.message} runs", self._done(self._ran(world, doing.message), who, doing)

    def _record(self, world: World, who: int, doing: Doing) -> Iterator[tuple[str, World]]:
        after = self._recorded(world, doing, MarkState.HANDLED)
        yield f"{who} records {doing.message}", self._done(after, who, doing)
        if world.losses_left:
            yield f"{who} records {doing.message}, answer lost", self._with(_lost(after), who, None)

    def _recorded(self, world: World, doing: Doing, state: MarkState) -> World:
        mark = world.ledger.marks[doing.message]
        if not self.holds(Rule.START_FIRST):
            mark = doing.seen.mark
        if mark is None or mark.state is not MarkState.STARTED:
            return world  # somebody else answers for the effect
        change = self._counted(world, finished(world.ledger.marker, mark, state, _EPOCH, ""))
        return self._stored(world, change.marker, doing.message, change.mark)

    def _failed(self, world: World, who: int, doing: Doing) -> World:
        mark = world.ledger.marks[doing.message]
        if mark is None or mark.state is not MarkState.STARTED:
            return self._with(world, who, None)
        event = messages(self.story.events)[doing.message]
        change = self._counted(world, failed(world.ledger.marker, mark, event, _EPOCH, ""))
        after = self._stored(world, change.marker, doing.message, change.mark)
        return self._done(after, who, doing)

    # The operator, and age

    def _operator(self, world: World) -> Iterator[tuple[str, World]]:
        less = world._replace(discards_left=world.discards_left - 1)
        if world.discards_left and self.story.what == OPERATOR:
            yield from self._give_up(world, less)
        elif self._gives_up_by_age(world):
            yield from self._give_up(world, world)
        if world.discards_left and self.story.what == DISCARD:
            yield from self._discard(world, less)

    def _discard(self, world: World, after: World) -> Iterator[tuple[str, World]]:
        """A message that was set aside, and of which nothing is known here."""
        for number, event in enumerate(messages(self.story.events)):
            if world.ledger.marks[number] is None and world.left[number]:
                gave = after._replace(given_up=world.given_up | {number})
                if self.holds(Rule.DISCARD_MARKS):
                    unknown = Mark(event.id, MarkState.WAITING, event.sequence, _EPOCH)
                    change = given_up(world.ledger.marker, unknown, self.rules, _EPOCH, "")
                    gave = self._stored(gave, change.marker, number, change.mark)
                yield f"the message of {number} is discarded", gave

    def _gives_up_by_age(self, world: World) -> bool:
        waits = world.aged and not any(world.processes) and world.ledger.marker.waiting > 0
        return waits and self.holds(Rule.AGE_GIVES_UP)

    def _give_up(self, world: World, after: World) -> Iterator[tuple[str, World]]:
        """An event that waits, or the place that is next and has none."""
        marker, place = world.ledger.marker, next_place(world.ledger.marker)
        all_events = messages(self.story.events)
        missing = not marker.running and place <= max(event.sequence or 0 for event in all_events)
        for number, (event, mark) in enumerate(zip(all_events, world.ledger.marks, strict=True)):
            if mark is None or mark.state.is_over:
                continue
            here = event.sequence in (None, place) or not self.holds(Rule.ONLY_IN_TURN)
            missing = missing and event.sequence != place
            young = mark.state is MarkState.STARTED and mark.at == _EPOCH
            if here and not young and (event.sequence is None or marker.running in (None, event.id)):
                started = mark.state is MarkState.STARTED
                state = MarkState.UNCERTAIN if started else MarkState.DISCARDED
                change = self._counted(world, finished(marker, mark, state, _EPOCH, ""))
                gave = after._replace(given_up=world.given_up | {number})
                yield f"{number} is given up", self._stored(gave, change.marker, number, change.mark)
        if missing:
            gone = {number for number, event in enumerate(all_events) if event.sequence == place}
            passed = world.ledger._replace(marker=replace(marker, last=place, version="stored"))
            gave = after._replace(ledger=passed, given_up=world.given_up | gone)
            yield f"place {place} is passed over", gave._replace(before=self._before(world))

    def _before(self, world: World) -> Ledger | None:
        return world.ledger if self.story.what == OLD else None

    # What they share

    def _decide(self, world: World, seen: SeenMark, event: Event) -> Kept | NotNow | MarkChange:
        """The decision of the inbox, or a wrong one in its place."""
        call = EffectCall(_EPOCH, "")
        marker, mark, place = seen.marker, seen.mark, event.sequence
        if self.off is Rule.OVER_IS_FINAL and mark and mark.state.is_over:
            seen = SeenMark(marker, replace(mark, state=MarkState.WAITING))
        if self.off is Rule.NOTICE_PASSES:
            event = replace(event, action="E")
        wrong_marker = None
        if place and self.off is Rule.PASSED and place <= (marker.last or 0):
            wrong_marker = replace(marker, last=place - 1)
        if place and self.off is Rule.NEXT_ONLY and place > next_place(marker) and not marker.running:
            wrong_marker = replace(marker, last=place - 1)
        if self.off is Rule.ONE_IN_A_PLACE and marker.running not in (None, event.id):
            wrong_marker = replace(marker, running=None)
        decision = decide(SeenMark(wrong_marker or seen.marker, seen.mark), event, self.rules, call)
        if isinstance(decision, MarkChange):
            if wrong_marker is not None and decision.step is Step.START:
                decision = replace(decision, marker=replace(decision.marker, last=marker.last))
            if self.off is Rule.GAP_WAITS and decision.step is Step.WAIT:
                return Kept.WAITS
            return self._counted(world, decision)
        return decision

    def _counted(self, world: World, change: MarkChange) -> MarkChange:
        if self.holds(Rule.COUNT_HOLDS):
            return change
        return replace(change, marker=replace(change.marker, waiting=world.ledger.marker.waiting))

    def _stored(self, world: World, marker: EffectMarker, number: int, mark: Mark | None) -> World:
        marks = [*world.ledger.marks]
        if mark is not None and mark.state is not MarkState.STARTED:
            mark = replace(mark, at=_EPOCH, failing_since=None, failures=0, reason="")  # as the same states
        marks[number] = mark and replace(mark, version="stored")
        ledger = Ledger(replace(marker, version="stored"), tuple(marks))
        return world._replace(ledger=ledger, before=self._before(world))

    def _ran(self, world: World, number: int) -> World:
        event = messages(self.story.events)[number]
        wrong = ""
        if event.is_notice:
            wrong = f"a notice has an effect: {number}"
        if number in world.ran and number not in world.excused:
            wrong = f"the effect of {number} runs twice, and no process died and no answer was lost"
        if number in world.given_up:
            wrong = f"the effect of {number} runs after it was given up"
        later = [
            each for each in world.ran
            if event.sequence and (messages(self.story.events)[each].sequence or 0) > event.sequence
        ]  # fmt: skip
        if later:
            wrong = f"the effect of {number} runs after that of {later}"
        return world._replace(ran=world.ran | {number}, wrong=wrong)

    def _done(self, world: World, who: int, doing: Doing) -> World:
        """The message is completed."""
        left = [*world.left]
        if not doing.by_timer:
            left[doing.message] = max(0, left[doing.message] - 1)
        return self._with(world._replace(left=tuple(left)), who, None)

    def _died(self, world: World, who: int, doing: Doing) -> World:
        excused = world.excused
        if doing.step in ("record", "late"):
            excused |= {doing.message}
        return self._with(_lost(world)._replace(excused=excused), who, None)

    @staticmethod
    def _with(world: World, who: int, doing: Doing | None) -> World:
        processes = [*world.processes]
        processes[who] = doing
        return world._replace(processes=tuple(sorted(processes, key=hash)))

    def wrong(self, world: World) -> str | None:
        """What is wrong with a state."""
        if world.wrong:
            return world.wrong
        marker, held = world.ledger.marker, [mark for mark in world.ledger.marks if mark and mark.waits]
        if self.off not in (Rule.COUNT_HOLDS, Rule.ONE_TRANSACTION) and marker.waiting != len(held):
            return f"{marker.waiting} are counted, and {len(held)} wait"
        for number, event in enumerate(messages(self.story.events)):
            if self._is_left_out(world, number, event):
                return f"event {number} is passed, and its effect never ran"
        return f"{len(held)} wait for ever" if self._waits_for_ever(world) else None

    def _is_left_out(self, world: World, number: int, event: Event) -> bool:
        mark, last = world.ledger.marks[number], world.ledger.marker.last or 0
        unsure = mark is not None and mark.state is MarkState.UNCERTAIN
        passed = event.sequence is not None and event.sequence <= last
        same_place = [each for each in messages(self.story.events) if each.sequence == event.sequence]
        noticed = any(each.is_notice for each in same_place)  # one of the two stands for both
        late = any(doing and doing.step == "late" for doing in world.processes)
        ended = passed or (self._is_at_rest(world) and (mark is None or not mark.waits))
        dealt_with = number in world.ran or number in world.given_up or unsure or noticed
        return ended and not dealt_with and not late and not world.aged

    def _is_at_rest(self, world: World) -> bool:
        return not any(world.left) and not any(world.processes) and self.story.what != LOST

    def _waits_for_ever(self, world: World) -> bool:
        """Nothing will come any more, and the timer moves nothing."""
        ages = self.story.ages
        idle = not any(world.left) and not any(world.processes) and (world.aged or not ages)
        if not idle or self._gives_up_by_age(world):
            return False
        ledger, found = world.ledger, enumerate(messages(self.story.events))
        held = [(event, ledger.marks[number]) for number, event in found if _holds(ledger.marks[number])]
        if not held:
            return False
        if not self.holds(Rule.TIMER_FOLLOWS) or not ledger.marker.waiting:
            return True
        aged = [(replace(event, created_at=_LONG_AGO) if world.aged else event, mark) for event, mark in held]
        return all(
            isinstance(self._decide(world, SeenMark(ledger.marker, mark), event), Kept)
            for event, mark in aged
        )


def _holds(mark: Mark | None) -> bool:
    return mark is not None and mark.waits is not None


def _lost(world: World) -> World:
    return world._replace(losses_left=world.losses_left - 1)
