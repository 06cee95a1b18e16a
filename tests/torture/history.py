"""The journals of one run, put in order: operations with their attempts, and events with their deliveries.

This module judges nothing and leaves nothing out.
"""

import hashlib
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from tests.torture.journal import (
    Answered,
    Attempted,
    Call,
    Completed,
    Delivered,
    Discarded,
    Found,
    Free,
    Outcome,
    Parked,
    Poisoned,
    Record,
    Shown,
    Stolen,
    Struck,
    Unsequenced,
)

UPDATED = {
    "name": "ContactNameUpdatedEvent",
    "email": "ContactEmailUpdatedEvent",
    "description": "ContactDescriptionUpdatedEvent",
    "company": "ContactCompanyUpdatedEvent",
}
"""The event of each property that a patch may set, by the names that docs/use/messages.md gives."""

CREATED = "ContactCreatedEvent"
DELETED = "ContactDeletedEvent"
NOTICE = "EventDiscarded"
"""The action of the message in the place of a discarded event."""


def cause(operation: str, number: int) -> str:
    """The correlation id of an attempt, which its events carry."""
    return f"{operation}.{number}"


def values(contact: Mapping[str, Any]) -> dict[str, str | None]:
    """What the clients set in a contact, or in an event that carries one of its properties."""
    name, company = contact.get("name") or {}, contact.get("company") or {}
    found = {
        "name": name.get("firstName"),
        "email": contact.get("email"),
        "description": contact.get("description"),
        "company": company.get("companyName"),
    }
    return {key: value for key, value in found.items() if key in contact}


def value_of(operation: str, property_name: str) -> str:
    """What an operation sets a property to: nobody else ever does."""
    if property_name == "description":
        return like_a_date(operation)
    return f"{operation}@example.com" if property_name == "email" else operation


def like_a_date(name: str) -> str:
    """A text of this name's own that the Functions host writes anew before the relay sees it, offset and fraction."""
    number = int(hashlib.sha256(name.encode()).hexdigest()[:12], 16)
    at = datetime(2001, 1, 1) + timedelta(seconds=number % 10**9)  # noqa: DTZ001 - only its digits count
    return f"{at.isoformat()}.{number // 10**9:06}0+02:00"


@dataclass(frozen=True)
class Attempt:
    """One request; ``answer`` is None while it is open, or when its client never learnt."""

    asked: Attempted
    answer: Answered | None

    @property
    def cause(self) -> str:
        return cause(self.asked.operation, self.asked.number)

    @property
    def outcome(self) -> Outcome:
        return self.answer.outcome if self.answer else "unknown"


@dataclass(frozen=True)
class Operation:
    """What a client wanted, once; it may have asked for it several times."""

    attempts: tuple[Attempt, ...]

    @property
    def asked(self) -> Attempted:
        return self.attempts[0].asked

    @property
    def name(self) -> str:
        return self.asked.operation

    @property
    def call(self) -> Call:
        return self.asked.call

    @property
    def outcome(self) -> Outcome:
        """Acknowledged if any attempt was; refused only if all were."""
        outcomes = {attempt.outcome for attempt in self.attempts}
        if "acknowledged" in outcomes:
            return "acknowledged"
        return "unknown" if "unknown" in outcomes else "refused"

    @property
    def acknowledged(self) -> tuple[Answered, ...]:
        return tuple(
            attempt.answer
            for attempt in self.attempts
            if attempt.answer is not None and attempt.outcome == "acknowledged"
        )

    @property
    def contacts(self) -> set[str]:
        """The contact that it was about: as it was asked, or as the answers say."""
        told = {str(answer.body["id"]) for answer in self.acknowledged if answer.body and "id" in answer.body}
        return told | ({self.asked.contact} if self.asked.contact else set())

    @property
    def actions(self) -> set[str]:
        """The events that it must cause if it happens at all."""
        if self.call == "create":
            return {CREATED}
        if self.call == "delete":
            return {DELETED}
        return {UPDATED[name] for name in self.asked.properties}


