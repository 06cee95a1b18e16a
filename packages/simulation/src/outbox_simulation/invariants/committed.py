"""Checks that subscribers get what the store took: each event, as it was stored, and nothing else.

These rules apply only if the store is watched. An event may be missing if it was discarded: an operator asked for that,
and its skip marker replaces it; or if no relay ran as long as it lived. An unconfirmed attempt to discard it excuses
nothing.
"""

from collections.abc import Iterator, Mapping, Sequence

from outbox_simulation.invariants.history import History, Operation, SeenEvent
from outbox_simulation.invariants.violation import Violation


def excused(history: History) -> set[str]:
    """Returns the stored events that nobody gets, since they were discarded before they were sent."""
    return {
        each
        for each in history.skip_markers()
        if each in history.stored and each in history.discarding and each not in history.deliveries
    }


def committed(
    history: History, events: Sequence[SeenEvent], operations: Mapping[str, Operation]
) -> Iterator[Violation]:
    """Yields the differences between the store and the topic."""
    if history.stored:
        yield from _stored(history, {event.id: event for event in events}, operations)
        yield from _sent(history, events)


def _stored(
    history: History, sent: Mapping[str, SeenEvent], operations: Mapping[str, Operation]
) -> Iterator[Violation]:
    outcomes = {each.cause: each.outcome for operation in operations.values() for each in operation.attempts}
    given_up = excused(history) | history.expired
    for stored in history.stored.values():
        what = f"{stored.action} {stored.event} (sequence {stored.sequence}) of {stored.aggregate}"
        if outcomes.get(str(stored.body.get("correlationId"))) == "refused" and stored.event not in sent:
            yield Violation("refused, and done", f"{what}: its request was refused")
        if stored.event in given_up:
            continue
        if stored.event not in sent:
            yield Violation("lost event", f"{what}: stored, and never sent", may_pass=True)
            continue
        event = sent[stored.event]
        facts = (event.aggregate, event.action, event.sequence, event.body)
        if facts != (stored.aggregate, stored.action, stored.sequence, stored.body):
            yield Violation("message and store differ", str(event))


def _sent(history: History, events: Sequence[SeenEvent]) -> Iterator[Violation]:
    skip_markers = history.skip_markers()
    for event in events:
        if event.id not in history.stored:
            yield Violation("sent, and never stored", str(event))
        if event.id in history.expired:
            yield Violation("sent, and expired", str(event))
        yield from discarded_before(event, skip_markers.get(event.id, ()), history)


def discarded_before(
    event: SeenEvent, skip_markers: Sequence[SeenEvent], history: History
) -> Iterator[Violation]:
    """Yields an event that came after its skip marker, or after an operator knew that it never would come."""
    if skip_markers and event.first.broker_number > skip_markers[0].first.broker_number:
        yield Violation("sent after it was discarded", str(event))
    elif any(each.at > history.gone.get(event.id, each.at) for each in event.deliveries):
        yield Violation(
            "sent after it was discarded", f"{event}: an operator got the answer that it was done"
        )
