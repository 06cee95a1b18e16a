"""Puts the records of one run in order: operations with their attempts, and events with their deliveries.

This module judges nothing and leaves nothing out.
"""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from outbox_simulation.invariants.language import SKIP_MARKER
from outbox_simulation.invariants.records import (
    Answered,
    Attempted,
    Call,
    Completed,
    DiscardAsked,
    Discarded,
    Ended,
    FinallyListed,
    Free,
    HandedOut,
    Outcome,
    Poisoned,
    Record,
    SeenEntry,
    SeenParked,
    Stolen,
    Stored,
    Struck,
    Unsequenced,
)


def cause(operation: str, number: int) -> str:
    """Returns the correlation id of an attempt, which its events carry."""
    return f"{operation}.{number}"


@dataclass(frozen=True)
class Exchange:
    """One request; ``answer`` is None while it is open, or if its client never got one."""

    asked: Attempted
    answer: Answered | None

    @property
    def cause(self) -> str:
        return cause(self.asked.operation, self.asked.number)

    @property
    def outcome(self) -> Outcome:
        return self.answer.outcome if self.answer else "unknown"

    @property
    def ended(self) -> float:
        """The time from which it can change nothing; a request without an answer may do so for ever."""
        return self.answer.at if self.answer and self.outcome != "unknown" else float("inf")


@dataclass(frozen=True)
class Operation:
    """One intended change of a client, which may have requested it several times."""

    attempts: tuple[Exchange, ...]

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
    def aggregates(self) -> set[str]:
        """The aggregates of the request, and of the answers."""
        answered = {answer.aggregate for answer in self.acknowledged if answer.aggregate}
        return answered | ({self.asked.aggregate} if self.asked.aggregate else set())

    @property
    def actions(self) -> set[str]:
        """The events that it must cause if it happens at all."""
        return set(self.asked.events)


@dataclass(frozen=True)
class SeenEvent:
    """One event, by its id, with all its deliveries in the order they came."""

    deliveries: tuple[HandedOut, ...]

    @property
    def first(self) -> HandedOut:
        return self.deliveries[0]

    @property
    def body(self) -> dict[str, Any]:
        return self.first.body

    @property
    def id(self) -> str:
        return self.first.message_id

    @property
    def aggregate(self) -> str:
        return self.first.aggregate

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
        return f"{self.action} {self.id} (sequence {self.sequence}, by {self.cause}) of {self.aggregate}"


@dataclass
class History:
    """All records of a run. Add records in the order in which each writer has them."""

    attempts: dict[str, Attempted] = field(default_factory=dict)
    answers: dict[str, Answered] = field(default_factory=dict)
    stored: dict[str, Stored] = field(default_factory=dict)
    """By event; empty if the store is not watched."""
    deliveries: dict[str, list[HandedOut]] = field(default_factory=lambda: defaultdict(list))
    """By message id, the first of them in the order of their first deliveries."""
    completed: dict[int, float] = field(default_factory=dict)
    """The time when the broker confirmed the completion of a message, by its number."""
    poisons: list[Poisoned] = field(default_factory=list)
    unsequenced: dict[str, list[Unsequenced]] = field(default_factory=lambda: defaultdict(list))
    """By document: its records."""
    discarding: set[str] = field(default_factory=set)
    discarded: dict[str, float] = field(default_factory=dict)
    """The time when an operator first knew that a document was discarded."""
    gone: dict[str, float] = field(default_factory=dict)
    """The time from which a document is not sent any more."""
    free: list[Free] = field(default_factory=list)
    strikes: list[Struck] = field(default_factory=list)
    stolen: list[Stolen] = field(default_factory=list)
    ended: list[Ended] = field(default_factory=list)
    shown: dict[str, list[SeenEntry]] = field(default_factory=lambda: defaultdict(list))
    """By aggregate: the versions of its entry, in their order; some may be missing."""
    found: list[FinallyListed] = field(default_factory=list)
    parked: list[SeenParked] = field(default_factory=list)
    still_parked: list[SeenParked] = field(default_factory=list)
    """The events left after everything was discarded or replayed."""
    expired: set[str] = field(default_factory=set)
    """The events that had no relay as long as they lived."""
    numbers_of_sessions: int = 1
    """The number of session counts that the deployment had, one after the other."""

    def add(self, records: Iterable[Record]) -> None:
        """Adds records."""
        for record in records:
            self._add(record)

    def _add(self, record: Record) -> None:
        match record:
            case Attempted():
                self.attempts[cause(record.operation, record.number)] = record
            case Answered():
                self.answers[cause(record.operation, record.number)] = record
            case Stored():
                self.stored[record.event] = record
            case HandedOut():
                self.deliveries[record.message_id].append(record)
            case Completed():
                self.completed[record.broker_number] = record.at
            case FinallyListed():
                self.found.append(record)
            case SeenEntry():
                self.shown[record.aggregate].append(record)
            case Struck() | Stolen() | Ended():
                self._add_fault(record)
            case _:
                self._add_past_the_api(record)

    def _add_fault(self, record: Struck | Stolen | Ended) -> None:
        match record:
            case Struck():
                self.strikes.append(record)
            case Stolen():
                self.stolen.append(record)
            case Ended():
                self.ended.append(record)

    def _add_past_the_api(
        self, record: Poisoned | Unsequenced | SeenParked | DiscardAsked | Discarded | Free
    ) -> None:
        match record:
            case Poisoned():
                self.poisons.append(record)
            case Unsequenced():
                self.unsequenced[record.document].append(record)
            case SeenParked():
                self.parked.append(record)
            case DiscardAsked():
                self.discarding.add(record.document)
            case Discarded():
                self.discarded.setdefault(record.document, record.at)
                if record.surely:
                    self.gone.setdefault(record.document, record.at)
            case Free():
                self.free.append(record)

    def operations(self) -> dict[str, Operation]:
        """The operations by name, in the order of their first attempts."""
        attempts: defaultdict[str, list[Exchange]] = defaultdict(list)
        for name, asked in self.attempts.items():
            attempts[asked.operation].append(Exchange(asked, self.answers.get(name)))
        return {name: Operation(tuple(each)) for name, each in attempts.items()}

    def events(self) -> list[SeenEvent]:
        """The events in the order of their first deliveries, skip markers included."""
        return [SeenEvent(tuple(deliveries)) for deliveries in self.deliveries.values()]

    def skip_markers(self) -> dict[str, list[SeenEvent]]:
        """The skip markers of each discarded document."""
        answered: defaultdict[str, list[SeenEvent]] = defaultdict(list)
        for event in self.events():
            if event.action == SKIP_MARKER:
                answered[str(event.body.get("discardedEventId"))].append(event)
        return answered
