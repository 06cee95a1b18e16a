"""Checks the promises that follow from a declaration, each by one rule over a run's records.

A violation that ``may_pass`` can end by waiting; a wrong projection of an event cannot.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

from cosmos_outbox.kernel.aggregate_key import AggregateKey
from cosmos_outbox.outbox.canonical import as_sent
from outbox_simulation.derived_invariants.found import LeftBehind, ReactionFound, ReadModelFound, StoredEvent
from outbox_simulation.invariants.violation import Violation

MOST_SHOWN = 200
"""The number of a state's characters in a message."""


def broken(found: LeftBehind) -> list[Violation]:
    """Returns everything that is wrong."""
    events = found.events()
    return [
        *_requests(found),
        *_without_gap(events),
        *_as_far(found, events),
        *_published(found, events),
        *(each for model in found.read_models for each in projected(model, found)),
        *(each for model in found.read_models for each in _at_rest(model)),
        *_effects(found, events),
        *(each for reaction in found.reactions for each in _reaction(reaction, found, events)),
    ]


def _requests(found: LeftBehind) -> Iterator[Violation]:
    """Checks that answers match what was stored."""
    stored = Counter(
        event.cause
        for change in found.changes
        for event in change.events
        if not event.data.get("causationId")  # a reaction's events have the same correlation id
    )
    for each in found.outcomes:
        if each.outcome == "acknowledged" and each.events not in (None, stored[each.cause]):
            detail = (
                f"{each.about} by {each.cause}: {each.events} event(s) answered, {stored[each.cause]} stored"
            )
            yield Violation("acknowledged, and not stored", detail)
        if each.outcome == "refused" and stored[each.cause]:
            yield Violation("refused, and done", f"{each.about} by {each.cause}")
    yield from _keyed(found, stored)


def _keyed(found: LeftBehind, stored: Mapping[str, int]) -> Iterator[Violation]:
    """Checks that a change with a key happens once, and each repetition gets the first answer."""
    for operation in dict.fromkeys(each.keyed for each in found.outcomes if each.keyed):
        attempts = [each for each in found.outcomes if each.keyed == operation]
        about = f"{attempts[0].about} by {operation}"
        if (times := sum(stored[each.cause] > 0 for each in attempts)) > 1:
            yield Violation("keyed change twice", f"{about}: stored {times} times")
        if times and any(each.decided for each in attempts):
            yield Violation(
                "keyed change answered otherwise", f"{about}: done, and refused when it was repeated"
            )


def _without_gap(events: Mapping[AggregateKey, list[StoredEvent]]) -> Iterator[Violation]:
    for key, each in events.items():
        numbers = [event.sequence for event in each if event.sequence is not None]
        if numbers != [*range(1, len(numbers) + 1)]:
            yield Violation("gap", f"{key}: its events have the sequences {numbers}")


def _as_far(found: LeftBehind, events: Mapping[AggregateKey, list[StoredEvent]]) -> Iterator[Violation]:
    """Checks that an aggregate's sequence is that of its last event."""
    for key, aggregate in found.aggregates.items():
        last = max((event.sequence or 0 for event in events.get(key, ())), default=0)
        if aggregate.sequence is not None and aggregate.sequence != last:
            yield Violation(
                "aggregate without its events", f"{key}: at {aggregate.sequence}, its events at {last}"
            )


def _published(found: LeftBehind, events: Mapping[AggregateKey, list[StoredEvent]]) -> Iterator[Violation]:
    """Checks that each event is published at least once, as it was committed, and first in order."""
    bodies = {message.id: message for message in reversed(found.taken)}
    for key, each in events.items():
        missing = [event for event in each if event.id not in bodies]
        for event in missing:
            yield Violation("lost event", f"{event.action} {event.sequence} of {key}", may_pass=True)
        for event in each:
            if event.id in bodies and as_sent(bodies[event.id].data) != as_sent(event.data):
                yield Violation("message differs", f"{event.action} {event.sequence} of {key}")
        if not missing and all(event.sequence for event in each):
            ids = {event.id: event.sequence for event in each}
            first = [
                ids[each] for each in dict.fromkeys(message.id for message in found.taken) if each in ids
            ]
            if any((before or 0) > (after or 0) for before, after in pairwise(first)):
                yield Violation("order", f"{key}: published in the order {first}")


def projected(model: ReadModelFound, found: LeftBehind) -> Iterator[Violation]:
    """Checks that a transaction's events project the entry of the state before onto that of the state after."""
    before: dict[AggregateKey, Any] = {}
    for change in found.changes:
        events = [each for each in change.events if each.aggregate.type == model.aggregate_type]
        if not events or change.document is None:
            continue
        key = events[0].aggregate
        deleted = bool(change.document.get("deleted"))
        after = None if deleted else model.state_of(change.document)
        if key in before:
            yield from _projected(model, key, before[key], events, after)
        before[key] = after


def _projected(
    model: ReadModelFound, key: AggregateKey, state: Any, events: list[StoredEvent], wanted: Any
) -> Iterator[Violation]:
    began = state
    for event in events:
        if state is None:
            return
        try:
            after = model.project(state, event.message())
        except Exception as error:  # noqa: BLE001 - the user's own code may raise anything
            yield Violation("projection fails", f"{model.name}: {event.action} of {key}: {error!r}")
            return
        if after is None:  # the projection reads the source
            return
        state = after.state
    if state != wanted:
        detail = ", ".join(event.action for event in events)
        yield Violation(
            "projection differs",
            f"{model.name}: {detail} of {key} on {_shown(began)} gives {_shown(state)}; the aggregate's own state "
            f"gives {_shown(wanted)}",
        )


