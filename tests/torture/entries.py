"""What a reader of the directory could have seen while the run went on: each version of an entry is judged by itself.

A version says up to which event it goes. It has to be what the contact's events up to that one make; no version goes
back behind an earlier one; no event is applied a second time; a deleted entry stays deleted. The events are those that
the torture test's own subscriber got, from which nobody takes a message away.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

from tests.torture.history import CREATED, DELETED, Event
from tests.torture.journal import Shown
from tests.torture.violation import Violation


def entries(
    shown: Mapping[str, Sequence[Shown]], by_contact: Mapping[str, Sequence[Event]]
) -> Iterator[Violation]:
    """What was wrong with the entries, whatever became of them afterwards: no wait can mend it."""
    for contact, versions in shown.items():
        for before, after in pairwise(versions):
            yield from _step(contact, before, after)
        yield from _states(contact, versions, by_contact.get(contact, ()))


def _step(contact: str, before: Shown, after: Shown) -> Iterator[Violation]:
    if after.sequence < before.sequence:
        yield Violation("entry went back", f"{contact}: from {before.sequence} to {after.sequence}")
    if before.data is None and after.data is not None:
        yield Violation("deleted entry came back", f"{contact}: at sequence {after.sequence}")
    again = after.event is not None and (after.sequence, after.event) == (before.sequence, before.event)
    if again and after.applied_at != before.applied_at:
        yield Violation("applied twice", f"{contact}: event {after.event}, sequence {after.sequence}")


def _states(contact: str, versions: Sequence[Shown], events: Sequence[Event]) -> Iterator[Violation]:
    """Only versions all of whose events have arrived: the others are looked at again."""
    states = _replayed(events)
    for version in versions:
        if version.sequence not in states:
            continue
        wanted = states[version.sequence]
        if version.data is None or wanted is None:
            if version.data is not wanted:
                told, right = (
                    "deleted" if each is None else "not deleted" for each in (version.data, wanted)
                )
                yield Violation(
                    "entry differs from the events", f"{contact}, {version.sequence}: {told}, not {right}"
                )
            continue
        wrong = sorted(name for name, value in wanted.items() if version.data.get(name) != value)
        if wrong:
            yield Violation(
                "entry differs from the events",
                f"{contact}, at sequence {version.sequence}: in {', '.join(wrong)}",
            )


def _replayed(events: Sequence[Event]) -> dict[int, Mapping[str, Any] | None]:
    """An entry after each event, as far as the events are there without a gap; None: deleted."""
    states: dict[int, Mapping[str, Any] | None] = {}
    contact: dict[str, Any] = {}
    for number, event in enumerate(sorted(events, key=lambda event: event.sequence), 1):
        if event.sequence != number:
            break
        if event.action == DELETED:
            states[number] = None
            continue
        told = event.body.get("contact") if event.action == CREATED else event.body
        contact |= {name: told[name] for name in ("name", "email", "company") if told and name in told}
        states[number] = as_an_entry(contact)
    return states


def as_an_entry(contact: Mapping[str, Any]) -> dict[str, Any]:
    """What the directory shows of a contact."""
    name, company = contact.get("name") or {}, contact.get("company") or {}
    return {
        "firstName": name.get("firstName"),
        "lastName": name.get("lastName"),
        "email": contact.get("email"),
        "company": company.get("companyName"),
        "city": company.get("city"),
        "country": company.get("country"),
    }
