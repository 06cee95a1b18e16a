"""Effects run in the order of their events, and an effect runs twice only if nobody knows what became of it.

What is decided here is decided over a marker and a mark that may be old reads. Whatever it leads to is written at the
versions that were read, both in one transaction; what needs no write is true of every newer version too.

====================  ===============================================================================================
``over-is-final``     An event whose mark is over is never run.
``passed``            Nor is one whose sequence the marker has passed.
``next-only``         An effect is started only if its sequence is the next.
``one-in-a-place``    And only if no other event was started in its place.
``gap-waits``         An event that is not the next waits; no reading of the source takes the place of an effect.
``start-first``       The mark "started" is stored before the effect runs.
``young-runs``        An effect that was started within the longest call is running.
``too-old``           An event that is older than ids are kept is never run by itself: its id may be forgotten.
``notice-passes``     A notice counts as handled, at its sequence.
``count-holds``       The marker counts the marks that hold an event.
====================  ===============================================================================================
"""

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import Enum

from cosmos_outbox.inbox.effect import Begin, EffectMarker, EffectRules, Mark, MarkState, SeenMark, Unsure
from cosmos_outbox.inbox.event import Event


class Kept(Enum):
    """Why nothing is to be done for an event."""

    OVER = "was dealt with before"
    PASSED = "has a sequence that is passed"
    WAITS = "waits already"


class NotNow(Enum):
    """Why nothing can be done now."""

    ELSEWHERE = "its effect is running, or its process died"


class Step(Enum):
    """What is written, and what comes after it."""

    START = "started: run the effect"
    WAIT = "waits for its turn"
    OVER = "its place is passed"
    UNSURE = "may have been handled"


@dataclass(frozen=True)
class MarkChange:
    """Write marker and mark in one transaction, each at its version."""

    step: Step
    marker: EffectMarker
    mark: Mark


@dataclass(frozen=True)
class EffectCall:
    """Who decides, and when."""

    now: datetime
    by: str
    asked: bool = False
    """An operator wants the event to be run, however old it is."""


def decide(seen: SeenMark, event: Event, rules: EffectRules, call: EffectCall) -> Kept | NotNow | MarkChange:
    """What an event means for what is known."""
    old = not call.asked and event.age(call.now) >= rules.events_come_for  # too-old
    known = _known(seen, event, rules, call.now)
    if known is not None:
        return known
    marker, mark = seen.marker, seen.mark
    if mark is not None and mark.state is MarkState.STARTED and (old or rules.unsure is Unsure.SET_ASIDE):
        reason = "its process died, or its answer was lost"
        unsure = finished(marker, replace(mark, kept=event), MarkState.UNCERTAIN, call.now, reason)
        return replace(unsure, step=Step.UNSURE)
    if old or not _is_next(marker, event.id, event.sequence, rules.begin):
        return Kept.WAITS if mark is not None else _waits(marker, event, call.now, old=old)  # next-only
    mark = mark or Mark(event.id, MarkState.WAITING, event.sequence, call.now)
    if event.is_notice:
        return finished(marker, mark, MarkState.HANDLED, call.now, "it is a notice")  # notice-passes
    running = marker.running if event.sequence is None else event.id
    started = replace(mark, state=MarkState.STARTED, at=call.now, by=call.by)  # start-first
    return MarkChange(Step.START, replace(marker, running=running), started)


def _known(
    seen: SeenMark, event: Event, rules: EffectRules, now: datetime
) -> Kept | NotNow | MarkChange | None:
    """What is known of the event already; None: it may be run, or run again."""
    marker, mark = seen.marker, seen.mark
    if mark is not None and mark.state.is_over:
        return Kept.OVER  # over-is-final
    if is_passed(marker, event.sequence):  # passed
        return (
            finished(marker, mark, MarkState.DISCARDED, now, "its place is passed") if mark else Kept.PASSED
        )
    if mark is not None and mark.state is MarkState.STARTED and is_young(mark, rules, now):
        return NotNow.ELSEWHERE  # young-runs
    return None


def is_passed(marker: EffectMarker, sequence: int | None) -> bool:
    """Whether the aggregate has gone by this place."""
    return sequence is not None and marker.last is not None and sequence <= marker.last


def is_young(mark: Mark, rules: EffectRules, now: datetime) -> bool:
    """Whether the call that started an effect may still be at it."""
    return now - mark.at < timedelta(seconds=rules.call_seconds)


def finished(marker: EffectMarker, mark: Mark, state: MarkState, now: datetime, reason: str) -> MarkChange:
    """The mark is over: its place is passed, and the event is kept only if it may have been handled."""
    kept = (mark.kept or mark.waits) if state is MarkState.UNCERTAIN else None
    by = mark.by if state is MarkState.HANDLED else ""  # own-record
    over = replace(mark, state=state, at=now, waits=None, kept=kept, by=by, reason=reason)
    after = replace(marker, waiting=marker.waiting - (mark.waits is not None))  # count-holds
    if mark.sequence is not None and mark.sequence > (marker.last or 0):
        after = replace(after, last=mark.sequence, running=None)
    return MarkChange(Step.OVER, after, over)


def given_up(
    marker: EffectMarker, unknown: Mark, rules: EffectRules, now: datetime, reason: str
) -> MarkChange:
    """An event that is not known here is never run (``discard-marks``); its place is passed only if it is the next."""
    over = finished(marker, unknown, MarkState.DISCARDED, now, reason)
    in_turn = _is_next(marker, unknown.event_id, unknown.sequence, rules.begin)
    return over if in_turn else replace(over, marker=marker)


def failed(marker: EffectMarker, mark: Mark, event: Event, now: datetime, reason: str) -> MarkChange:
    """The effect is known to have ended, and may run again: it waits for the timer, at its place."""
    since, failures = mark.failing_since or now, mark.failures + 1
    waits = replace(mark, state=MarkState.WAITING, at=now, waits=event, by="", reason=reason)
    waits = replace(waits, failures=failures, failing_since=since)
    running = None if marker.running == event.id else marker.running
    counted = marker.waiting + (mark.waits is None)  # count-holds
    return MarkChange(Step.WAIT, replace(marker, waiting=counted, running=running), waits)


def _waits(marker: EffectMarker, event: Event, now: datetime, *, old: bool) -> MarkChange:
    reason = "is so old that its id may be forgotten" if old else "comes before an event that is missing"
    mark = Mark(event.id, MarkState.WAITING, event.sequence, now, waits=event, reason=reason)
    return MarkChange(Step.WAIT, replace(marker, waiting=marker.waiting + 1), mark)  # gap-waits, count-holds


def next_place(marker: EffectMarker) -> int:
    """The sequence that is next, for a subscriber that has begun or begins at one."""
    return (marker.last or 0) + 1


def _is_next(marker: EffectMarker, event_id: str, sequence: int | None, begin: Begin) -> bool:
    if sequence is None:
        return True  # by its id alone
    if marker.running not in (None, event_id):
        return False
    first = marker.last is None and begin is Begin.WHERE_SEEN
    return first or sequence == next_place(marker)
