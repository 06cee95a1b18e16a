"""Effects run in the order of their places: what is decided here is written at the version that was read.

An item may be an old read; what needs no write is true of every newer one too, but for "it runs elsewhere".

=======================  ============================================================================================
``start-first``          "RunningEffect" is written before the effect, with ``last`` the place before it.
``young-runs``           What was started within the longest call is running.
``take-over``            What was started earlier is run again, or passed as "may have been handled".
``ask-between``          Places between ``last`` and the event in hand are asked of the source.
``absence-fenced``       That an event is gone is believed behind a fence alone.
``gone-is-told``         A gone place that a later message has overtaken is told as missing by the write that passes it.
``sweep-leaves-gone``    The sweep leaves it: the broker may be about to deliver it.
``published-only``       What the relay holds back waits.
``discards-asked``       Before a fetched event runs, it is asked whether it was discarded.
``begin-at``             Without an item: begin at the first place that is there and not before ``begin``.
``first-is-kept``        An event from before that place is told, and set aside as refused.
``other-event``          So is another event in a passed place.
``too-old``              And one that is older than items live.
``only-next``            Only the place in the way is given up.
``age-gives-up``         Without a source, age gives up the places before an event that nobody can find.
=======================  ============================================================================================
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from enum import Enum

from cosmos_outbox.inbox.effect import (
    MOST_OPEN,
    EffectItem,
    EffectRules,
    Open,
    RunningEffect,
    Unsure,
    WhyOpen,
)
from cosmos_outbox.inbox.event import Event, utc

AT_ONCE = 100
"""So many places are asked of the source by one query."""

CLOCKS_DIFFER = timedelta(minutes=1)


class By(Enum):
    """Who wants an aggregate to be brought to a place."""

    MESSAGE = "a message has come"
    SWEEP = "the source is there"
    OPERATOR = "an operator wants the event to be run"
    GIVING_UP = "the event of this place is given up"


@dataclass(frozen=True)
class Goal:
    """The place to which an aggregate is to be brought."""

    sequence: int
    event: Event | None
    """Of that place; None: the source is asked for it too."""
    by: By = By.MESSAGE


@dataclass(frozen=True)
class Known:
    """What the source has told in this call."""

    has_source: bool
    asked: range = range(0)
    """The places of which it was asked."""
    proven: int = 0
    """Before this place it was asked behind a fence."""
    events: Mapping[int, Event] = field(default_factory=dict)
    first: int | None = None
    """0: no event is there."""
    discarded: frozenset[str] = frozenset()
    held_after: int | None = None
    cleared: str = ""
    """The event that was found to be published, and not discarded."""


@dataclass(frozen=True)
class EffectCall:
    """Who decides, and when."""

    now: datetime
    by: str


class EffectDone(Enum):
    """Nothing is to be done."""

    PASSED = "its place is passed"
    NOT_ITS_OWN = "another event has its place"
    NOTHING = "no event is there"
    NOW = "this call has done it"


class What(Enum):
    """What has to be known first."""

    FIRST = "where the subscriber begins"
    EVENTS = "the events from this place on"
    PROOF = "the same behind a fence"
    HELD = "what the relay holds back"
    ITEM = "the item behind a fence"


@dataclass(frozen=True)
class Ask:
    """The next step depends on it."""

    what: What
    place: int


@dataclass(frozen=True)
class Refuse:
    """The event is not run by itself."""

    why: str


@dataclass(frozen=True)
class Wait:
    """Nothing can be done before something else has happened."""

    why: str


@dataclass(frozen=True)
class EffectChange:
    """Write the item, then run the effect."""

    item: EffectItem
    run: Event | None = None
    started: bool = False
    """By an earlier write of this call, whose answer was lost: the item is there."""


Step = EffectDone | Ask | Refuse | Wait | EffectChange


def decide(item: EffectItem | None, goal: Goal, known: Known, rules: EffectRules, call: EffectCall) -> Step:
    """What comes next on the way to the place."""
    event, place = goal.event, goal.sequence
    own = None if item is None or item.running is None or item.running.by != call.by else item.running
    if item is not None and own is not None:
        return EffectChange(
            item, event if event and own.sequence == place else known.events[own.sequence], started=True
        )
    if item is not None and place <= item.last:
        return EffectDone.PASSED if event is None else _passed(item, event, goal, rules, call)
    if event and goal.by is By.MESSAGE and rules.has_effect(event) and rules.is_too_old(event, call.now):
        return Refuse("it is older than items live, and may have been handled")
    if item is None:
        return _begin(goal, known, rules, call)
    if item.running is None:
        return _advance(item, item, goal, known, rules, call)
    return _take_over(item, item.running, goal, known, rules, call)


def _begin(goal: Goal, known: Known, rules: EffectRules, call: EffectCall) -> Step:
    """``begin-at``"""
    place = goal.sequence
    if not known.has_source:
        first = 1 if rules.begin is None else place
    elif known.first is None and (place > 1 or goal.event is None):
        return Ask(What.FIRST, place)
    elif known.first == 0 and goal.event is None:
        return EffectDone.NOTHING
    else:
        first = min(known.first or place, place)
    return _advance(None, EffectItem(first - 1, first, call.now), goal, known, rules, call)


def _take_over(  # noqa: PLR0913, PLR0917 - the whole of what is known
    item: EffectItem, running: RunningEffect, goal: Goal, known: Known, rules: EffectRules, call: EffectCall
) -> Step:
    """``young-runs``, ``take-over``; what an operator ran again has its entry still."""
    if _is_young(running, rules, call):
        return Ask(What.ITEM, running.sequence)
    free = replace(item, running=None, at=call.now)
    decided = goal.by in (By.OPERATOR, By.GIVING_UP) and running.sequence == goal.sequence
    if running.sequence > item.last and rules.unsure is Unsure.SET_ASIDE and not decided:
        free = with_open(free, running.sequence, running.event_id, WhyOpen.UNSURE, call.now)
    return _advance(item, free, goal, known, rules, call)


def _passed(item: EffectItem, event: Event, goal: Goal, rules: EffectRules, call: EffectCall) -> Step:
    """The event of a place that is passed."""
    entry = next((each for each in item.open if each.sequence == goal.sequence), None)
    why = _why_refused(item, event, goal.sequence, entry)
    young = item.running is not None and _is_young(item.running, rules, call)
    if goal.by is By.GIVING_UP and entry is not None:
        return _give_up_open(item, goal.sequence, call, young=young)
    if goal.by is By.GIVING_UP:
        return EffectDone.NOT_ITS_OWN if why else EffectDone.PASSED
    if why is None or not rules.has_effect(event):
        return EffectDone.PASSED
    if goal.by is not By.OPERATOR:
        return Refuse(why)
    if young:
        return Ask(What.ITEM, goal.sequence)
    running = RunningEffect(goal.sequence, event.id, call.by, call.now)
    return EffectChange(replace(item, running=running, at=call.now), event)


def _give_up_open(item: EffectItem, place: int, call: EffectCall, *, young: bool) -> Step:
    running = item.running
    if running is None or running.sequence != place:
        return EffectChange(replace(without_open(item, place), at=call.now))
    return (
        Ask(What.ITEM, place)
        if young
        else EffectChange(replace(without_open(item, place), running=None, at=call.now))
    )


def _why_refused(item: EffectItem, event: Event, place: int, entry: Open | None) -> str | None:
    """WhyOpen an event in a passed place is not simply one that was dealt with before."""
    if entry is not None:
        return f"it {entry.why}" if entry.why is WhyOpen.UNSURE else "its place was told as missing"
    if place < item.first:  # first-is-kept
        return f"the subscriber began at place {item.first} of its aggregate"
    if event.is_notice:
        return None
    if place == item.last and item.last_event_id:
        other = item.last_event_id != event.id
    else:  # its own clock may be ahead, as that of the last event is
        other = utc(event.created_at) > max(item.at, item.last_created_at or item.at) + CLOCKS_DIFFER
    if other:  # other-event
        return (
            "another event was in its place. The publisher's store was restored, or two publishers write this "
            "aggregate: see docs/operate/restore.md"
        )
    return None


def _advance(  # noqa: PLR0913, PLR0917 - the whole of what is known
    stored: EffectItem | None,
    item: EffectItem,
    goal: Goal,
    known: Known,
    rules: EffectRules,
    call: EffectCall,
) -> Step:
    """Pass what has no effect, up to the next that has one."""
    while item.last < goal.sequence:
        place = item.last + 1
        own = place == goal.sequence and goal.event is not None
        event = goal.event if own else known.events.get(place)
        if event is None:
            gap = _gap(stored, item, goal, known, rules, call)
            if not isinstance(gap, EffectItem):
                return gap
            item = gap
        elif (own and goal.by is By.GIVING_UP) or not rules.has_effect(event) or event.id in known.discarded:
            item = passed(item, event, call.now)
        elif known.held_after is not None and place > known.held_after and not own:
            return _before(stored, item, Wait(f"its publisher holds back place {place}"))
        elif not own and known.cleared != event.id:
            return Ask(What.HELD, place)
        elif len(item.open) >= MOST_OPEN:
            return _before(stored, item, _held_up())
        else:
            running = RunningEffect(place, event.id, call.by, call.now)
            return EffectChange(replace(item, running=running, at=call.now), event)
    return EffectChange(item)


def _gap(  # noqa: PLR0913, PLR0917 - as above
    stored: EffectItem | None,
    item: EffectItem,
    goal: Goal,
    known: Known,
    rules: EffectRules,
    call: EffectCall,
) -> EffectItem | Step:
    """The event of the next place is not in hand: the item that has passed the place, or what comes first."""
    place = item.last + 1
    if known.has_source:
        if place not in known.asked:
            return Ask(What.EVENTS, place)
        if place >= known.proven:
            return Ask(What.PROOF, place)
        if goal.event is None:
            return _before(stored, item, Wait(f"the event of place {place} is gone, and has not come"))
    elif goal.event is None or goal.by is not By.MESSAGE or goal.event.age(call.now) < rules.events_live:
        return _before(stored, item, Wait(f"place {place} comes first, and its event has not come"))
    if len(item.open) >= MOST_OPEN:
        return _before(stored, item, _held_up())
    died = stored is not None and stored.running is not None and stored.running.sequence == place
    return with_open(item, place, "", WhyOpen.UNSURE if died else WhyOpen.MISSING, call.now)


def _before(stored: EffectItem | None, item: EffectItem, wait: Wait) -> Step:
    """What was passed on the way is written first."""
    return wait if item is stored or (stored is None and item.last < item.first) else EffectChange(item)


def _held_up() -> Wait:
    return Wait(f"{MOST_OPEN} effects of its aggregate are for an operator first: cosmos-outbox effects")


def _is_young(running: RunningEffect, rules: EffectRules, call: EffectCall) -> bool:
    return call.now - running.at < timedelta(seconds=rules.call_seconds)


def passed(item: EffectItem, event: Event, now: datetime) -> EffectItem:
    """The item, after the event's place."""
    event_id = "" if event.is_notice else event.id
    created_at = utc(event.created_at)
    return replace(item, last=event.sequence or 1, last_event_id=event_id, last_created_at=created_at, at=now)


def recorded(item: EffectItem, event: Event, now: datetime) -> EffectItem:
    """The item, after the effect (``record-after``); of one that was run again, its entry is gone."""
    place = event.sequence or 1
    free = replace(without_open(item, place), running=None, at=now)
    return passed(free, event, now) if place > item.last else free


def with_open(item: EffectItem, place: int, event_id: str, why: WhyOpen, now: datetime) -> EffectItem:
    """The item, with a place of which an operator is told (``gone-is-told``)."""
    told = (*without_open(item, place).open, Open(place, event_id, why, now))
    if place <= item.last:
        return replace(item, open=told, at=now)
    return replace(item, last=place, last_event_id=event_id, open=told, at=now)


def without_open(item: EffectItem, place: int) -> EffectItem:
    """The item, without that place."""
    return replace(item, open=tuple(each for each in item.open if each.sequence != place))