def _at_rest(model: ReadModelFound) -> Iterator[Violation]:
    """Checks that every entry equals its aggregate at rest, whatever faults there were."""
    for name in sorted(model.entries.keys() - model.sources.keys()):
        if not model.entries[name].get("deleted"):
            yield Violation("read model", f"{model.name}: {name} is shown, and is not there", may_pass=True)
    for name, source in sorted(model.sources.items()):
        entry = model.entries.get(name)
        wanted = None if source.deleted else model.state_of(source.document)
        if entry is None:
            if wanted is not None:
                yield Violation("read model", f"{model.name}: {name} is not shown", may_pass=True)
            continue
        shown = None if entry.get("deleted") else model.read(entry)
        if shown != wanted:
            detail = f"{model.name}: {name} is shown as {_shown(shown)}, and is {_shown(wanted)}"
            # A walk would hide a wrong projection of its events.
            wrong = None not in (shown, wanted) and source.sequence == entry.get("lastSequence")
            yield Violation("read model", detail, may_pass=not wrong)
        elif wanted is not None and source.sequence not in (None, entry.get("lastSequence")):
            detail = (
                f"{model.name}: {name} is shown at {entry.get('lastSequence')}, and is at {source.sequence}"
            )
            yield Violation("read model", detail, may_pass=True)


def _effects(found: LeftBehind, events: Mapping[AggregateKey, list[StoredEvent]]) -> Iterator[Violation]:
    """Checks that each effect is asked for, for each stored event and no other, first in order."""
    known = {event.id: event for each in events.values() for event in each}
    for name, (kind, asked, actions) in found.effects.items():
        for event in known.values():
            wanted = event.aggregate.type == kind and (actions is None or event.action in actions)
            if wanted and event.id not in asked:
                detail = f"{name}: {event.action} {event.sequence} of {event.aggregate}"
                yield Violation("effect not asked for", detail, may_pass=True)
        for event_id in dict.fromkeys(asked):
            if event_id not in known or not (actions is None or known[event_id].action in actions):
                yield Violation("effect of no event", f"{name}: {event_id}")
        if found.in_order:
            yield from _in_order(
                name, [known[event_id] for event_id in dict.fromkeys(asked) if event_id in known]
            )


def _in_order(name: str, first_runs: list[StoredEvent]) -> Iterator[Violation]:
    places: dict[AggregateKey, list[int]] = {}
    for each in first_runs:
        if each.sequence is not None:
            places.setdefault(each.aggregate, []).append(each.sequence)
    for key, order in places.items():
        if order != sorted(order):
            yield Violation("effects out of order", f"{name}: {key} in the order {order}")


def _reaction(
    reaction: ReactionFound, found: LeftBehind, events: Mapping[AggregateKey, list[StoredEvent]]
) -> Iterator[Violation]:
    """Checks that each reaction happens once by its record, in the declared order."""
    for failure in reaction.failures:
        yield Violation("target fails", f"{reaction.name}: {failure}")
    done = [
        (change.events[0].aggregate, str(change.events[0].data["causationId"]))
        for change in found.changes
        if change.events[0].data.get("causationId") and change.reaction in ("", reaction.name)
    ]
    for (key, cause), times in Counter(done).items():
        if times > 1:
            yield Violation("reaction twice", f"{reaction.name}: {cause} has changed {key} {times} times")
    for cause, targets in reaction.wanted.items():
        for key, record in targets:
            outcome, detail = reaction.outcomes.get(record), f"{reaction.name}: {cause} at {key}"
            if outcome is None:
                yield Violation("reaction left out", detail, may_pass=True)
            elif (outcome == "applied") != ((key, cause) in done):
                yield Violation("reaction reported, and not done", f"{detail}: {outcome}")
    for key, cause in done:
        if cause in reaction.wanted and key not in _targets(reaction, cause):
            yield Violation("reaction at another target", f"{reaction.name}: {cause} has changed {key}")
    yield from _out_of_order(reaction, done, events)


def _out_of_order(
    reaction: ReactionFound,
    done: Sequence[tuple[AggregateKey, str]],
    events: Mapping[AggregateKey, list[StoredEvent]],
) -> Iterator[Violation]:
    sequences = {event.id: event.sequence or 0 for each in events.values() for event in each}
    sources = {event.id: event.aggregate for each in events.values() for event in each}
    ordered = [
        (key, sources[cause], sequences[cause]) for key, cause in done if key in _targets(reaction, cause)
    ]
    for key, source in (
        dict.fromkeys(each[:2] for each in ordered) if reaction.each or reaction.newest else ()
    ):
        order = [sequence for *of, sequence in ordered if of == [key, source]]
        if order != sorted(order) or (reaction.each and order != [*range(1, len(order) + 1)]):
            yield Violation("reactions out of order", f"{reaction.name}: {key} by {order} of {source}")


def _targets(reaction: ReactionFound, cause: str) -> list[AggregateKey]:
    return [key for key, _ in reaction.wanted.get(cause, ())]


def _shown(state: Any) -> str:
    text = "nothing" if state is None else repr(state)
    return text if len(text) <= MOST_SHOWN else f"{text[:MOST_SHOWN]}..."