@dataclass(frozen=True)
class Event:
    """One event, by its id, with all its deliveries in the order they came."""

    deliveries: tuple[Delivered, ...]

    @property
    def first(self) -> Delivered:
        return self.deliveries[0]

    @property
    def body(self) -> dict[str, Any]:
        return self.first.body

    @property
    def id(self) -> str:
        return self.first.message_id

    @property
    def contact(self) -> str:
        return self.first.session

    @property
    def action(self) -> str:
        return self.first.subject

    @property
    def sequence(self) -> int:
        return self.first.sequence

    @property
    def cause(self) -> str:
        return str(self.body.get("correlationId"))

    @property
    def operation(self) -> str:
        """The name of the operation whose attempt caused it."""
        return self.cause.rpartition(".")[0]

    def __str__(self) -> str:
        return (
            f"{self.action} {self.id} (sequence {self.sequence}, by {self.cause}) of contact {self.contact}"
        )


@dataclass
class History:
    """All that is known of a run. Take records in the order in which each journal has them."""

    attempts: dict[str, Attempted] = field(default_factory=dict)
    answers: dict[str, Answered] = field(default_factory=dict)
    deliveries: dict[str, list[Delivered]] = field(default_factory=lambda: defaultdict(list))
    """By message id, the first of them in the order of their first deliveries."""
    completed: dict[int, float] = field(default_factory=dict)
    """When the broker confirmed that a message was done with, by its number."""
    poisons: list[Poisoned] = field(default_factory=list)
    unsequenced: dict[str, list[Unsequenced]] = field(default_factory=lambda: defaultdict(list))
    """By document: what was written down of each."""
    discarded: set[str] = field(default_factory=set)
    free: list[Free] = field(default_factory=list)
    strikes: list[Struck] = field(default_factory=list)
    stolen: list[Stolen] = field(default_factory=list)
    shown: dict[str, list[Shown]] = field(default_factory=lambda: defaultdict(list))
    """By contact: the versions of its entry, as the directory's change feed showed them; it may leave some out."""
    found: list[dict[str, Any]] = field(default_factory=list)
    parked: list[dict[str, Any]] = field(default_factory=list)
    still_parked: list[dict[str, Any]] = field(default_factory=list)
    """What is left after everything was discarded or replayed."""

    def add(self, records: Iterable[Record]) -> None:
        """Take in some more."""
        for record in records:
            self._add(record)

    def _add(self, record: Record) -> None:
        match record:
            case Attempted():
                self.attempts[cause(record.operation, record.number)] = record
            case Answered():
                self.answers[cause(record.operation, record.number)] = record
            case Delivered():
                self.deliveries[record.message_id].append(record)
            case Completed():
                self.completed[record.broker_number] = record.at
            case Struck():
                self.strikes.append(record)
            case Found():
                self.found.append(record.body)
            case Shown():
                self.shown[record.contact].append(record)
            case Stolen():
                self.stolen.append(record)
            case _:
                self._add_past_the_api(record)

    def _add_past_the_api(self, record: Poisoned | Unsequenced | Parked | Discarded | Free) -> None:
        match record:
            case Poisoned():
                self.poisons.append(record)
            case Unsequenced():
                self.unsequenced[record.document].append(record)
            case Parked():
                self.parked.append(record.body)
            case Discarded():
                self.discarded.add(record.document)
            case Free():
                self.free.append(record)

    def operations(self) -> dict[str, Operation]:
        """By name, in the order of their first attempts."""
        attempts: defaultdict[str, list[Attempt]] = defaultdict(list)
        for name, asked in self.attempts.items():
            attempts[asked.operation].append(Attempt(asked, self.answers.get(name)))
        return {name: Operation(tuple(each)) for name, each in attempts.items()}

    def events(self) -> list[Event]:
        """In the order of their first deliveries."""
        return [Event(tuple(deliveries)) for deliveries in self.deliveries.values()]
