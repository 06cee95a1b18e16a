"""Histories written by hand, for the tests of the checker."""

from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from cosmos_outbox.testing.judging.checker import check
from cosmos_outbox.testing.judging.history import History
from cosmos_outbox.testing.judging.records import (
    Answered,
    Attempted,
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
    SeenParked,
    Stored,
    Unsequenced,
)
from tests.torture.contacts import Contacts, expected, value_of

CONTACT = "11111111-1111-4111-8111-111111111111"
OTHER = "22222222-2222-4222-8222-222222222222"


def details(operation: str) -> dict[str, Any]:
    return {
        "name": {"firstName": operation, "lastName": "Doe"},
        "email": f"{operation}@example.com",
        "description": value_of(operation, "description"),
        "company": {"companyName": operation},
    }


ALL = ("name", "email", "description", "company")


def _at(hour: int) -> datetime:
    return datetime(2026, 3, 1, hour, tzinfo=UTC)


@dataclass
class Story:
    """Records, told in the order in which they happened; each takes a second."""

    clock: float = 0.0
    records: list[Record] = field(default_factory=list)
    events: int = 0
    history: History = field(default_factory=History)

    def at(self) -> float:
        self.clock += 1
        return self.clock

    def asked(
        self, operation: str, *, properties: tuple[str, ...] = (), contact: str | None = None, **asked: Any
    ) -> "Story":
        events = {} if asked["call"] == "read" else expected(asked["call"], operation, properties)
        self.records.append(
            Attempted(
                at=self.at(),
                operation=operation,
                aggregate=contact,
                events=events,
                **({"number": 1} | asked),
            )
        )
        return self

    def answered(self, operation: str, outcome: Outcome = "acknowledged", **answer: Any) -> "Story":
        told = (answer.get("body") or {}).get("id")
        self.records.append(
            Answered(
                at=self.at(), operation=operation, outcome=outcome, aggregate=told, **({"number": 1} | answer)
            )
        )
        return self

    def created(self, operation: str = "a", contact: str = CONTACT, **answer: Any) -> "Story":
        body = {"id": contact, **details(operation)}
        return self.asked(operation, call="create", properties=ALL).answered(
            operation, body=body, **({"status": 201} | answer)
        )

    def patched(
        self, operation: str, *names: str, outcome: Outcome = "acknowledged", contact: str = CONTACT
    ) -> "Story":
        status = {"acknowledged": 200, "refused": 409, "unknown": 503}[outcome]
        body = {"id": contact, **details(operation)} if outcome == "acknowledged" else None
        return self.asked(operation, call="change", contact=contact, properties=names).answered(
            operation, outcome, status=status, body=body
        )

    def deleted(self, operation: str, contact: str = CONTACT) -> "Story":
        return self.asked(operation, call="delete", contact=contact).answered(operation, status=204)

    def delivered(  # everything that a message may have wrong
        self,
        operation: str,
        what: str,
        sequence: int,
        *,
        contact: str = CONTACT,
        number: int = 1,
        event: str = "",
        broker_number: int = 0,
        differing: dict[str, Any] | None = None,
    ) -> "Story":
        self.events += 1
        event, action = event or f"event-{self.events}", f"Contact{what}Event"
        body: dict[str, Any] = {
            "id": event,
            "contactId": contact,
            "action": action,
            "sequence": sequence,
            "correlationId": f"{operation}.{number}",
        }
        carried = details(operation)
        if what == "Created":
            body["contact"] = {"id": contact, **carried}
        elif what != "Deleted":
            name = what.removesuffix("Updated").lower()
            body[name] = carried[name]
        self.records.append(
            HandedOut(
                at=self.at(),
                broker_number=broker_number or self.events,
                delivery_count=1,
                lock="lock",
                message_id=event,
                aggregate=contact,
                subject=action,
                sequence=sequence,
                body=body | (differing or {}),
            )
        )
        return self

    def stored(self, operation: str, what: str, sequence: int, *, event: str, number: int = 1) -> "Story":
        """The store took the event that ``delivered`` would deliver, under this id."""
        event_told = Story().delivered(operation, what, sequence, event=event, number=number).records[0]
        assert isinstance(event_told, HandedOut)
        self.records.append(
            Stored(
                at=self.at(),
                event=event,
                aggregate=CONTACT,
                action=event_told.subject,
                sequence=sequence,
                body=event_told.body,
            )
        )
        return self

    def noticed(self, document: str, contact: str = CONTACT, *, sequence: int = -1) -> "Story":
        self.events += 1
        self.records.append(
            HandedOut(
                at=self.at(),
                broker_number=self.events,
                delivery_count=1,
                lock="lock",
                message_id=f"notice-{self.events}",
                aggregate=contact,
                subject="EventDiscarded",
                sequence=sequence,
                body={"action": "EventDiscarded", "discardedEventId": document},
            )
        )
        return self

    def completed(self, broker_number: int) -> "Story":
        self.records.append(Completed(at=self.at(), broker_number=broker_number))
        return self

    def poisoned(self, document: str, *, stored: bool | None = True, contact: str | None = None) -> "Story":
        self.records.append(
            Poisoned(
                at=self.at(),
                document=document,
                partition=contact or "nobody",
                stored=stored,
                aggregate=contact,
            )
        )
        return self

    def parked(
        self, document: str, *, contact: str | None = None, reason: str = "broken", hour: int = 1
    ) -> "Story":
        self.history.parked.append(
            SeenParked(at=self.at(), event=document, aggregate=contact, reason=reason, parked_at=_at(hour))
        )
        return self

    def discarding(self, document: str) -> "Story":
        self.records.append(DiscardAsked(at=self.at(), document=document))
        return self

    def discarded(self, document: str, *, surely: bool = False) -> "Story":
        self.records.append(Discarded(at=self.at(), document=document, surely=surely))
        return self

    def free(self, contact: str = CONTACT, *, hour: int) -> "Story":
        self.records.append(Free(at=self.at(), aggregate=contact, time=_at(hour)))
        return self

    def unsequenced(self, document: str, *, stored: bool = True, contact: str = CONTACT) -> "Story":
        self.records.append(Unsequenced(at=self.at(), document=document, aggregate=contact))
        if stored:
            self.records.append(Unsequenced(at=self.at(), document=document, aggregate=contact, stored=True))
        return self

    def delivered_without_sequence(
        self, document: str, *, contact: str = CONTACT, says_so: bool = True
    ) -> "Story":
        self.events += 1
        self.records.append(
            HandedOut(
                at=self.at(),
                broker_number=self.events,
                delivery_count=1,
                lock="lock",
                message_id=document,
                aggregate=contact,
                subject="ContactImportedEvent",
                sequence=-1,
                unsequenced=says_so,
                body={"id": document, "contactId": contact, "action": "ContactImportedEvent"},
            )
        )
        return self

    def found(self, contact: str = CONTACT, **values: str) -> "Story":
        """A contact of the final list; each value is the name of the operation that set it."""
        body: dict[str, Any] = {"id": contact}
        for name in ALL:
            body[name] = details(values.get(name, "a"))[name]
        self.history.found.append(FinallyListed(at=self.at(), aggregate=contact, body=body))
        return self

    def ended(self, instance: str, why: str) -> "Story":
        self.records.append(Ended(at=self.at(), instance=instance, why=why))
        return self

    def rules(self, **promised: float) -> set[str]:
        self.history.add(self.records)
        self.records.clear()
        return {violation.rule for violation in check(self.history, Contacts(), **promised)}


def good() -> Story:
    return (
        Story()
        .created("a")
        .patched("b", "name", "email")
        .delivered("a", "Created", 1)
        .delivered("b", "NameUpdated", 2)
        .delivered("b", "EmailUpdated", 3)
    )


def final() -> dict[str, str]:
    return {"name": "b", "email": "b"}
