"""Checks a read model as its readers could have seen it during the run: each version of an entry by itself.

A version has the sequence of its last event. It has to be what the aggregate's events up to that one make; no version
goes back behind an earlier one; no event is applied a second time; a deleted entry stays deleted. The events are those
of the judges' own subscriber, whose messages are never stolen, or of the store.

At rest every entry equals its aggregate, whatever was killed, set aside, delivered again, parked or discarded.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from math import inf

from outbox_simulation.invariants.language import Language
from outbox_simulation.invariants.records import FinallyListed, SeenEntry
from outbox_simulation.invariants.states import EventStates, States
from outbox_simulation.invariants.violation import Violation

RULE = "read model"
NOT_APPLIED = "completed, and not applied"


def entries(
    shown: Mapping[str, Sequence[SeenEntry]],
    facts: Mapping[str, EventStates],
    language: Language,
    ended: Mapping[str, float],
) -> Iterator[Violation]:
    """Yields the final violations of the entries: waiting cannot end them.

    ``ended``: when each aggregate was deleted: an entry that finds it gone from then on stays at its sequence.
    """
    for aggregate, versions in shown.items():
        for before, after in pairwise(versions):
            yield from _step(aggregate, before, after)
        if aggregate in facts:
            gone_at = ended.get(aggregate, inf)
            judged = [each for each in versions if each.data is not None or each.at < gone_at]
            yield from _states(aggregate, judged, facts[aggregate].states, language)


def _step(aggregate: str, before: SeenEntry, after: SeenEntry) -> Iterator[Violation]:
    if after.sequence < before.sequence:
        yield Violation("entry went back", f"{aggregate}: from {before.sequence} to {after.sequence}")
    if before.data is None and after.data is not None:
        yield Violation("deleted entry came back", f"{aggregate}: at sequence {after.sequence}")
    again = after.event is not None and (after.sequence, after.event) == (before.sequence, before.event)
    if again and after.applied_at != before.applied_at:
        yield Violation("applied twice", f"{aggregate}: event {after.event}, sequence {after.sequence}")


def _states(
    aggregate: str, versions: Sequence[SeenEntry], states: States, language: Language
) -> Iterator[Violation]:
    """Checks only versions all of whose events are known: the others are checked later again."""
    for version in versions:
        if version.sequence not in states:
            continue
        state = states[version.sequence]
        if version.data is None or state is None:
            if version.data is not state:
                says, right = ("deleted" if each is None else "not deleted" for each in (version.data, state))
                yield Violation(
                    "entry differs from the events", f"{aggregate}, {version.sequence}: {says}, not {right}"
                )
            continue
        wanted = language.entry(state)
        wrong = sorted(name for name, value in wanted.items() if version.data.get(name) != value)
        if wrong:
            yield Violation(
                "entry differs from the events",
                f"{aggregate}, at sequence {version.sequence}: in {', '.join(wrong)}",
            )


def at_rest(
    aggregates: Sequence[FinallyListed],
    shown: Sequence[SeenEntry],
    set_aside: Mapping[str, str],
    language: Language,
) -> list[Violation]:
    """Returns what is wrong with the final entries; all of it may pass while they catch up.

    ``set_aside``: the reason for each event that is.
    """
    found = [f"{event} is set aside: {reason}" for event, reason in set_aside.items()]
    living = {each.aggregate: each for each in shown if each.data is not None}
    if len(living) < sum(each.data is not None for each in shown):
        found.append("an entry is listed twice")
    wanted = {each.aggregate: each for each in aggregates}
    found += [f"{gone} is shown, and is not there" for gone in sorted(living.keys() - wanted.keys())]
    for name, aggregate in wanted.items():
        entry = living.get(name)
        if entry is None or entry.data is None:
            found.append(f"{name} is not shown")
            continue
        wrong = [
            each for each, value in language.entry(aggregate.body).items() if entry.data.get(each) != value
        ]
        if aggregate.sequence is not None and entry.sequence != aggregate.sequence:
            wrong.append("sequence")
        if wrong:
            found.append(
                f"{name}, at sequence {entry.sequence} of {aggregate.sequence}, differs in {', '.join(wrong)}"
            )
    return [Violation(RULE, text, may_pass=True) for text in found]
