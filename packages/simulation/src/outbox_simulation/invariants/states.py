"""Derives each aggregate's state after each of its events, and compares the final list with it."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from outbox_simulation.invariants.history import History, SeenEvent
from outbox_simulation.invariants.language import Language, State
from outbox_simulation.invariants.records import FinallyListed
from outbox_simulation.invariants.violation import Violation

States = Mapping[int, State | None]
"""The states by sequence; None: deleted."""


@dataclass(frozen=True)
class EventStates:
    """The states that result from an aggregate's events."""

    states: States
    """The states as far as the events are known without a gap."""
    last: tuple[int, State | None]
    """The sequence and the state after all of them."""


def event_states(
    history: History, by_aggregate: Mapping[str, Sequence[SeenEvent]], language: Language
) -> dict[str, EventStates]:
    """Returns each aggregate's states: by what the store took if it is watched, else by what subscribers got."""
    steps: dict[str, list[tuple[int, str, State]]] = {}
    if history.stored:
        for stored in history.stored.values():
            steps.setdefault(stored.aggregate, []).append((stored.sequence, stored.action, stored.body))
    else:
        for aggregate, events in by_aggregate.items():
            steps[aggregate] = [(event.sequence, event.action, event.body) for event in events]
    return {aggregate: _replayed(each, language) for aggregate, each in steps.items()}


def _replayed(steps: Sequence[tuple[int, str, State]], language: Language) -> EventStates:
    states: dict[int, State | None] = {}
    state: State | None = {}
    sequence = 0
    for sequence, action, body in sorted(steps, key=lambda step: step[0]):
        if action == language.deleted:
            state = None
        elif state is not None:  # another rule checks events after the end
            state = language.after(state, action, body)
        if sequence == len(states) + 1:
            states[sequence] = state
    return EventStates(states, (sequence, state))


def final_state(
    found: Sequence[FinallyListed], facts: Mapping[str, EventStates], language: Language
) -> Iterator[Violation]:
    """Yields what the final list shows too much, too little or other than the events."""
    listed = Counter(each.aggregate for each in found)
    for aggregate, times in listed.items():
        if times > 1:
            yield Violation("doubled aggregate", f"{aggregate} is listed {times} times")
    last = {aggregate: each.last for aggregate, each in facts.items()}
    expected = {aggregate: (at, state) for aggregate, (at, state) in last.items() if state is not None}
    for aggregate in sorted(expected.keys() - listed.keys()):
        yield Violation("lost aggregate", f"{aggregate} is not in the final list", may_pass=True)
    for aggregate in sorted(listed.keys() - expected.keys()):
        yield Violation("aggregate without its events", f"{aggregate} is in the final list", may_pass=True)
    for each in found:
        if each.aggregate not in expected:
            continue
        at, state = expected[each.aggregate]
        shown, wanted = language.values(each.body), language.values(state)
        if shown != wanted:
            yield Violation(
                "state differs from the events", f"{each.aggregate}: {shown}, not {wanted}", may_pass=True
            )
        elif each.sequence not in (None, at):
            yield Violation(
                "state differs from the events",
                f"{each.aggregate}: at sequence {each.sequence}, not {at}",
                may_pass=True,
            )
